package transfer

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

const benchSize = 1 << 30

// BenchmarkPack sends a file of 1 GiB (sparse, so that the disk is no part of it).
func BenchmarkPack(b *testing.B) {
	path := filepath.Join(b.TempDir(), "f")
	write(b, path, "")
	if err := os.Truncate(path, benchSize); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(benchSize)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Pack(context.Background(), io.Discard, path, PackOptions{Name: "n"}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUnpack receives a file of 1 GiB and writes it.
func BenchmarkUnpack(b *testing.B) {
	head := tarOf(b, "n")[:512]
	head = patch(head, 0, map[int]string{124: "10000000000\x00"})
	dst := b.TempDir()
	b.SetBytes(benchSize)
	b.ReportAllocs()
	for b.Loop() {
		stream := io.MultiReader(bytes.NewReader(head), io.LimitReader(zeros{}, benchSize+1024))
		if _, err := Unpack(context.Background(), stream, Target{Dir: dst, Name: "n"}, UnpackOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRoundTripSmall copies 20,000 files of 1 KiB through a pipe.
func BenchmarkRoundTripSmall(b *testing.B) {
	src, dst := b.TempDir(), b.TempDir()
	content := string(make([]byte, 1024))
	for i := range 20_000 {
		write(b, filepath.Join(src, strconv.Itoa(i%100), strconv.Itoa(i)), content)
	}
	for b.Loop() {
		err := pipe(
			func(w io.Writer) error {
				_, err := Pack(context.Background(), w, src, PackOptions{Name: "n"})
				return err
			},
			func(r io.Reader) error {
				_, err := Unpack(context.Background(), r, Target{Dir: dst, Name: "n"}, UnpackOptions{})
				return err
			})
		if err != nil {
			b.Fatal(err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
