//go:build linux

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/egress"
	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/execd"
)

// RunIfChild takes over when this process was started as the inside of a sandbox, and never returns then.
func RunIfChild() {
	raw := os.Getenv(stageEnv)
	if raw == "" {
		return
	}
	var st stage
	err := json.Unmarshal([]byte(raw), &st)
	if err == nil {
		switch st.Name {
		case "init":
			err = runInit(st.Config)
		case "execd":
			err = runExecd(st.Config)
		default:
			err = fmt.Errorf("unknown stage %q", st.Name)
		}
	}
	fmt.Fprintln(os.Stderr, "sandbox:", err)
	os.Exit(125)
}

// runInit is process 1 of the sandbox: it builds the root, starts execd and the entrypoint, reaps what others leave
// behind, and ends with the entrypoint's status. The kernel then ends everything else in the namespace.
func runInit(cfg Config) error {
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(cfg.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := buildRoot(cfg.Root, self); err != nil {
		return fmt.Errorf("build the root file system: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring up the loopback: %w", err)
	}
	if err := startExecd(cfg); err != nil {
		return err
	}
	_ = os.NewFile(3, "listener").Close()
	adopt(cfg.Env)
	entry := exec.Command(cfg.Entrypoint[0], cfg.Entrypoint[1:]...)
	entry.Env, entry.Dir = cfg.Env, "/"
	entry.Stdout, entry.Stderr = os.Stdout, os.Stderr
	entry.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := entry.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(127)
	}
	os.Exit(reapUntil(entry.Process.Pid))
	return nil
}

func startExecd(cfg Config) error {
	setting, err := json.Marshal(stage{Name: "execd", Config: cfg})
	if err != nil {
		return err
	}
	cmd := exec.Command("/opt/opensandbox/execd")
	cmd.Env = []string{stageEnv + "=" + string(setting)}
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "listener")}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start execd: %w", err)
	}
	return nil
}

// reapUntil collects every process handed to process 1 until the given one ends, and returns its status the way a
// shell would put it.
func reapUntil(pid int) int {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return 125
		}
		if got == pid && ws.Exited() {
			return ws.ExitStatus()
		}
		if got == pid && ws.Signaled() {
			return 128 + int(ws.Signal())
		}
	}
}

func runExecd(cfg Config) error {
	adopt(cfg.Env)
	file := os.NewFile(3, "listener")
	ln, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("use the listener: %w", err)
	}
	_ = file.Close()
	handler, err := execd.New(cfg.Execd)
	if err != nil {
		return err
	}
	if s := cfg.Sidecar; s != nil {
		side, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(egress.Port)))
		if err != nil {
			return err
		}
		go func() { _ = http.Serve(side, egress.New(s.Policy, s.Token, s.Enforcement)) }()
	}
	return (&http.Server{Handler: handler}).Serve(ln)
}

// adopt makes env this process's own environment, so that programs are looked for on the guest's PATH.
func adopt(env []string) {
	os.Clearenv()
	for _, entry := range env {
		if name, value, ok := strings.Cut(entry, "="); ok {
			_ = os.Setenv(name, value)
		}
	}
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
