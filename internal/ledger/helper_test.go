package ledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The test binary runs itself to have real processes that can be killed. Each mode is one such process.
const modeVariable = "LEDGER_TEST_MODE"

func TestMain(m *testing.M) {
	modes := map[string]func(l *Ledger) error{
		"":         nil,
		"owner":    func(l *Ledger) error { fmt.Println(l.Owner()); return nil },
		"begin":    beginMode,
		"hold":     holdMode,
		"churn":    churnMode,
		"extend":   extendMode,
		"readonly": readOnlyMode,
	}
	run, known := modes[os.Getenv(modeVariable)]
	if known && run == nil {
		os.Exit(m.Run())
	}
	l, err := Open(os.Args[len(os.Args)-1])
	if err == nil {
		err = run(l)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child is a process of one mode. It is killed and reaped at the end of the test at the latest.
type child struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Scanner
}

func start(t *testing.T, mode, dir string) *child {
	t.Helper()
	return startCommand(t, exec.Command(os.Args[0], dir), mode)
}

func startCommand(t *testing.T, cmd *exec.Cmd, mode string) *child {
	t.Helper()
	cmd.Env = append(os.Environ(), modeVariable+"="+mode)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &child{Cmd: cmd, stdin: stdin, stdout: bufio.NewScanner(stdout)}
}

// line waits for one line of the child.
func (c *child) line(t *testing.T) string {
	t.Helper()
	if !c.stdout.Scan() {
		t.Fatalf("the process ended without its line: %v", c.stdout.Err())
	}
	return c.stdout.Text()
}

// finish lets the child go on and waits for it to succeed; it returns what it printed.
func (c *child) finish(t *testing.T) []string {
	t.Helper()
	_ = c.stdin.Close()
	var lines []string
	for c.stdout.Scan() {
		lines = append(lines, c.stdout.Text())
	}
	if err := c.Wait(); err != nil {
		t.Fatalf("the process failed: %v", err)
	}
	return lines
}

func waitForInput() { _, _ = io.Copy(io.Discard, os.Stdin) }

// beginMode waits for the starting shot, begins "same" five times at once, and prints a line for each.
func beginMode(l *Ledger) error {
	fmt.Println("waiting")
	waitForInput()
	results := make(chan string)
	for range 5 {
		go func() {
			r, err := l.Begin(context.Background(), Intent{Name: "same", Driver: "fake"})
			if taken, ok := errors.AsType[*NameTakenError](err); ok {
				results <- "taken " + taken.Existing.ID
			} else if err != nil {
				results <- "failed " + err.Error()
			} else {
				results <- "won " + r.ID
			}
		}()
	}
	for range 5 {
		fmt.Println(<-results)
	}
	return nil
}

// holdMode begins "held", prints the id, and stays until its input ends; then it makes the sandbox ready.
func holdMode(l *Ledger) error {
	r, err := l.Begin(context.Background(), Intent{Name: "held", Driver: "fake"})
	if err != nil {
		return err
	}
	fmt.Println(r.ID)
	waitForInput()
	_, err = l.SetReady(context.Background(), r.ID, Ready{Handle: []byte("h")})
	return err
}

// extendMode adds a second to the lease twenty times.
func extendMode(l *Ledger) error {
	ctx := context.Background()
	r, err := l.Find(ctx, "shared")
	if err != nil {
		return err
	}
	for range 20 {
		err := l.WithLock(ctx, r.ID, func(k *Locked) error { return k.SetExpiry(k.Record().ExpiresAt.Add(time.Second)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// churnMode creates and removes sandboxes of a few names for ever. It prints every step once Begin or the change has
// returned, so that what is printed must be on disk.
func churnMode(l *Ledger) error {
	ctx := context.Background()
	// The test may itself be killed.
	go func() {
		waitForInput()
		os.Exit(1)
	}()
	for {
		r, err := l.Begin(ctx, Intent{Name: fmt.Sprint("n", rand.IntN(4)), Driver: "fake"})
		if taken, ok := errors.AsType[*NameTakenError](err); ok {
			if taken.Existing.Process.Alive() != Dead {
				continue
			}
			// Another writer was killed: clear what it left.
			if _, err := l.SetGone(ctx, taken.Existing.ID, "abandoned"); err != nil && !isNotFound(err) {
				return err
			}
			fmt.Println(taken.Existing.ID, StateGone)
			continue
		}
		if err != nil {
			return err
		}
		fmt.Println(r.ID, StateIntent, r.Name)
		if rand.IntN(5) == 0 {
			fmt.Println(r.ID, "dropping")
			if err := l.Drop(ctx, r.ID); err != nil {
				return err
			}
			continue
		}
		steps := []func() (Record, error){
			func() (Record, error) { return l.SetCreated(ctx, r.ID, []byte("ref")) },
			func() (Record, error) { return l.SetReady(ctx, r.ID, Ready{}) },
			func() (Record, error) { return l.SetGone(ctx, r.ID, "removed") },
		}
		for _, step := range steps {
			after, err := step()
			if err != nil {
				return err
			}
			fmt.Println(r.ID, after.State)
		}
	}
}

// readOnlyMode reads a directory it may not write, and prints what creating says.
func readOnlyMode(l *Ledger) error {
	ctx := context.Background()
	records, _, err := l.List(ctx, Filter{})
	if err != nil {
		return err
	}
	found, err := l.Find(ctx, "kept")
	if err != nil {
		return err
	}
	fmt.Println(len(records), found.ID, l.Owner())
	for _, try := range []func() error{
		func() error { _, err := l.Begin(ctx, Intent{Name: "new", Driver: "fake"}); return err },
		func() error { _, err := l.SetGone(ctx, found.ID, "removed"); return err },
	} {
		err := try()
		if _, ok := errors.AsType[*StateDirError](err); !ok {
			return fmt.Errorf("want a *StateDirError, got %v", err)
		}
		fmt.Println(strings.ReplaceAll(told(err), "\n", " "))
	}
	return nil
}

func isNotFound(err error) bool {
	_, ok := errors.AsType[*NotFoundError](err)
	return ok
}

func open(tb testing.TB, dir string) *Ledger {
	tb.Helper()
	// Directories of the testing package follow the umask; a state directory is private.
	if err := os.Chmod(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	l, err := Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	if l.unwritable != nil {
		tb.Fatal(l.unwritable)
	}
	return l
}

func begin(tb testing.TB, l *Ledger, name string) Record {
	tb.Helper()
	r, err := l.Begin(tb.Context(), Intent{Name: name, Driver: "fake"})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func ready(tb testing.TB, l *Ledger, name string) Record {
	tb.Helper()
	r, err := l.SetReady(tb.Context(), begin(tb, l, name).ID, Ready{Handle: []byte("ref-" + name)})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func gone(tb testing.TB, l *Ledger, id string) Record {
	tb.Helper()
	r, err := l.SetGone(tb.Context(), id, "removed")
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// files returns every file below dir but the owner's, sorted.
func files(tb testing.TB, dir string) []string {
	tb.Helper()
	var all []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && path != ownerFile {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// told is what a user reads of an error: what failed, and what to do.
func told(err error) string {
	if hinting, ok := errors.AsType[interface {
		error
		Hint() string
	}](err); ok {
		return hinting.Error() + "; " + hinting.Hint()
	}
	return err.Error()
}
