package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func outputVolumeCases() []Case {
	return []Case{
		{
			ID: "output.50-mb", Group: GroupOutput, Serial: true, Limit: 3 * time.Minute, run: checkVolume,
			Reason: "output that is cut short and reported as exit 0 is silent corruption; memory must not grow with it",
			Source: "airflow 27; reports 6, 65",
		},
		{
			ID: "output.endless", Group: GroupOutput, Serial: true, Limit: 2 * time.Minute, run: checkEndless,
			Reason: "an endless command ends at its time, and costs no memory until then",
			Source: "airflow 28",
		},
		{
			ID: "output.slow-reader", Group: GroupOutput, Serial: true, Limit: 2 * time.Minute, run: checkSlowReader,
			Reason: "a reader that falls behind slows the command down; it does not fill the driver's memory",
			Source: "airflow 27; design 6",
		},
		{
			ID: "output.reader-gone", Group: GroupOutput, run: checkReaderGone,
			Reason: "when the caller's pipe is closed the command must not run on",
			Source: "airflow 79",
		},
	}
}

// digest counts and hashes what is written.
type digest struct {
	hash  hash.Hash
	bytes int64
}

func newDigest() *digest { return &digest{hash: sha256.New()} }

func (d *digest) Write(data []byte) (int, error) {
	d.bytes += int64(len(data))
	return d.hash.Write(data)
}

func (d *digest) hex() string { return hex.EncodeToString(d.hash.Sum(nil)) }

func checkVolume(t *T) {
	const size = 50_000_000
	box := t.fresh()
	box.must(`head -c 50000000 /dev/urandom >data`)
	want, _, _ := strings.Cut(box.must(`sha256sum <data`), " ")
	got := newDigest()
	t.boundedMemory(func() {
		request := &plugin.ExecRequest{Argv: []string{"cat", box.path("data")}}
		status, err := t.driver().Exec(t.ctx, box.ref, request, &plugin.ExecIO{Stdout: got, Stderr: io.Discard})
		t.wantExit("cat", ran{status: status, err: err}, 0)
	})
	if got.bytes != size || got.hex() != want {
		t.Errorf("%d bytes of %d arrived, sha256 %s, want %s", got.bytes, size, got.hex(), want)
	}
}

func checkEndless(t *T) {
	box := t.fresh()
	got := newDigest()
	t.boundedMemory(func() {
		started := time.Now()
		request := &plugin.ExecRequest{Argv: []string{"cat", "/dev/zero"}, Timeout: 3 * time.Second}
		status, err := t.driver().Exec(t.ctx, box.ref, request, &plugin.ExecIO{Stdout: got, Stderr: io.Discard})
		t.wantExit("cat /dev/zero", ran{status: status, err: err}, 0, plugin.ExitTimedOut)
		if took := time.Since(started); took > 3*time.Second+grace {
			t.Errorf("it took %v", took.Round(time.Millisecond))
		}
	})
	if got.bytes == 0 {
		t.Errorf("nothing of its output arrived")
	}
}

func checkSlowReader(t *T) {
	box := t.fresh()
	ctx, cancel := context.WithTimeout(t.ctx, 8*time.Second)
	defer cancel()
	t.boundedMemory(func() {
		slow := writerFunc(func(data []byte) (int, error) {
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
			return len(data), nil
		})
		// How it ends is another case's business.
		_, _ = t.driver().Exec(ctx, box.ref, &plugin.ExecRequest{Argv: []string{"cat", "/dev/zero"}}, &plugin.ExecIO{Stdout: slow, Stderr: io.Discard})
	})
}

func checkReaderGone(t *T) {
	box := t.fresh().mkdir()
	closed := writerFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe })
	request := &plugin.ExecRequest{Argv: []string{"sh", "-c", "echo $$ >pids; while :; do echo x; done"}, Workdir: box.dir}
	started := time.Now()
	if _, err := t.driver().Exec(t.ctx, box.ref, request, &plugin.ExecIO{Stdout: closed, Stderr: io.Discard}); err == nil {
		t.Errorf("the command ended without an error though its output could not be written")
	}
	if took := time.Since(started); took > promptly {
		t.Errorf("it took %v", took.Round(time.Millisecond))
	}
	if !t.eventually(promptly, func() bool { return box.alive(box.path("pids")) == 0 }) {
		t.Errorf("the command still runs")
	}
}
