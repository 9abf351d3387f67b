package posix

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// guest runs recipes for real on this machine, in a directory of its own, with one
// kind of shell and tools.
type guest struct {
	shell []string
	path  string
	dir   string
	// user runs them without root's privileges.
	user bool
	// execs counts the commands.
	execs int
}

func (g *guest) exec(ctx context.Context, _ plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
	g.execs++
	argv := request.Argv
	if argv[0] == "sh" {
		argv = append(append([]string{}, g.shell...), argv[1:]...)
	}
	for _, arg := range argv {
		if len(arg) > 100<<10 {
			return plugin.ExitStatus{}, errors.New("an argument is longer than Linux takes")
		}
	}
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Dir = g.dir
	command.Env = []string{"PATH=" + g.path}
	command.Stdout, command.Stderr = stdio.Stdout, stdio.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	if g.user {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	stdin, err := command.StdinPipe()
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	if err := command.Start(); err != nil {
		return plugin.ExitStatus{}, err
	}
	go func() {
		defer stdin.Close()
		copyInput(stdin, stdio)
	}()
	err = command.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return plugin.ExitStatus{}, err
	}
	if ctx.Err() != nil {
		return plugin.ExitStatus{}, ctx.Err()
	}
	return plugin.Exited(command.ProcessState.ExitCode()), nil
}

func copyInput(stdin interface{ Write([]byte) (int, error) }, stdio *plugin.ExecIO) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := stdio.Stdin.Read(buffer)
		if n > 0 {
			if _, err := stdin.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// guests calls test with every shell. A shell that is not installed fails the test,
// since all of them are promised: `make setup` installs them.
func guests(t *testing.T, test func(t *testing.T, g *guest, files *Files)) {
	t.Helper()
	run := func(name, path string, shell ...string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(shell[0]); err != nil {
				t.Fatalf("%s is not installed: %v", shell[0], err)
			}
			if path == "" {
				path = busyboxTools(t)
			}
			dir, err := os.MkdirTemp("", "posix") // its parents are open to all users, unlike t.TempDir's
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			g := &guest{shell: shell, path: path, dir: dir}
			test(t, g, New(g.exec))
			noLeftovers(t, dir)
		})
	}
	const system = "/usr/local/bin:/usr/bin:/bin"
	run("dash", system, "dash")
	run("bash", system, "bash", "--posix")
	run("busybox", "", "busybox", "sh")
}

// busyboxTools is a PATH on which every tool is busybox's.
func busyboxTools(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "busybox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("busybox", "--install", "-s", dir).CombinedOutput(); err != nil {
		t.Fatalf("busybox --install: %v: %s", err, out)
	}
	return dir
}

// noLeftovers fails when a temporary file of a recipe has stayed.
func noLeftovers(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.Contains(filepath.Base(path), ".sandboxctl-") {
			t.Errorf("%s was left behind", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func wantReason(t *testing.T, err error, reason plugin.PathReason) {
	t.Helper()
	var told *plugin.Error
	if !errors.As(err, &told) || told.Kind != plugin.KindPath || told.PathReason != reason {
		t.Errorf("error is %#v (%v), want path reason %s", err, err, reason)
	}
}
