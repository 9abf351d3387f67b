package local

import (
	"slices"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
)

const (
	// smallestDisk leaves room for what a sandbox needs to start, in bytes.
	smallestDisk = 1 << 20
	// largestShm is the size of /dev/shm in a sandbox with a limit, as docker has it.
	largestShm = 64 << 20
	// rootfsAnnotation begins the names of what runsc is told about the root.
	rootfsAnnotation = "dev.gvisor.spec.rootfs."
)

// overlaySize limits each writable layer. limitDisk sees to it that there is only one.
func overlaySize(limit uint64) string {
	if limit == 0 {
		return ""
	}
	return ",size=" + strconv.FormatUint(limit, 10)
}

// limitDisk leaves the root as the only file system that can be written to, apart from
// a small one for shared memory: the host's directories are read-only, and /tmp, for
// which gVisor would take memory, stays in the root.
func limitDisk(config *specs.Spec, limit uint64) {
	for i := range config.Mounts {
		mount := &config.Mounts[i]
		switch {
		case mount.Type == "bind":
			mount.Options = []string{"rbind", "ro"}
		case mount.Destination == "/dev/shm":
			size := strconv.FormatUint(min(limit, largestShm), 10)
			mount.Options = append(slices.Clip(mount.Options), "size="+size)
		}
	}
	if _, image := config.Annotations[rootfsAnnotation+"source"]; image {
		// A root of its own kind does not go by runsc's options.
		config.Annotations[rootfsAnnotation+"options"] = "size=" + strconv.FormatUint(limit, 10)
	}
	// gVisor skips a mount of a type that it does not know, and mounts nothing of its
	// own where the configuration has a mount.
	config.Mounts = append(config.Mounts, specs.Mount{Destination: "/tmp", Type: "nothing", Source: "nothing"})
}
