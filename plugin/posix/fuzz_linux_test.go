package posix

import (
	"os/exec"
	"strings"
	"testing"
)

// What the guest says is foreign: it must never panic, and a listing never holds a
// name that could not be one.
func FuzzParseListing(f *testing.F) {
	f.Add("find\nf 3 644 1700000000.5 name\x00\x00")
	f.Add("find\nl 3 777 1700000000 a\nb\x00target\x00")
	f.Add("stat\n./l\x00to\n\n\x00\x0081a4 3 1700000000 ./a\nb/\n")
	f.Add("stat\n\x00")
	f.Fuzz(func(t *testing.T, listing string) {
		entries, err := parseListing(listing)
		if err != nil {
			return
		}
		for _, entry := range entries {
			if strings.Contains(entry.Name, "\x00") {
				t.Errorf("name %q", entry.Name)
			}
		}
	})
}

// A path comes out of the shell's printf as it went in.
func FuzzEscape(f *testing.F) {
	for _, name := range awkward {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if checkPath("test", path) != nil || strings.HasPrefix(path, "/") {
			return
		}
		out, err := exec.Command("dash", "-c", `printf %b "$1"`, "sh", escape(path)).Output()
		if err != nil || string(out) != "./"+path {
			t.Errorf("%q became %q, %v", path, out, err)
		}
	})
}
