package conformance

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

var filesOnly = []Need{needsFiles}

func fileCases() []Case {
	return []Case{
		{
			ID: "files.round-trip", Group: GroupFiles, Needs: filesOnly, run: checkFileRoundTrip,
			Reason: "a file that is read differs in no byte from what was written",
			Source: "airflow 59, 60, 77; reports 54",
		},
		{
			ID: "files.same-as-exec", Group: GroupFiles, Needs: filesOnly, run: checkSameAsExec,
			Reason: "files and commands must look at the same file system, from the same directory",
			Source: "airflow 73",
		},
		{
			ID: "files.overwrite", Group: GroupFiles, Needs: filesOnly, run: checkOverwrite,
			Reason: "a shorter content leaves no tail of the longer one, and a script stays executable",
			Source: "airflow 72",
		},
		{
			ID: "files.parents", Group: GroupFiles, Needs: filesOnly, run: checkParents,
			Reason: "a write makes the directories that are missing",
			Source: "airflow 62",
		},
		{
			ID: "files.mode", Group: GroupFiles, Needs: filesOnly, run: checkMode,
			Reason: "a key that others can read is no secret, a script that cannot be executed no script",
			Source: "design 3; reports 53",
		},
		{
			ID: "files.symlink-write", Group: GroupFiles, Needs: filesOnly, run: checkSymlinkWrite,
			Reason: "what a write through a link does is claimed, and has to be true",
			Source: "airflow 70",
		},
		{
			ID: "files.cut-upload", Group: GroupFiles, Needs: filesOnly, run: checkCutUpload,
			Reason: "half a file under the final name is taken for the whole one",
			Source: "reports 51; airflow 79",
		},
		{
			ID: "files.cancelled-upload", Group: GroupFiles, Needs: filesOnly, run: checkCancelledUpload,
			Reason: "an upload that is given up leaves nothing, however little of it has begun",
			Source: "reports 51; airflow 79",
		},
		{
			ID: "files.limit", Group: GroupFiles, Needs: filesOnly, run: checkReadLimit,
			Reason: "a limit is kept, told with the real size, and what is exactly as large is not too large",
			Source: "airflow 33, 66",
		},
		{
			ID: "files.stat", Group: GroupFiles, Needs: filesOnly, run: checkStat,
			Reason: "cp decides from kind, size and mode where things land",
			Source: "design 3",
		},
	}
}

func checkFileRoundTrip(t *T) {
	box := t.shared().mkdir()
	const chunk = 256 << 10
	for name, content := range map[string]string{
		"all": allBytes(), "empty": "", "one": "x", "newline": "\n", "text": "no newline at the end", "nul": "\x00\x00", "crlf": "a\r\nb\r\n",
		"below": strings.Repeat("b", chunk-1), "chunk": strings.Repeat("c", chunk), "above": strings.Repeat("a", chunk+1),
	} {
		if err := box.write(name, content); err != nil {
			t.Errorf("writing %s: %v", name, err)
			continue
		}
		got, err := box.read(name, 0)
		if err != nil {
			t.Errorf("reading %s: %v", name, err)
			continue
		}
		t.wantText("file "+name, got, content)
	}
}

func checkSameAsExec(t *T) {
	box := t.shared().mkdir()
	if err := box.write("ours", "written by the driver"); err != nil {
		t.Fatalf("writing: %v", err)
	}
	t.wantText("what a command reads", box.must("cat ours"), "written by the driver")
	box.must("printf 'written by a command' >theirs")
	got, err := box.read("theirs", 0)
	if err != nil {
		t.Errorf("reading what a command wrote: %v", err)
	}
	t.wantText("what the driver reads", got, "written by a command")

	relative := "conformance-" + random(6)
	defer box.exec(shell(`rm -f "$1"`, relative))
	if err := t.driver().WriteFile(t.ctx, box.ref, relative, 0, strings.NewReader("relative")); err != nil {
		t.Fatalf("writing a relative path: %v", err)
	}
	t.wantText("a relative path for a command", box.exec(shell(`cat "$1"`, relative)).stdout, "relative")
	got, err = box.readPath(relative, 0)
	if err != nil || got != "relative" {
		t.Errorf("a relative path for the driver: %s, %v", short(got), err)
	}
}

func checkOverwrite(t *T) {
	box := t.shared().mkdir()
	if err := box.write("file", strings.Repeat("long", 10_000)); err != nil {
		t.Fatalf("writing: %v", err)
	}
	box.must("chmod 750 file")
	if err := box.write("file", "short"); err != nil {
		t.Fatalf("overwriting: %v", err)
	}
	t.wantText("the content", box.must("cat file"), "short")
	t.wantText("the mode", box.must("stat -c %a file"), "750\n")
}

func checkParents(t *T) {
	box := t.shared()
	box.must("rm -rf new")
	if err := box.write("new/deep/er/file", "x"); err != nil {
		t.Fatalf("writing: %v", err)
	}
	t.wantText("the file", box.must("cat new/deep/er/file"), "x")
	t.wantText("the modes of the new directories", box.must("stat -c %a new new/deep new/deep/er"), "755\n755\n755\n")
}

func checkMode(t *T) {
	box := t.shared().mkdir()
	for mode, want := range map[uint32]string{0: "644\n", 0o600: "600\n", 0o755: "755\n", 0o444: "444\n"} {
		box.must("rm -f file")
		if err := t.driver().WriteFile(t.ctx, box.ref, box.path("file"), mode, strings.NewReader("x")); err != nil {
			t.Errorf("writing with mode %o: %v", mode, err)
			continue
		}
		t.wantText("the file's mode", box.must("stat -c %a file"), want)
	}
}

func checkSymlinkWrite(t *T) {
	box := t.shared()
	box.must("rm -f link target; printf old >target; ln -s target link")
	if err := box.write("link", "new"); err != nil {
		t.Fatalf("writing through a link: %v", err)
	}
	want := "link new"
	if t.info().Capabilities.Files.SymlinkWrite == plugin.SymlinkReplace {
		want = "file old"
	}
	t.wantText("link and target", box.must(`if [ -L link ]; then printf 'link '; else printf 'file '; fi; cat target`), want)
	t.wantText("what is read back", box.must("cat link"), "new")
}

func checkCutUpload(t *T) {
	box := t.shared()
	box.must("rm -rf dir; mkdir dir; printf old >dir/kept")
	lost := errors.New("the sender is gone")
	for _, name := range []string{"dir/kept", "dir/new"} {
		half := io.MultiReader(strings.NewReader(strings.Repeat("half", 100_000)), errReader{lost})
		err := t.driver().WriteFile(t.ctx, box.ref, box.path(name), 0, half)
		if err == nil {
			t.Errorf("an upload whose source failed was reported as done")
		}
	}
	box.wantOnlyOld()
}

// wantOnlyOld checks that uploads that came to nothing have left the directory dir as it was.
func (b *box) wantOnlyOld() {
	// The driver learns of it when the host is back already, and may be at it still.
	b.t.wait(time.Second)
	if !b.t.eventually(promptly, func() bool { return b.must("ls -A dir; cat dir/kept") == "kept\nold" }) {
		b.t.Errorf("the directory and the old file are %s, want only the old file", short(b.must("ls -A dir; head -c 20 dir/kept")))
	}
}

func checkCancelledUpload(t *T) {
	box := t.shared()
	box.must("rm -rf dir; mkdir dir; printf old >dir/kept")
	for delay := 5 * time.Millisecond; delay < time.Second; delay *= 2 {
		for _, name := range []string{"dir/kept", "dir/new"} {
			ctx, cancel := context.WithTimeout(t.ctx, delay)
			half := io.MultiReader(strings.NewReader("half"), waiting{ctx})
			if err := t.driver().WriteFile(ctx, box.ref, box.path(name), 0, half); err == nil {
				t.Errorf("an upload that was given up after %v was reported as done", delay)
			}
			cancel()
		}
	}
	box.wantOnlyOld()
}

// waiting is a reader that has nothing more to give.
type waiting struct{ ctx context.Context }

func (w waiting) Read([]byte) (int, error) {
	<-w.ctx.Done()
	return 0, w.ctx.Err()
}

func checkReadLimit(t *T) {
	box := t.shared()
	box.must("head -c 500 /dev/zero >file")
	got, err := box.read("file", 100)
	var told *plugin.Error
	switch {
	case !errors.As(err, &told) || told.Kind != plugin.KindTooLarge:
		t.wantKind("reading 500 bytes with a limit of 100", err, plugin.KindTooLarge)
	case told.Size < 101 || told.Limit != 100:
		t.Errorf("the error says size %d and limit %d, want 500 and 100", told.Size, told.Limit)
	}
	if len(got) > 100 {
		t.Errorf("%d bytes arrived, though 100 were the limit", len(got))
	}
	for _, limit := range []int64{500, 501, 0} {
		if got, err := box.read("file", limit); err != nil || len(got) != 500 {
			t.Errorf("with a limit of %d: %d bytes, %v", limit, len(got), err)
		}
	}
}

func checkStat(t *T) {
	box := t.shared()
	box.must("rm -rf f d l fifo; printf 12345 >f; chmod 640 f; touch -t 202001020304.05 f; mkdir d; ln -s f l; mkfifo fifo")
	stat := func(name string, follow bool) plugin.FileInfo {
		info, err := t.driver().Stat(t.ctx, box.ref, box.path(name), follow)
		if err != nil {
			t.Fatalf("stat of %s: %v", name, err)
		}
		return info
	}
	file := stat("f", false)
	if file.Name != "f" || file.Kind != plugin.FileRegular || file.Size != 5 || file.Mode != 0o640 {
		t.Errorf("a file is %+v", file)
	}
	if want := strings.TrimSpace(box.must("stat -c %Y f")); want != unix(file.ModTime) {
		t.Errorf("the file was modified at %s, want %s", unix(file.ModTime), want)
	}
	if dir := stat("d", false); dir.Kind != plugin.FileDirectory {
		t.Errorf("a directory is %+v", dir)
	}
	if link := stat("l", false); link.Kind != plugin.FileSymlink || link.LinkTarget != "f" {
		t.Errorf("a link is %+v", link)
	}
	if followed := stat("l", true); followed.Kind != plugin.FileRegular || followed.Size != 5 {
		t.Errorf("a followed link is %+v", followed)
	}
	if fifo := stat("fifo", false); fifo.Kind != plugin.FileOther {
		t.Errorf("a FIFO is %+v", fifo)
	}
}
