package conformance

import (
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func filePathCases() []Case {
	return []Case{
		{
			ID: "files.missing", Group: GroupFiles, Needs: filesOnly, run: checkMissing,
			Reason: "a missing file is the caller's mistake and correctable, never an empty file and never a lost sandbox",
			Source: "airflow 63; reports 11, 54",
		},
		{
			ID: "files.not-a-file", Group: GroupFiles, Needs: filesOnly, run: checkNotAFile,
			Reason: "a directory has no content, and writing over one must not replace it",
			Source: "airflow 64, 71, 78",
		},
		{
			ID: "files.special", Group: GroupFiles, Needs: filesOnly, run: checkSpecial,
			Reason: "a device has no end and a FIFO no writer: reading them must end at once",
			Source: "airflow 67, 78",
		},
		{
			ID: "files.proc", Group: GroupFiles, Needs: filesOnly, run: checkProc,
			Reason: "files of /proc say they are empty and are not",
			Source: "airflow 67",
		},
		{
			ID: "files.permission", Group: GroupFiles, Needs: filesOnly, run: checkPermission,
			Reason: "a file that may not be read is not an empty one",
			Source: "airflow 65",
		},
		{
			ID: "files.refused-write", Group: GroupFiles, Needs: filesOnly, run: checkRefusedWrite,
			Reason: "a write that the guest refuses says so",
			Source: "airflow 71",
		},
		{
			ID: "files.awkward-names", Group: GroupFiles, Needs: filesOnly, run: checkAwkwardNames,
			Reason: "names are bytes: none may break quoting, option parsing or decoding",
			Source: "airflow 68",
		},
		{
			ID: "files.impossible-paths", Group: GroupFiles, Needs: filesOnly, run: checkImpossiblePaths,
			Reason: "what no kernel takes is refused before it is cut or misread on the way",
			Source: "airflow 69",
		},
	}
}

// fileCalls are the calls that take a path to something that exists.
func (b *box) fileCalls() map[string]func(path string) error {
	t := b.t
	return map[string]func(string) error{
		"reading": func(path string) error { return t.driver().ReadFile(t.ctx, b.ref, path, 1000, io.Discard) },
		"listing": func(path string) error { _, err := t.driver().ReadDir(t.ctx, b.ref, path); return err },
		"stat of": func(path string) error { _, err := t.driver().Stat(t.ctx, b.ref, path, true); return err },
	}
}

func checkMissing(t *T) {
	box := t.shared()
	box.must("rm -rf missing; printf x >file; ln -sf nowhere dangling")
	for call, do := range box.fileCalls() {
		t.wantPath(call+" a missing path", do(box.path("missing")), plugin.PathMissing)
		t.wantPath(call+" a path in a missing directory", do(box.path("missing/file")), plugin.PathMissing)
		t.wantPath(call+" a dangling link", do(box.path("dangling")), plugin.PathMissing)
		t.wantPath(call+" a path below a file", do(box.path("file/below")), plugin.PathNotDirectory, plugin.PathMissing)
	}
}

func checkNotAFile(t *T) {
	box := t.shared()
	box.must("mkdir -p dir; touch dir/inside; [ -L link ] || ln -s dir link")
	for _, name := range []string{"dir", "link"} {
		_, err := box.read(name, 0)
		t.wantPath("reading a directory ("+name+")", err, plugin.PathIsDirectory)
		t.wantPath("writing to a directory ("+name+")", box.write(name, "x"), plugin.PathIsDirectory)
	}
	t.wantPath("writing below a file", box.write("dir/inside/file", "x"), plugin.PathNotDirectory)
	t.wantText("the directory afterwards", box.must("ls dir link/"), "dir:\ninside\n\nlink/:\ninside\n")
}

func checkSpecial(t *T) {
	box := t.shared()
	box.must("[ -p fifo ] || mkfifo fifo")
	for _, path := range []string{"/dev/zero", box.path("fifo")} {
		started := time.Now()
		_, err := box.readPath(path, 1000)
		t.wantKind("reading "+path, err, plugin.KindPath, plugin.KindTooLarge)
		if took := time.Since(started); took > promptly {
			t.Errorf("reading %s took %v", path, took.Round(time.Millisecond))
		}
	}
}

func checkProc(t *T) {
	box := t.shared()
	if box.sh("[ -r /proc/self/status ]").status.Code != 0 {
		t.Skipf("the guest has no /proc")
	}
	got, err := box.readPath("/proc/self/status", 1<<20)
	if err != nil || !strings.Contains(got, "Pid:") {
		t.Errorf("/proc/self/status was read as %s, %v", short(got), err)
	}
	got, err = box.readPath("/proc/self/status", 10)
	t.wantKind("reading /proc/self/status with a limit of 10", err, plugin.KindTooLarge)
	if len(got) > 10 {
		t.Errorf("%d bytes arrived", len(got))
	}
}

func checkPermission(t *T) {
	box := t.shared()
	box.must("printf secret >closed; chmod 000 closed")
	if box.sh("cat closed >/dev/null 2>&1").status.Code == 0 {
		t.Skipf("the guest's user may read everything")
	}
	got, err := box.read("closed", 0)
	t.wantPath("reading a file without permission", err, plugin.PathPermission)
	t.wantText("what arrived", got, "")
}

func checkRefusedWrite(t *T) {
	box := t.shared()
	err := t.driver().WriteFile(t.ctx, box.ref, "/proc/conformance", 0, strings.NewReader("x"))
	t.wantPath("creating a file in /proc", err)
	err = t.driver().WriteFile(t.ctx, box.ref, "/dev/null/file", 0, strings.NewReader("x"))
	t.wantPath("writing below a device", err, plugin.PathNotDirectory)
}

// awkwardNames are file names that break quoting, option parsing or decoding.
var awkwardNames = []string{
	"with space", "-n", "--help", "-", "'", `"`, ";", "$HOME", "`id`", "\n", "a\nb", "*", "?", "[a]", `\`, `\n`, "%s", "\xff\xfe", "\x01\x7f", "é漢🙂",
	"#", "~", "a:b", "@x", "trailing ", " leading", "!", "&&", "(x)", "{a,b}", "...", ".hidden", "CON", strings.Repeat("n", 255),
}

func checkAwkwardNames(t *T) {
	box := t.shared()
	box.must("rm -rf names; mkdir names")
	names := make(chan string)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for name := range names {
				box.checkName("names/"+name, name)
			}
		})
	}
	for _, name := range awkwardNames {
		names <- name
	}
	close(names)
	all.Wait()
	// The guest's own shell counts, so that one file is not mistaken for many.
	t.wantText("the number of files", box.must(`set -- names/* names/.[!.]* names/..?*; printf %s $#`), itoa(len(awkwardNames)))
	t.sameNames(box, "names", awkwardNames)
}

func (b *box) checkName(path, name string) {
	t := b.t
	if err := b.write(path, "content of "+name); err != nil {
		t.Errorf("writing %q: %v", name, err)
		return
	}
	if got, err := b.read(path, 0); err != nil || got != "content of "+name {
		t.Errorf("reading %q: %s, %v", name, short(got), err)
	}
	if info, err := t.driver().Stat(t.ctx, b.ref, b.path(path), false); err != nil || info.Name != name {
		t.Errorf("stat of %q: name %q, %v", name, info.Name, err)
	}
}

func checkImpossiblePaths(t *T) {
	box := t.shared().mkdir()
	for what, path := range map[string]string{
		"an empty path": "", "a NUL byte": box.path("a\x00b"), "5000 bytes": "/tmp/" + strings.Repeat("n/", 2500), "a name of 256 bytes": box.path(strings.Repeat("n", 256)),
	} {
		for call, do := range box.fileCalls() {
			t.wantKind(call+" "+what, do(path), plugin.KindPath, plugin.KindInvalid)
		}
		err := t.driver().WriteFile(t.ctx, box.ref, path, 0, strings.NewReader("x"))
		t.wantKind("writing to "+what, err, plugin.KindPath, plugin.KindInvalid)
	}
	t.wantText("the files that exist now", box.must("ls -A"), "")
}
