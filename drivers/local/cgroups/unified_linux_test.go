package cgroups

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childVariable makes the test binary another program: see TestMain.
const childVariable = "CGROUPS_TEST_PARENT"

// TestMain makes the test binary, as an ordinary user in a delegated group, do what a
// driver does there.
func TestMain(m *testing.M) {
	parent := os.Getenv(childVariable)
	if parent == "" {
		os.Exit(m.Run())
	}
	if err := useGroup(filepath.Join(parent, "mine"), Controller(os.Getenv(childVariable+"_CONTROLLER"))); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// unified returns where version 2 is mounted and a controller that it has. On machines
// of both versions that may be none of those that sandboxes use, but all work alike.
func unified(t *testing.T) (mount string, controller Controller) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making control groups needs root")
	}
	mounted, err := Self().hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range mounted {
		if !each.unified {
			continue
		}
		content, err := os.ReadFile(filepath.Join(each.mount, "cgroup.controllers"))
		has := strings.Fields(string(content))
		for _, controller := range []Controller{CPU, Memory, "pids", "hugetlb"} {
			if err == nil && slices.Contains(has, string(controller)) && enables(each.mount, controller) && Self().manages(each.mount) {
				return each.mount, controller
			}
		}
	}
	t.Skip("this machine has no writable control groups of version 2 with a controller")
	return "", ""
}

// useGroup makes a group, starts a process in it and removes both.
func useGroup(path string, controller Controller) (err error) {
	group := &Group{Dirs: []Directory{{Path: path, Unified: true, Controllers: []Controller{controller}}}}
	if err := group.Dirs[0].make(); err != nil {
		return err
	}
	cmd := exec.Command("sh", "-c", "cat /proc/self/cgroup; sleep 1000 & echo; exec sleep 1000")
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := group.Start(cmd); err != nil {
		return err
	}
	said := make([]byte, 4096)
	length, err := output.Read(said)
	if err != nil {
		return err
	}
	if want := "/" + filepath.Base(path) + "/run\n"; !strings.Contains(string(said[:length]), want) {
		return fmt.Errorf("the process says that it is in %q, not in %q", said[:length], want)
	}
	// What systemd does with controllers that it does not use must not end the limit.
	if err := write(filepath.Join(filepath.Dir(path), "cgroup.subtree_control"), "-"+string(controller)); err == nil {
		return fmt.Errorf("the controller %s can be taken away from the group", controller)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := group.Remove(ctx); err != nil {
		return err
	}
	_ = cmd.Wait()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		return fmt.Errorf("%s is still there: %v", path, err)
	}
	return nil
}

func TestUnified(t *testing.T) {
	mount, controller := unified(t)
	before, err := os.ReadFile(filepath.Join(mount, "cgroup.subtree_control"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Fields(string(before)), string(controller)) {
		t.Cleanup(func() { _ = write(filepath.Join(mount, "cgroup.subtree_control"), "-"+string(controller)) })
	}
	path := filepath.Join(mount, fmt.Sprintf("cgroups-test-%d", os.Getpid()))
	if err := useGroup(path, controller); err != nil {
		t.Errorf("with the controller %s: %v", controller, err)
	}

	// The same as an ordinary user, in a group that was given to it.
	makeGroup(t, path, controller)
	makeGroup(t, filepath.Join(path, "session"), "")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Other users cannot enter the directory that the test was built in.
	binary, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	session, err := os.Open(filepath.Join(path, "session"))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{binary}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin", childVariable + "=" + path, childVariable + "_CONTROLLER=" + string(controller)}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: 54321, Gid: 54321}, UseCgroupFD: true, CgroupFD: int(session.Fd()),
	}
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as an ordinary user, with the controller %s: %v: %s", controller, err, output)
	}
}

// makeGroup makes a group that belongs to the ordinary user.
func makeGroup(t *testing.T, path string, controller Controller) {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := remove(ctx, path); err != nil {
			t.Error(err)
		}
	})
	if controller != "" {
		if err := write(filepath.Join(path, "cgroup.subtree_control"), "+"+string(controller)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
		if err := os.Chown(filepath.Join(path, name), 54321, 54321); err != nil {
			t.Fatal(err)
		}
	}
}
