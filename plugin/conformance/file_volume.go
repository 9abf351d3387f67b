package conformance

import (
	"io"
	"math/rand/v2"
	"strings"
	"time"
)

func fileVolumeCases() []Case {
	return []Case{
		{
			ID: "files.50-mb", Group: GroupFiles, Needs: filesOnly, Serial: true, Limit: 5 * time.Minute, run: checkLargeFile,
			Reason: "a file larger than an argument, a message or a buffer passes whole, in bounded memory",
			Source: "airflow 61, 77; reports 50, 51, 65",
		},
		{
			ID: "files.slow-download", Group: GroupFiles, Needs: filesOnly, Serial: true, Limit: 2 * time.Minute, run: checkSlowDownload,
			Reason: "a slow disk on the host must not fill the driver's memory",
			Source: "airflow 61",
		},
	}
}

func checkLargeFile(t *T) {
	const size = 50 << 20
	box := t.shared().mkdir()
	defer box.sh("rm -f large")
	sent, got := newDigest(), newDigest()
	t.boundedMemory(func() {
		content := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), sent)
		if err := t.driver().WriteFile(t.ctx, box.ref, box.path("large"), 0, content); err != nil {
			t.Fatalf("writing: %v", err)
		}
	})
	inside, _, _ := strings.Cut(box.must("sha256sum <large"), " ")
	t.wantText("the sha256 in the guest", inside, sent.hex())
	t.boundedMemory(func() {
		if err := t.driver().ReadFile(t.ctx, box.ref, box.path("large"), 0, got); err != nil {
			t.Fatalf("reading: %v", err)
		}
	})
	t.wantText("the sha256 of what was read", got.hex(), sent.hex())
}

func checkSlowDownload(t *T) {
	box := t.shared()
	// Sparse, so that making it costs nothing.
	box.must("rm -f sparse; dd if=/dev/zero of=sparse bs=1 count=1 seek=209715199 2>/dev/null")
	defer box.sh("rm -f sparse")
	var written int64
	t.boundedMemory(func() {
		started := time.Now()
		slow := writerFunc(func(data []byte) (int, error) {
			if written += int64(len(data)); time.Since(started) < 3*time.Second {
				time.Sleep(20 * time.Millisecond)
			}
			return len(data), nil
		})
		if err := t.driver().ReadFile(t.ctx, box.ref, box.path("sparse"), 0, slow); err != nil {
			t.Errorf("reading: %v", err)
		}
	})
	if written != 200<<20 {
		t.Errorf("%d bytes arrived, want %d", written, 200<<20)
	}
}
