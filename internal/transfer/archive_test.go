package transfer

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// epoch is the time of every entry the tests make.
var epoch = time.Unix(1_700_000_000, 0)

// item is one entry of a test archive, in the notation
//
//	path        a file that holds "new"
//	path/       a directory
//	path -> t   a symbolic link
//	path => t   a hard link
//	path !X     an entry of type flag X
type item string

func (i item) header() *tar.Header {
	hdr := &tar.Header{Mode: 0o644, ModTime: epoch, Format: tar.FormatGNU}
	text := string(i)
	if name, target, ok := strings.Cut(text, " -> "); ok {
		hdr.Typeflag, hdr.Name, hdr.Linkname = tar.TypeSymlink, name, target
	} else if name, target, ok := strings.Cut(text, " => "); ok {
		hdr.Typeflag, hdr.Name, hdr.Linkname = tar.TypeLink, name, target
	} else if name, flag, ok := strings.Cut(text, " !"); ok {
		hdr.Typeflag, hdr.Name = flag[0], name
	} else if strings.HasSuffix(text, "/") {
		hdr.Typeflag, hdr.Name, hdr.Mode = tar.TypeDir, text, 0o755
	} else {
		hdr.Typeflag, hdr.Name, hdr.Size = tar.TypeReg, text, 3
	}
	return hdr
}

// tarOf writes headers as they are, so that an archive can say what archive/tar
// would clean up (a file whose name ends in a slash, an unknown type).
func tarOf(t testing.TB, items ...item) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, i := range items {
		hdr := i.header()
		if err := tw.WriteHeader(hdr); err != nil {
			t.Fatalf("%q: %v", i, err)
		}
		if hdr.Typeflag == tar.TypeReg {
			if _, err := tw.Write([]byte("new")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// patch changes bytes of the header at offset and corrects its checksum.
func patch(data []byte, offset int, changes map[int]string) []byte {
	data = bytes.Clone(data)
	block := data[offset : offset+512]
	for at, text := range changes {
		copy(block[at:], text)
	}
	copy(block[148:156], "        ")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return data
}

// sparsePAX claims a pebibyte and holds one byte.
func sparsePAX(t testing.TB) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "top", Size: 1, Mode: 0o644, Format: tar.FormatPAX, PAXRecords: map[string]string{
		"GNX.sparse.major":     "0",
		"GNX.sparse.minor":     "1",
		"GNX.sparse.map":       "0,1",
		"GNX.sparse.numblocks": "1",
		"GNX.sparse.size":      "1125899906842624",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tw.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	// archive/tar writes no sparse files; the records are not checksummed.
	return bytes.ReplaceAll(buf.Bytes(), []byte("GNX."), []byte("GNU."))
}

// sparseGNU is the same claim (8 GiB) in the older format.
func sparseGNU(t testing.TB) []byte {
	t.Helper()
	return patch(tarOf(t, "top"), 0, map[int]string{
		156: "S",
		386: "00000000000\x0000000000003\x00",
		483: "77777777777\x00",
	})
}

// tarOfPAX is an archive of one file whose name is in a PAX record.
func tarOfPAX(t testing.TB, name string) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name + strings.Repeat("x", 300), Mode: 0o644, Format: tar.FormatPAX})
	if err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
