package conformance

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func archiveEdgeCases() []Case {
	return []Case{
		{
			ID: "archive.errors", Group: GroupArchive, Needs: archiveOnly, run: checkArchiveErrors,
			Reason: "a path that is missing or not a directory is the caller's mistake, in words",
			Source: "reports 11, 53",
		},
		{
			ID: "archive.cut-upload", Group: GroupArchive, Needs: archiveOnly, run: checkCutArchive,
			Reason: "an archive that did not arrive whole is an error, and leaves no half file under a final name",
			Source: "reports 51",
		},
		{
			ID: "archive.cut-tar", Group: GroupArchive, Needs: archiveOnly, run: checkCutTar,
			Reason: "an archive that ends in the middle of a file is broken, whoever cut it",
			Source: "reports 51",
		},
		{
			ID: "archive.many-files", Group: GroupArchive, Needs: archiveOnly, Serial: true, Limit: 5 * time.Minute, run: checkManyFiles,
			Reason: "a source tree has many thousands of small files",
			Source: "reports 50",
		},
		{
			ID: "archive.200-mb", Group: GroupArchive, Needs: archiveOnly, Serial: true, Limit: 5 * time.Minute, run: checkLargeArchive,
			Reason: "an archive passes through in bounded memory",
			Source: "airflow 77; reports 50",
		},
	}
}

func octalMode(mode int64) string { return strconv.FormatInt(mode, 8) }

func checkArchiveErrors(t *T) {
	box := t.shared()
	box.must("printf x >file; rm -rf missing")
	box.archiveErrors()
	t.wantText("the file afterwards", box.must("cat file"), "x")
}

// errReader fails at once.
type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func checkCutArchive(t *T) {
	box := t.shared()
	box.must("rm -rf cut")
	whole := archiveOf(map[string]entry{"large": {kind: tar.TypeReg, content: strings.Repeat("x", 2<<20), mode: 0o644}}).Bytes()
	lost := errors.New("the sender is gone")
	half := io.MultiReader(bytes.NewReader(whole[:1<<20]), errReader{lost})
	if err := t.driver().PutArchive(t.ctx, box.ref, box.path("cut"), half); err == nil {
		t.Errorf("an upload whose source failed was reported as done")
	}
	t.wait(time.Second) // the driver learns of it when the host is back already
	settled := t.eventually(promptly, func() bool { return box.sh("[ -e cut/large ]").status.Code != 0 })
	if !settled {
		t.Errorf("half of a file has its final name: %s of %d bytes", strings.TrimSpace(box.must("wc -c <cut/large")), 2<<20)
	}
}

func checkCutTar(t *T) {
	box := t.shared()
	whole := archiveOf(map[string]entry{"large": {kind: tar.TypeReg, content: strings.Repeat("x", 2<<20), mode: 0o644}}).Bytes()
	err := t.driver().PutArchive(t.ctx, box.ref, box.path("cut"), bytes.NewReader(whole[:1<<20]))
	t.wantKind("unpacking an archive that ends in the middle of a file", err, plugin.KindInvalid, plugin.KindPath, plugin.KindInternal)
	t.wantExit("a command afterwards", box.sh("true"), 0)
}

func checkManyFiles(t *T) {
	const count = 10_000
	box := t.shared()
	box.must("rm -rf many")
	defer box.sh("rm -rf many")
	stream, w := io.Pipe()
	go func() {
		archive := tar.NewWriter(w)
		for i := range count {
			content := fmt.Sprintf("content of file %d\n", i)
			err := archive.WriteHeader(&tar.Header{Name: fmt.Sprintf("many/dir-%d/file-%d", i%100, i), Mode: 0o644, Size: int64(len(content))})
			if err == nil {
				_, err = io.WriteString(archive, content)
			}
			if err != nil {
				w.CloseWithError(err)
				return
			}
		}
		w.CloseWithError(archive.Close())
	}()
	err := t.driver().PutArchive(t.ctx, box.ref, box.dir, stream)
	stream.CloseWithError(io.ErrClosedPipe)
	if err != nil {
		t.Fatalf("unpacking %d files: %v", count, err)
	}
	got := box.get("many", false)
	files := 0
	for _, e := range got {
		if e.kind == tar.TypeReg {
			files++
		}
	}
	if files != count {
		t.Errorf("%d files came back, want %d", files, count)
	}
	t.wantText("one of them", got["many/dir-99/file-9999"].content, "content of file 9999\n")
}

func checkLargeArchive(t *T) {
	const size = 200 << 20
	box := t.shared().mkdir()
	defer box.sh("rm -f large")
	t.boundedMemory(func() {
		stream, w := io.Pipe()
		go func() {
			archive := tar.NewWriter(w)
			err := archive.WriteHeader(&tar.Header{Name: "large", Mode: 0o644, Size: size})
			if err == nil {
				_, err = io.CopyN(archive, zeros{}, size)
			}
			if err == nil {
				err = archive.Close()
			}
			w.CloseWithError(err)
		}()
		err := t.driver().PutArchive(t.ctx, box.ref, box.dir, stream)
		stream.CloseWithError(io.ErrClosedPipe)
		if err != nil {
			t.Fatalf("unpacking: %v", err)
		}
	})
	t.wantText("the file's size", strings.TrimSpace(box.must("wc -c <large")), strconv.Itoa(size))
	var got int64
	t.boundedMemory(func() {
		count := writerFunc(func(data []byte) (int, error) { got += int64(len(data)); return len(data), nil })
		if err := t.driver().GetArchive(t.ctx, box.ref, box.path("large"), false, count); err != nil {
			t.Fatalf("archiving: %v", err)
		}
	})
	if got < size {
		t.Errorf("the archive has %d bytes, less than the file in it", got)
	}
}

// zeros is an endless reader of zero bytes.
type zeros struct{}

func (zeros) Read(buffer []byte) (int, error) {
	clear(buffer)
	return len(buffer), nil
}
