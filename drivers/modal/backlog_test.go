package modal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
)

func TestBacklogKeepsOrderAcrossMemoryAndDisk(t *testing.T) {
	dir := t.TempDir()
	b := newBacklog(dir)
	var want bytes.Buffer
	write := func(fill byte, size int) {
		t.Helper()
		block := bytes.Repeat([]byte{fill}, size)
		want.Write(block)
		if n, err := b.Write(block); n != size || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
	}
	var got bytes.Buffer
	read := func(size int) {
		t.Helper()
		if _, err := io.CopyN(&got, b, int64(size)); err != nil {
			t.Fatal(err)
		}
	}
	write('a', backlogMemory) // fills the memory
	write('b', 1000)          // spills
	read(backlogMemory - 10)
	write('c', 500) // must not overtake what is on disk
	read(10 + 1500)
	write('d', 10) // memory again
	b.end()
	read(10)
	if n, err := b.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("after the end: %d, %v", n, err)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Error("the bytes are not those written, or not in order")
	}
	b.close()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Where the disk takes nothing, a slow reader slows Modal down and loses nothing.
func TestBacklogWithoutADisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "taken")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBacklog(dir)
	defer b.close()
	input := bytes.Repeat([]byte("0123456789abcdef"), 3*backlogMemory/16)
	broken := make(chan error, 1)
	go func() {
		defer b.end()
		for rest := input; len(rest) > 0; rest = rest[64<<10:] {
			if _, err := b.Write(rest[:64<<10]); err != nil {
				broken <- err
				return
			}
		}
		broken <- nil
	}()
	got, err := io.ReadAll(b)
	if err := errors.Join(err, <-broken); err != nil || !bytes.Equal(got, input) {
		t.Errorf("%d of %d bytes arrived, %v", len(got), len(input), err)
	}
}

func TestBacklogReleasesBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog(t.TempDir())
		read := make(chan error)
		go func() {
			_, err := b.Read(make([]byte, 1))
			read <- err
		}()
		synctest.Wait()
		b.drop()
		if err := <-read; err != io.ErrClosedPipe {
			t.Errorf("the reader got %v", err)
		}
		if _, err := b.Write([]byte("x")); err != io.ErrClosedPipe {
			t.Errorf("the writer got %v", err)
		}
	})
}

func TestBacklogWrapsAround(t *testing.T) {
	b := newBacklog(t.TempDir())
	defer b.close()
	// As if most of the ring had been used before.
	if err := b.open(); err != nil {
		t.Fatal(err)
	}
	b.start = backlogDisk - 5
	b.memory = make([]byte, backlogMemory)
	if _, err := b.Write([]byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, b, backlogMemory); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 10)
	if _, err := io.ReadFull(b, got); err != nil || string(got) != "0123456789" {
		t.Errorf("got %q, %v", got, err)
	}
}
