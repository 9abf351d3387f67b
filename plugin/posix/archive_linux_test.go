package posix

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func lookShell(g *guest) (string, error) { return exec.LookPath(g.shell[0]) }

func TestArchiveRoundTrip(t *testing.T) {
	guests(t, func(t *testing.T, g *guest, files *Files) {
		var sent bytes.Buffer
		w := tar.NewWriter(&sent)
		add := func(header tar.Header, content string) {
			header.Size = int64(len(content))
			if err := w.WriteHeader(&header); err != nil {
				t.Fatal(err)
			}
			io.WriteString(w, content)
		}
		add(tar.Header{Name: "tree/", Typeflag: tar.TypeDir, Mode: 0o755}, "")
		for _, name := range awkward {
			add(tar.Header{Name: "tree/" + name, Mode: 0o640, Uid: 4242, Gid: 4242}, "content of "+name)
		}
		add(tar.Header{Name: "tree/link", Typeflag: tar.TypeSymlink, Linkname: "plain", Mode: 0o777}, "")
		add(tar.Header{Name: "tree/empty/", Typeflag: tar.TypeDir, Mode: 0o2777}, "")
		w.Close()
		// A name that GNU tar would take for another host's.
		if err := files.PutArchive(t.Context(), ref, "new:dir/deep", &sent); err != nil {
			t.Fatal(err)
		}
		noLeftovers(t, g.dir)
		tree := filepath.Join(g.dir, "new:dir/deep/tree")
		if info, err := os.Stat(tree + "/empty"); err != nil || info.Mode().Perm() != 0o777 {
			t.Errorf("the empty directory: %v, %v", info, err)
		}
		for _, follow := range []bool{false, true} {
			var got bytes.Buffer
			if err := files.GetArchive(t.Context(), ref, "new:dir/deep/tree", follow, &got); err != nil {
				t.Fatal(err)
			}
			contents := unpackAll(t, &got)
			for _, name := range awkward {
				if contents["tree/"+name] != "content of "+name {
					t.Errorf("%q holds %q", name, contents["tree/"+name])
				}
			}
			want := "-> plain"
			if follow {
				want = "content of plain"
			}
			if contents["tree/link"] != want {
				t.Errorf("follow %v: the link is %q", follow, contents["tree/link"])
			}
			if _, ok := contents["tree/empty/"]; !ok {
				t.Error("the empty directory is missing")
			}
		}
	})
}

func TestArchiveNames(t *testing.T) {
	guests(t, func(t *testing.T, g *guest, files *Files) {
		os.Mkdir(g.dir+"/-x", 0o755)
		os.WriteFile(g.dir+"/-x/-f", []byte("f"), 0o644)
		os.Symlink("-x", g.dir+"/l")
		for path, want := range map[string]string{
			"-x": "-x/-f", "-x/-f": "-f", "-x/": "-x/-f", "-x/.": "-x/-f", "l/": "-x/-f",
			g.dir + "/-x": "-x/-f", ".": filepath.Base(g.dir) + "/-x/-f",
		} {
			var got bytes.Buffer
			if err := files.GetArchive(t.Context(), ref, path, false, &got); err != nil {
				t.Errorf("%q: %v", path, err)
				continue
			}
			if contents := unpackAll(t, &got); contents[want] != "f" {
				t.Errorf("%q: archive holds %q, want %q", path, contents, want)
			}
		}
		var got bytes.Buffer
		if err := files.GetArchive(t.Context(), ref, "l", false, &got); err != nil {
			t.Fatal(err)
		}
		if contents := unpackAll(t, &got); contents["l"] != "-> -x" {
			t.Errorf("a link's archive holds %q", contents)
		}
	})
}

// unpackAll maps an archive's names to contents and link targets.
func unpackAll(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	contents := map[string]string{}
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return contents
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		contents[header.Name] = string(content)
		switch header.Typeflag {
		case tar.TypeSymlink:
			contents[header.Name] = "-> " + header.Linkname
		case tar.TypeLink: // what a file becomes when a followed link to it came first
			contents[header.Name] = contents[header.Linkname]
		}
	}
}
