package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxctl/sandboxctl/drivers/local/guest"
	"github.com/sandboxctl/sandboxctl/drivers/local/network"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// cleanupLimit bounds what a failed or canceled create, which the host waits for only
// so long, removes.
const cleanupLimit = 3 * time.Second

// Create implements plugin.Driver.
func (d *Driver) Create(ctx context.Context, spec *plugin.SandboxSpec, events plugin.CreateEvents) (*plugin.Sandbox, error) {
	if !validID.MatchString(spec.ID) {
		return nil, plugin.Errorf(plugin.KindInvalid, "the sandbox id %q is not one of sandboxctl's", spec.ID)
	}
	if err := d.checkSpec(spec); err != nil {
		return nil, err
	}
	fresh := d.sandbox(spec.ID)
	existing, unlock, err := d.claim(ctx, fresh, spec)
	if existing != nil || err != nil {
		return existing, err
	}
	defer unlock()
	events.Created([]byte(spec.ID))
	created := &record{Spec: *spec, Labels: plugin.BackendLabels(spec), Nameservers: d.settings.Nameservers}
	if err := d.build(ctx, fresh, created, events); err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
		defer cancel()
		if left := fresh.remove(cleanup); left != nil {
			err = errors.Join(err, fmt.Errorf("and what was made could not be removed: %w", left))
		}
		return nil, err
	}
	return fresh.describe(created), nil
}

// checkSpec refuses what the host could not know to be wrong here.
func (d *Driver) checkSpec(spec *plugin.SandboxSpec) error {
	if networked(spec) {
		if err := network.CheckPolicy(spec.Network); err != nil {
			return err
		}
	}
	if err := checkLimits(spec); err != nil {
		return err
	}
	return checkWorkdir(spec)
}

// claim makes the sandbox's directory and locks it: until the lock is let go of, nobody
// takes the sandbox for a dead one. Where an earlier call with the same request has
// made the sandbox, or is at it, claim returns that one.
func (d *Driver) claim(ctx context.Context, fresh sandbox, spec *plugin.SandboxSpec) (existing *plugin.Sandbox, unlock func(), err error) {
	for {
		err := os.Mkdir(fresh.dir, 0o700)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, nil, plugin.Errorf(plugin.KindUnavailable, "the sandbox's directory cannot be made: %w", err)
		}
		unlock, err := fresh.lock(ctx)
		if errors.Is(err, fs.ErrNotExist) {
			// Somebody took it for the remains of a dead one.
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		known, err := fresh.load()
		if errors.Is(err, fs.ErrNotExist) {
			return nil, unlock, nil
		}
		if err == nil && fresh.pid() != 0 {
			defer unlock()
			if spec.RequestID == "" || !sameSpec(known.Spec, *spec) {
				return nil, nil, plugin.Errorf(plugin.KindConflict, "the sandbox %s exists already and was made with another request", spec.ID)
			}
			return fresh.describe(known), nil, nil
		}
		err = fresh.remove(ctx)
		unlock()
		if err != nil {
			return nil, nil, plugin.Errorf(plugin.KindInternal, "what is left of an earlier sandbox %s cannot be removed: %w", spec.ID, err)
		}
	}
}

// sameSpec compares what was asked for, the request's id included; when it was asked
// does not matter.
func sameSpec(a, b plugin.SandboxSpec) bool {
	for _, spec := range []*plugin.SandboxSpec{&a, &b} {
		spec.CreatedAt, spec.ExpiresAt = time.Time{}, time.Time{}
	}
	return reflect.DeepEqual(normalized(a), normalized(b))
}

// normalized makes empty and missing the same, as they are in the record's JSON.
func normalized(spec plugin.SandboxSpec) plugin.SandboxSpec {
	for _, m := range []*map[string]string{&spec.Env, &spec.Labels, &spec.Options} {
		if len(*m) == 0 {
			*m = nil
		}
	}
	if len(spec.Network.Hosts) == 0 {
		spec.Network.Hosts = nil
	}
	if len(spec.Network.CIDRs) == 0 {
		spec.Network.CIDRs = nil
	}
	return spec
}

// build makes the sandbox's files and starts it.
func (d *Driver) build(ctx context.Context, fresh sandbox, created *record, events plugin.CreateEvents) error {
	if err := d.provideImage(ctx, fresh, created, events); err != nil {
		return err
	}
	group, err := planGroup(&created.Spec)
	if err != nil {
		return err
	}
	// It is written down before it is made, so that whoever finds the sandbox half
	// made can remove it.
	created.Group = group
	err = fresh.save(created)
	for _, dir := range []string{fresh.rootfs(), fresh.upper(), fresh.runscRoot()} {
		err = errors.Join(err, os.Mkdir(dir, 0o755))
	}
	if err == nil {
		err = d.writeBundle(fresh, created)
	}
	if err != nil {
		return plugin.Errorf(storageKind(err), "the sandbox's files cannot be made: %w", err)
	}
	if err := d.startKept(ctx, fresh, created); err != nil {
		return err
	}
	if err := os.Rename(fresh.startingPIDFile(), fresh.pidFile()); err != nil {
		return plugin.Errorf(storageKind(err), "the sandbox's files cannot be made: %w", err)
	}
	return nil
}

// startKept starts the sandbox and, where it needs one, its keeper.
func (d *Driver) startKept(ctx context.Context, fresh sandbox, created *record) error {
	if !created.needsKeeper() {
		return d.start(ctx, fresh, created, nil)
	}
	// The two start at the same time, so that waiting for the keeper costs little.
	keeper, err := fresh.startKeeper(created.networked())
	if err != nil {
		return plugin.Errorf(plugin.KindUnavailable, "%w", err)
	}
	defer keeper.close()
	if err := d.start(ctx, fresh, created, keeper.held); err != nil {
		return err
	}
	if err := keeper.release(ctx, fresh.pidIn(fresh.startingPIDFile())); err != nil {
		return plugin.Errorf(plugin.KindUnavailable, "%w", err)
	}
	return nil
}

func storageKind(err error) plugin.Kind {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, fs.ErrPermission) {
		return plugin.KindUnavailable
	}
	return plugin.KindInternal
}

// start runs runsc until the sandbox is up. The sandbox has the file held, which may be
// nil, open until it ends: it is what its first process, which reads nothing, has for
// standard input.
func (d *Driver) start(ctx context.Context, fresh sandbox, created *record, held *os.File) error {
	options := []string{
		"--log=" + fresh.logFile(), "--log-format=json", "--panic-log=" + fresh.panicFile(),
		// KVM can hang for ever inside a virtual machine.
		"--platform=systrap",
		"--network=none", "--gofer-network-namespace=new",
		// Every file system that is not read-only gets a writable layer. It is kept on
		// disk, in files without names that end with the sandbox.
		"--overlay2=all:dir=" + fresh.upper() + overlaySize(created.Spec.DiskBytes),
		"--host-settings=ignore",
		// All of the sandbox is started in a group that is made here, in one way for
		// root and other users.
		"--ignore-cgroups",
	}
	if d.rootless {
		options = append(options, "--rootless")
	}
	if created.Spec.PIDs != 0 {
		options = append(options, countingOptions()...)
	}
	command := []string{"run", "-detach", "-bundle=" + fresh.dir, "-pid-file=" + fresh.startingPIDFile()}
	var begun *beginning
	if created.Image != nil {
		var err error
		if begun, err = newBeginning(); err != nil {
			return plugin.Errorf(plugin.KindUnavailable, "gVisor could not be started: %w", err)
		}
		defer begun.close()
		command = append(command, fmt.Sprintf("-pass-fd=3:%d", guest.InitFD))
	}
	cmd := fresh.runsc(options, append(command, fresh.id)...)
	if held != nil {
		cmd.Stdin = held
	}
	if begun != nil {
		cmd.ExtraFiles = []*os.File{begun.theirs}
	}
	if err := startLimited(cmd, created); err != nil {
		return plugin.Errorf(plugin.KindInternal, "gVisor could not be started: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	err := cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		if created.memoryKills() > 0 {
			return plugin.Errorf(plugin.KindInvalid, "--memory is too little for the sandbox to start").WithHint("take 128m or more")
		}
		return startError(fresh.complaints(), err)
	}
	if begun != nil {
		if err := begun.wait(ctx); err != nil {
			return err
		}
	}
	if created.Spec.PIDs != 0 {
		return fresh.limitProcesses(ctx, created.Spec.PIDs)
	}
	return nil
}

func startError(complaint string, err error) error {
	if complaint == "" {
		complaint = err.Error()
	}
	failure := plugin.Errorf(plugin.KindUnavailable, "gVisor could not start the sandbox: %s", complaint)
	if strings.Contains(complaint, "operation not permitted") || strings.Contains(complaint, "permission denied") {
		return failure.WithHint("see sandboxctl doctor: user namespaces may be disabled for ordinary users")
	}
	return failure.WithHint("see sandboxctl doctor")
}
