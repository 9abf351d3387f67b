//go:build linux

package modal

import (
	"bufio"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// guestShells are what images have as their sh. Those that this machine has not
// are covered by none of its tests either.
var guestShells = [][]string{{"dash"}, {"bash", "--posix"}, {"busybox", "sh"}}

func TestControlScript(t *testing.T) {
	for _, shell := range guestShells {
		t.Run(shell[0], func(t *testing.T) {
			if _, err := exec.LookPath(shell[0]); err != nil {
				t.Skipf("this machine has no %s", shell[0])
			}
			m := newMark()
			command := startTree(t, m)
			bystander := startTree(t, newMark())

			control := func(args ...string) {
				t.Helper()
				argv := append(append(append([]string{}, shell[1:]...), "-c", controlScript, "sh", markName+"="+string(m)), args...)
				if out, err := exec.Command(shell[0], argv...).CombinedOutput(); err != nil || len(out) > 0 {
					t.Errorf("%v: %v, %s", args, err, out)
				}
			}
			control("signal", "USR1")
			if line, err := command.out.ReadString('\n'); err != nil || line != "got USR1\n" {
				t.Errorf("the command said %q, %v", line, err)
			}
			control("kill")
			if left := command.alive(); len(left) > 0 {
				t.Errorf("left of the command: %q", left)
			}
			if len(bystander.alive()) == 0 {
				t.Error("another command was killed as well")
			}
		})
	}
}

// processTree is a command with descendants, all of which have its tag in their
// arguments.
type processTree struct {
	tag string
	out *bufio.Reader
}

// startTree starts one child in another session, one without an environment, and
// one whose environment has a newline before the mark.
func startTree(t *testing.T, m mark) *processTree {
	t.Helper()
	number := strconv.Itoa(1_000_000 + rand.IntN(1_000_000)) // of seconds
	script := `trap 'echo got USR1' USR1
setsid sleep "$1" & env -i sleep "$1" & (A='x
y' sleep "$1" &)
echo up
while :; do sleep 0.1; done`
	command := exec.Command("sh", "-c", script, "sh", number)
	command.Env = append(os.Environ(), "A_FIRST=a\nb", markName+"="+string(m))
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	tree := &processTree{tag: number, out: bufio.NewReader(pipe)}
	t.Cleanup(func() {
		for _, pid := range tree.alive() {
			_ = exec.Command("kill", "-9", pid).Run()
		}
		_ = command.Wait()
	})
	if line, err := tree.out.ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("the tree said %q, %v", line, err)
	}
	return tree
}

// alive are the IDs of those processes that are not zombies.
func (p *processTree) alive() []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		cmdline, err := os.ReadFile(file)
		// A zombie has no arguments any more.
		if err == nil && strings.HasSuffix(string(cmdline), "\x00"+p.tag+"\x00") {
			found = append(found, filepath.Base(filepath.Dir(file)))
		}
	}
	return found
}
