package sbxdouble

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin/plugintest"
)

// Program is the name of the program the double stands for.
const Program = "sbx"

// program builds the double once in a test process. A test binary that called
// itself under another name would do without the go command, but under -race each
// of its processes sleeps a second at its end.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sbxdouble")
	if err != nil {
		return "", err
	}
	if err := plugintest.Build(dir, "github.com/sandboxctl/sandboxctl/drivers/sbx/internal/sbxdouble/cmd/"+Program); err != nil {
		os.RemoveAll(dir)
		return "", err
	}
	return filepath.Join(dir, Program), nil
})

// RunTests is m.Run for test binaries that Install the double; it removes the
// program that Install has built.
func RunTests(m *testing.M) int {
	code := m.Run()
	if path, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	return code
}

// Installed is a double that a test has set up.
type Installed struct {
	Dir    string // holds the program and its configuration
	Path   string // the program
	Config Config
}

// Install puts the double into a directory of its own, with state of its own,
// and ends everything it started when the test is over.
func Install(t testing.TB, c Config) *Installed {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the double's machines need Linux namespaces")
	}
	if c.Generation == "" {
		c.Generation = Gen045
	}
	if c.StateDir == "" {
		c.StateDir = t.TempDir()
	}
	d := &Installed{Dir: t.TempDir(), Config: c}
	d.Path = filepath.Join(d.Dir, Program)
	built, err := program()
	if err != nil {
		t.Fatal(err)
	}
	if err := linkOrCopy(built, d.Path); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(d.Dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a := &app{config: &d.Config, store: store{dir: c.StateDir}}
		boxes, err := a.store.list()
		if err != nil {
			t.Error(err)
		}
		for _, box := range boxes {
			a.halt(box.Name)
		}
	})
	return d
}

// Change edits the configuration; it holds from the next command on.
func (d *Installed) Change(t testing.TB, edit func(*Config)) {
	t.Helper()
	edit(&d.Config)
	if err := d.Config.Write(d.Dir); err != nil {
		t.Fatal(err)
	}
}

// Calls are all invocations so far.
func (d *Installed) Calls(t testing.TB) []Call {
	t.Helper()
	file, err := os.Open(filepath.Join(d.Config.StateDir, "calls.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var calls []Call
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var call Call
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, call)
	}
	return calls
}

// Sandboxes are the names that exist.
func (d *Installed) Sandboxes(t testing.TB) []string {
	t.Helper()
	boxes, err := store{dir: d.Config.StateDir}.list()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, box := range boxes {
		names = append(names, box.Name)
	}
	return names
}

// Running says whether a sandbox's machine is up.
func (d *Installed) Running(name string) bool {
	a := &app{config: &d.Config, store: store{dir: d.Config.StateDir}}
	return a.running(name)
}

func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
