package reference

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// broken is the reference driver with one defect, by name. What it does not override
// is right.
type broken struct {
	*Driver
	defect string
	// one lets a single command run at a time, for a defect.
	one sync.Mutex
}

// Broken returns the driver with a defect; see defects_test.go of the suite for what
// each one must fail.
func Broken(defect string) plugin.Driver {
	d := New()
	d.flaws = flaws{
		sparesChildren:  defect == "timeout-spares-children",
		waitsForPipes:   defect == "waits-for-background",
		killsBackground: defect == "kills-background",
		sharesNetwork:   defect == "shares-network" || defect == "opens-the-host" || defect == "ignores-allow-lists",
		sharesTmp:       defect == "shares-tmp",
	}
	b := &broken{Driver: d, defect: defect}
	if defect == "logs-no-access" {
		return logless{b}
	}
	return b
}

// logless claims a log by having one, which is empty.
type logless struct{ *broken }

func (logless) AccessLog(context.Context, plugin.Ref) ([]plugin.Access, error) { return nil, nil }

func (b *broken) Info() plugin.Info {
	info := b.Driver.Info()
	switch b.defect {
	case "lies-about-symlinks":
		info.Capabilities.Files.SymlinkWrite = plugin.SymlinkReplace
	case "lies-about-tty":
		info.Capabilities.Exec.TTY = true
	case "lies-about-ttl":
		info.Capabilities.Lease.TTL = true
	case "lies-about-memory":
		info.Capabilities.Spec.Memory = true
	case "lies-about-cpus":
		info.Capabilities.Spec.CPUs = true
	case "lies-about-pids":
		info.Capabilities.Spec.PIDs = true
	case "lies-about-disk":
		info.Capabilities.Spec.Disk = true
	case "lies-about-idle-timeouts":
		info.Capabilities.Lease.IdleTimeout = true
	case "lies-about-images":
		info.Capabilities.Spec.Image = true
	case "hides-longest-timeout":
		info.Capabilities.Exec.MaxTimeout = time.Hour
	case "opens-the-host":
		info.Capabilities.Network.Open = true
	case "ignores-allow-lists", "logs-no-access":
		info.Capabilities.Network.AllowCIDRs = true
		info.Capabilities.Network.AllowHosts = plugin.MatchAddress
	case "describes-in-lines":
		info.Description = "one\ntwo"
	}
	return info
}

func (b *broken) Configure(ctx context.Context, config plugin.Config) ([]string, error) {
	if b.defect == "forgets-with-its-process" {
		config.StateDir = filepath.Join(config.StateDir, strconv.Itoa(os.Getpid()))
		if err := os.Mkdir(config.StateDir, 0o700); err != nil {
			return nil, err
		}
	}
	return b.Driver.Configure(ctx, config)
}

// silent tells no handle.
type silent struct{ plugin.CreateEvents }

func (silent) Created([]byte) {}

func (b *broken) Create(ctx context.Context, spec *plugin.SandboxSpec, events plugin.CreateEvents) (*plugin.Sandbox, error) {
	switch b.defect {
	case "ignores-request-id":
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails, by its documentation
		spec.RequestID = hex.EncodeToString(random[:])
	case "tells-no-handle":
		events = silent{events}
	case "ignores-env":
		spec.Env = nil
	case "ignores-workdir":
		spec.Workdir = ""
	case "keeps-half-created":
		if ctx.Err() == nil {
			sandbox, err := b.Driver.Create(context.WithoutCancel(ctx), spec, silent{events})
			if err == nil {
				<-afterCancel(ctx, time.Second)
				err = ctx.Err()
			}
			return sandbox, err
		}
	}
	sandbox, err := b.Driver.Create(ctx, spec, events)
	if err == nil && b.defect == "shows-other-network" {
		sandbox.Network.Mode = plugin.NetworkOpen
	}
	return sandbox, err
}

// afterCancel is closed when ctx ends, or after a while.
func afterCancel(ctx context.Context, limit time.Duration) <-chan struct{} {
	done, cancel := context.WithTimeout(ctx, limit)
	context.AfterFunc(done, cancel)
	return done.Done()
}

func (b *broken) List(ctx context.Context, request plugin.ListRequest) (*plugin.SandboxList, error) {
	list, err := b.Driver.List(ctx, request)
	if err != nil {
		return nil, err
	}
	for _, sandbox := range list.Sandboxes {
		switch b.defect {
		case "lists-no-owner":
			sandbox.Owner = ""
		case "lists-no-labels":
			sandbox.Labels = nil
		case "always-expires":
			if sandbox.ExpiresAt.IsZero() {
				sandbox.ExpiresAt = time.Now().Add(time.Hour)
			}
		case "moves-expiry":
			sandbox.ExpiresAt = sandbox.ExpiresAt.Add(time.Hour)
		}
	}
	return list, nil
}

func (b *broken) Destroy(ctx context.Context, ref plugin.Ref) (bool, error) {
	if b.defect == "needs-handles" && len(ref.Handle) == 0 {
		return true, nil
	}
	if b.defect == "destroys-nothing" {
		_, err := b.find(ref)
		return err != nil, nil
	}
	gone, err := b.Driver.Destroy(ctx, ref)
	if gone && b.defect == "destroys-once" {
		return false, plugin.NotFoundf("sandbox %s does not exist", ref.ID)
	}
	return gone && b.defect != "denies-already-gone", err
}

func (b *broken) Renew(ctx context.Context, ref plugin.Ref, expires time.Time) (time.Time, error) {
	if b.defect == "renews-nothing" {
		_, err := b.find(ref)
		return expires, err
	}
	return b.Driver.Renew(ctx, ref, expires)
}
