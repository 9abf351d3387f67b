//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// notInstalled is shown for a program that this machine does not have.
const notInstalled = "not installed"

// runsc is gVisor without sandboxctl: the local driver's own copy of it, with the options
// and a bundle of the driver's, so that nothing but sandboxctl makes the difference.
type runsc struct {
	lab          *lab
	root, bundle string
	sandboxes    map[string]bool
}

// bare returns runsc with a sandbox of the name sandboxName.
func (l *lab) bare(ctx context.Context) (*runsc, error) {
	if l.bareRunsc != nil {
		return l.bareRunsc, nil
	}
	h, err := l.local(ctx)
	if err != nil {
		return nil, err
	}
	bundles, err := filepath.Glob(filepath.Join(h.stateDir(), "drivers", "local", "sandboxes", "*", "config.json"))
	if err != nil || len(bundles) == 0 {
		return nil, errors.Join(errors.New("the local driver's bundle is not where it was"), err)
	}
	r := &runsc{lab: l, root: l.path("runsc"), bundle: filepath.Dir(bundles[0]), sandboxes: map[string]bool{}}
	if err := os.MkdirAll(filepath.Join(r.root, "upper"), 0o700); err != nil {
		return nil, err
	}
	l.bareRunsc = r
	_, err = r.create(ctx, sandboxName)
	return r, err
}

func (r *runsc) command(ctx context.Context, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(r.lab.bin, localDriver))
	cmd.Args = append([]string{"runsc", "--root=."}, arguments...)
	cmd.Dir = r.root
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	return cmd
}

func (r *runsc) create(ctx context.Context, name string) (time.Duration, error) {
	r.sandboxes[name] = true
	options := []string{
		"--platform=systrap", "--network=none", "--gofer-network-namespace=new",
		"--overlay2=all:dir=" + filepath.Join(r.root, "upper"), "--host-settings=ignore", "--ignore-cgroups",
	}
	if os.Geteuid() != 0 {
		options = append(options, "--rootless")
	}
	return r.lab.timed(r.command(ctx, append(options, "run", "-detach", "-bundle="+r.bundle, name)...))
}

func (r *runsc) exec(ctx context.Context, argv ...string) *exec.Cmd {
	return r.command(ctx, append([]string{"exec", sandboxName}, argv...)...)
}

func (r *runsc) remove(ctx context.Context, name string) (time.Duration, error) {
	elapsed, err := r.lab.timed(r.command(ctx, "delete", "-force", name))
	if err == nil {
		delete(r.sandboxes, name)
	}
	return elapsed, err
}

func (r *runsc) close(ctx context.Context) error {
	var failures []error
	for name := range r.sandboxes {
		_, err := r.remove(ctx, name)
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// docker runs containers on the host's own programs, as the local driver does: from an
// image with nothing in it, without a network.
type docker struct {
	lab *lab
	// absent, unless empty, is why there is none.
	absent string
	prefix string
	// image and containers are to be removed.
	image      string
	containers map[string]bool
}

// docker returns docker with a container of the name sandboxName.
func (l *lab) docker(ctx context.Context) (*docker, error) {
	if l.dockerEngine != nil {
		return l.dockerEngine, nil
	}
	d := &docker{lab: l, prefix: filepath.Base(l.dir), containers: map[string]bool{}}
	l.dockerEngine = d
	if _, err := exec.LookPath("docker"); err != nil {
		d.absent = notInstalled
		return d, nil
	}
	if err := exec.CommandContext(ctx, "docker", "version").Run(); err != nil {
		d.absent = "not installed: no engine runs"
		return d, nil
	}
	load := exec.CommandContext(ctx, "docker", "import", "-", d.prefix)
	load.Stdin = bytes.NewReader(make([]byte, 1024)) // an empty tar archive
	if output, err := load.CombinedOutput(); err != nil {
		return d, fmt.Errorf("docker import: %w: %s", err, output)
	}
	d.image = d.prefix
	_, err := d.create(ctx, sandboxName)
	return d, err
}

func (d *docker) container(name string) string { return d.prefix + "-" + name }

func (d *docker) create(ctx context.Context, name string) (time.Duration, error) {
	d.containers[name] = true
	arguments := []string{"run", "-d", "--init=false", "--network=none", "--name", d.container(name)}
	for _, dir := range []string{"/usr", "/bin", "/lib", "/lib64"} {
		if _, err := os.Stat(dir); err == nil {
			arguments = append(arguments, "--volume", dir+":"+dir+":ro")
		}
	}
	return d.lab.timed(exec.CommandContext(ctx, "docker", append(arguments, d.image, "sleep", "infinity")...))
}

func (d *docker) exec(ctx context.Context, argv ...string) (time.Duration, error) {
	return d.lab.timed(exec.CommandContext(ctx, "docker", append([]string{"exec", d.container(sandboxName)}, argv...)...))
}

func (d *docker) remove(ctx context.Context, name string) (time.Duration, error) {
	elapsed, err := d.lab.timed(exec.CommandContext(ctx, "docker", "rm", "-f", d.container(name)))
	if err == nil {
		delete(d.containers, name)
	}
	return elapsed, err
}

func (d *docker) close(ctx context.Context) error {
	var failures []error
	for name := range d.containers {
		_, err := d.remove(ctx, name)
		failures = append(failures, err)
	}
	if d.image != "" {
		_, err := d.lab.timed(exec.CommandContext(ctx, "docker", "image", "rm", d.image))
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// bubblewrap is a sandbox that shares the host's kernel and lives for one command.
func (l *lab) bubblewrap(argv ...string) variant {
	bwrap := variant{name: "bwrap --unshare-all", run: func(ctx context.Context) ([]float64, error) {
		elapsed, err := l.timed(exec.CommandContext(ctx, "bwrap", append([]string{"--unshare-all", "--ro-bind", "/", "/"}, argv...)...))
		return one(milliseconds(elapsed), err)
	}}
	if _, err := exec.LookPath("bwrap"); err != nil {
		bwrap.absent = notInstalled
	}
	return bwrap
}
