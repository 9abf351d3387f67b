// Package images fetches container images and keeps them for the local driver. An image
// is kept as one file, an EROFS file system that gVisor uses as a sandbox's root: nothing
// that an image holds ever becomes a file of the host, its owners and modes need no
// root to be kept, and all sandboxes share it.
package images

import (
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Image is a stored image.
type Image struct {
	// Digest names it: of the manifest or, for docker-archive, of the configuration.
	Digest string `json:"digest"`
	// References are the names under which it was asked for, in full.
	References []string `json:"references"`
	// Size is of the file, in bytes.
	Size     int64     `json:"size"`
	PulledAt time.Time `json:"pulled_at"`
	// Env, Workdir and User are what its maker wants commands to have. Each may be empty.
	Env     []string `json:"env,omitempty"`
	Workdir string   `json:"workdir,omitempty"`
	User    string   `json:"user,omitempty"`
	// Layout is storedLayout at the time when the image was stored.
	Layout int `json:"layout"`

	// LastUsedAt is when a sandbox was last made from it; zero for never. Sandboxes
	// counts those that are left, and Allocated is the space that the file takes, which
	// may have holes. All come from the file itself.
	LastUsedAt time.Time `json:"-"`
	Sandboxes  int       `json:"-"`
	Allocated  int64     `json:"-"`
	// path is the file.
	path string
}

// storedLayout is raised whenever images are stored in another way than before. Others
// are not used any more.
const storedLayout = 1

// content is an image as its source has it.
type content struct {
	digest v1.Hash
	// reference is the image's name in full, and display the same for people.
	reference, display string
	// registry is where it comes from, or empty for a file of this machine.
	registry string
	config   v1.Config
	layers   []layer
}

// Progress is told how far a pull is.
type Progress = func(plugin.Progress)
