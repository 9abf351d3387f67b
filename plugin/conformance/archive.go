package conformance

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

var archiveOnly = []Need{needsArchive}

func archiveCases() []Case {
	return []Case{
		{
			ID: "archive.put", Group: GroupArchive, Needs: archiveOnly, run: checkPut,
			Reason: "everything arrives: dot files, empty directories, links, modes and times",
			Source: "reports 49, 52, 53",
		},
		{
			ID: "archive.get", Group: GroupArchive, Needs: archiveOnly, run: checkGet,
			Reason: "everything comes back, under names that start with the path's own",
			Source: "reports 49, 52, 53",
		},
		{
			ID: "archive.follow", Group: GroupArchive, Needs: archiveOnly, run: checkFollow,
			Reason: "links stay links unless they are to be followed",
			Source: "reports 49",
		},
		{
			ID: "archive.one-file", Group: GroupArchive, Needs: archiveOnly, run: checkOneFile,
			Reason: "a single file is an archive with one entry",
			Source: "reports 53",
		},
		{
			ID: "archive.awkward-names", Group: GroupArchive, Needs: archiveOnly, run: checkArchiveNames,
			Reason: "names are bytes in archives, too",
			Source: "airflow 68",
		},
	}
}

// entry is what an archive holds under a name.
type entry struct {
	kind    byte
	content string // or a link's target
	mode    int64
	time    int64
}

// archiveOf writes a tar stream.
func archiveOf(entries map[string]entry) *bytes.Buffer {
	var stream bytes.Buffer
	w := tar.NewWriter(&stream)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name]
		header := &tar.Header{Name: name, Typeflag: e.kind, Mode: e.mode, ModTime: time.Unix(e.time, 0)}
		switch e.kind {
		case tar.TypeReg:
			header.Size = int64(len(e.content))
		case tar.TypeSymlink:
			header.Linkname = e.content
		}
		// Writing to memory fails only for headers that tar cannot hold; there are none.
		_ = w.WriteHeader(header)
		if e.kind == tar.TypeReg {
			_, _ = io.WriteString(w, e.content)
		}
	}
	_ = w.Close()
	return &stream
}

// readArchive reads a tar stream; a directory's name loses its slash.
func (t *T) readArchive(stream io.Reader) map[string]entry {
	entries := map[string]entry{}
	for r := tar.NewReader(stream); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatalf("the archive cannot be read: %v", err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("entry %q of the archive cannot be read: %v", header.Name, err)
		}
		e := entry{kind: header.Typeflag, content: string(content), mode: header.Mode & 0o777, time: header.ModTime.Unix()}
		switch header.Typeflag {
		case tar.TypeSymlink:
			e.content = header.Linkname
		case tar.TypeLink: // a file that the archive holds already
			e = entries[strings.TrimPrefix(header.Linkname, "./")]
		}
		name := strings.TrimPrefix(strings.TrimSuffix(header.Name, "/"), "./")
		if _, twice := entries[name]; twice {
			t.Errorf("the archive holds %q twice", name)
		}
		entries[name] = e
	}
}

func (b *box) get(path string, follow bool) map[string]entry {
	var stream bytes.Buffer
	if err := b.t.driver().GetArchive(b.t.ctx, b.ref, b.path(path), follow, &stream); err != nil {
		b.t.Fatalf("archiving %s: %v", path, err)
	}
	return b.t.readArchive(&stream)
}

// sampleTree is what copies tend to lose.
func sampleTree() map[string]entry {
	const then = 1577934245
	return map[string]entry{
		"tree/":                            {kind: tar.TypeDir, mode: 0o755, time: then},
		"tree/file":                        {kind: tar.TypeReg, content: "content\n", mode: 0o644, time: then},
		"tree/binary":                      {kind: tar.TypeReg, content: allBytes(), mode: 0o600, time: then},
		"tree/tool":                        {kind: tar.TypeReg, content: "#!/bin/sh\n", mode: 0o755, time: then},
		"tree/readonly":                    {kind: tar.TypeReg, content: "r", mode: 0o444, time: then},
		"tree/nothing":                     {kind: tar.TypeReg, mode: 0o644, time: then},
		"tree/.git/":                       {kind: tar.TypeDir, mode: 0o755, time: then},
		"tree/.git/HEAD":                   {kind: tar.TypeReg, content: "ref", mode: 0o644, time: then},
		"tree/.gitignore":                  {kind: tar.TypeReg, content: "*\n", mode: 0o644, time: then},
		"tree/node_modules/":               {kind: tar.TypeDir, mode: 0o755, time: then},
		"tree/node_modules/a/":             {kind: tar.TypeDir, mode: 0o755, time: then},
		"tree/node_modules/a/index.js":     {kind: tar.TypeReg, content: "x", mode: 0o644, time: then},
		"tree/empty/":                      {kind: tar.TypeDir, mode: 0o711, time: then},
		"tree/link":                        {kind: tar.TypeSymlink, content: "file", mode: 0o777, time: then},
		"tree/link-to-dir":                 {kind: tar.TypeSymlink, content: "node_modules", mode: 0o777, time: then},
		"tree/dangling":                    {kind: tar.TypeSymlink, content: "no/where", mode: 0o777, time: then},
		"tree/" + strings.Repeat("d", 120): {kind: tar.TypeReg, content: "long name", mode: 0o644, time: then},
	}
}

func (b *box) put(dir string, entries map[string]entry) {
	if err := b.t.driver().PutArchive(b.t.ctx, b.ref, b.path(dir), archiveOf(entries)); err != nil {
		b.t.Fatalf("unpacking into %s: %v", dir, err)
	}
}

func checkPut(t *T) {
	box := t.shared()
	box.must("rm -rf new")
	tree := sampleTree()
	box.put("new/dir", tree)
	names, paths := slices.Sorted(maps.Keys(tree)), []string{}
	for _, name := range names {
		paths = append(paths, "new/dir/"+strings.TrimSuffix(name, "/"))
	}
	out := box.must(`for f; do
	if [ -L "$f" ]; then printf 'link '; readlink "$f"; else stat -c %a "$f"; fi
	if [ -f "$f" ] && [ ! -L "$f" ]; then stat -c %Y "$f"; cat "$f"; fi
	printf '\000'
done | base64`, paths...)
	decoded, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(out, "\n", ""))
	if err != nil {
		t.Fatalf("the guest's base64 says %s", short(out))
	}
	rest := string(decoded)
	for _, name := range names {
		e := tree[name]
		want := octalMode(e.mode) + "\n"
		switch e.kind {
		case tar.TypeSymlink:
			want = "link " + e.content + "\n"
		case tar.TypeReg:
			want += unix(time.Unix(e.time, 0)) + "\n" + e.content
		}
		want += "\x00"
		got := rest[:min(len(rest), len(want))]
		t.wantText("mode, time and content of "+name, got, want)
		rest = rest[len(got):]
	}
	got := strings.TrimSpace(box.must("find new/dir/tree | wc -l"))
	t.wantText("the number of files", got, itoa(len(tree)))
}

func checkGet(t *T) {
	box := t.shared()
	box.must("rm -rf dir")
	tree := sampleTree()
	box.put("dir", tree)
	got := box.get("dir/tree", false)
	for name, want := range tree {
		e, ok := got[strings.TrimSuffix(name, "/")]
		if !ok {
			t.Errorf("%s is not in the archive", name)
			continue
		}
		if e.kind != want.kind || e.content != want.content {
			t.Errorf("%s came back as type %c with %s, want type %c with %s", name, e.kind, short(e.content), want.kind, short(want.content))
		}
		if want.kind != tar.TypeSymlink && e.mode != want.mode {
			t.Errorf("%s came back with mode %o, want %o", name, e.mode, want.mode)
		}
		if want.kind == tar.TypeReg && e.time != want.time {
			t.Errorf("%s came back with the time %d, want %d", name, e.time, want.time)
		}
	}
	if len(got) != len(tree) {
		t.Errorf("the archive has %d entries, want %d", len(got), len(tree))
	}
}

func checkFollow(t *T) {
	box := t.shared()
	box.must("rm -rf dir; mkdir -p dir/sub; printf content >dir/file; printf inside >dir/sub/file; ln -s file dir/link; ln -s sub dir/sublink; ln -s dir root")
	kept := box.get("dir", false)
	if e := kept["dir/link"]; e.kind != tar.TypeSymlink || e.content != "file" {
		t.Errorf("without follow the link is type %c with %s", e.kind, short(e.content))
	}
	followed := box.get("dir", true)
	if e := followed["dir/link"]; e.kind != tar.TypeReg || e.content != "content" {
		t.Errorf("with follow the link is type %c with %s", e.kind, short(e.content))
	}
	if e := followed["dir/sublink/file"]; e.content != "inside" {
		t.Errorf("with follow the linked directory holds %s", short(e.content))
	}
	if e := box.get("root", false)["root"]; e.kind != tar.TypeSymlink {
		t.Errorf("without follow a link at the path itself is type %c", e.kind)
	}
	if e := box.get("root", true)["root/file"]; e.content != "content" {
		t.Errorf("with follow a link at the path itself holds %s", short(e.content))
	}
}

func checkOneFile(t *T) {
	box := t.shared()
	box.must("printf content >file")
	got := box.get("file", false)
	if len(got) != 1 || got["file"].content != "content" {
		t.Errorf("the archive of a file holds %d entries and %s", len(got), short(got["file"].content))
	}
	box.put("single", map[string]entry{"f": {kind: tar.TypeReg, content: "one", mode: 0o644}})
	t.wantText("a single unpacked file", box.must("cat single/f"), "one")
}

func checkArchiveNames(t *T) {
	box := t.shared()
	box.must("rm -rf names")
	entries := map[string]entry{"names/": {kind: tar.TypeDir, mode: 0o755}}
	for _, name := range awkwardNames {
		entries["names/"+name] = entry{kind: tar.TypeReg, content: "content of " + name, mode: 0o644}
	}
	box.put(".", entries)
	t.wantText("the number of files", box.must(`set -- names/* names/.[!.]* names/..?*; printf %s $#`), itoa(len(awkwardNames)))
	got := box.get("names", false)
	for _, name := range awkwardNames {
		t.wantText("the file "+short(name), got["names/"+name].content, "content of "+name)
	}
	if t.info().Capabilities.Files.Files {
		t.sameNames(box, "names", awkwardNames)
	}
}

// archiveErrors are the calls on paths that cannot be archived or unpacked into.
func (b *box) archiveErrors() {
	t := b.t
	get := func(name string) error {
		return t.driver().GetArchive(t.ctx, b.ref, b.path(name), false, io.Discard)
	}
	t.wantPath("archiving a missing path", get("missing"), plugin.PathMissing)
	put := func(name string) error {
		return t.driver().PutArchive(t.ctx, b.ref, b.path(name), archiveOf(map[string]entry{"f": {kind: tar.TypeReg}}))
	}
	t.wantPath("unpacking into a file", put("file"), plugin.PathNotDirectory)
	t.wantPath("unpacking below a file", put("file/below"), plugin.PathNotDirectory)
}
