package images_test

import (
	"archive/tar"
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestLayers(t *testing.T) {
	for what, test := range map[string]struct {
		layers []entries
		want   map[string]string
	}{
		"files": {
			[]entries{{dir("a/"), file("a/b", "text"), file("./c", "more"), file("/d", "absolute"), link("l", "/anywhere/../../out")}},
			map[string]string{"/a/": "", "/a/b": "text", "/c": "more", "/d": "absolute", "/l": "-> /anywhere/../../out"},
		},
		"later layers win": {
			[]entries{{file("a", "1"), file("d/x", "old"), dir("e")}, {file("a", "2"), file("d/y", "new"), file("e", "no directory any more")}},
			map[string]string{"/a": "2", "/d/": "", "/d/x": "old", "/d/y": "new", "/e": "no directory any more"},
		},
		"whiteouts": {
			[]entries{{file("a", "1"), file("b", "2"), file("d/x", "3"), file("e/y", "4")}, {file(".wh.a", ""), file("d/.wh.x", ""), file(".wh.e", ""), file(".wh.never", ""), file("no/.wh.such", "")}},
			map[string]string{"/b": "2", "/d/": ""},
		},
		"whiteouts are about lower layers": {
			[]entries{{file("d/old", "1"), file("d/both", "1")}, {file("d/new", "2"), file("d/both", "2"), file(".wh.d", "")}},
			map[string]string{"/d/": "", "/d/new": "2", "/d/both": "2"},
		},
		"opaque directories": {
			[]entries{{file("d/old", "1"), file("d/sub/old", "1"), file("x", "")}, {file("d/.wh..wh..opq", ""), file("d/sub/new", "2")}, {file("d/.wh..wh.plnk", "")}},
			map[string]string{"/d/": "", "/d/sub/": "", "/d/sub/new": "2", "/x": ""},
		},
		"opaque after its entries": {
			[]entries{{file("d/old", "1")}, {file("d/new", "2"), file("d/.wh..wh..opq", "")}},
			map[string]string{"/d/": "", "/d/new": "2"},
		},
		"hard links": {
			[]entries{{file("a", "same"), hard("b", "a"), hard("/sub/c", "/a")}, {hard("d", "./b"), file(".wh.a", "")}},
			map[string]string{"/b": "same", "/sub/": "", "/sub/c": "same", "/d": "same"},
		},
		"a hard link to a symbolic link": {
			[]entries{{link("a", "nowhere"), hard("b", "a")}},
			map[string]string{"/a": "-> nowhere", "/b": "-> nowhere"},
		},
		"through symbolic links": {
			[]entries{{dir("usr/lib"), link("lib", "usr/lib"), link("abs", "/usr"), link("out", "../../../..")}, {file("lib/x", "1"), file("abs/y", "2"), file("out/z", "3"), hard("h", "lib/x")}},
			map[string]string{"/usr/": "", "/usr/lib/": "", "/usr/lib/x": "1", "/usr/y": "2", "/z": "3", "/lib": "-> usr/lib", "/abs": "-> /usr", "/out": "-> ../../../..", "/h": "1"},
		},
		"a whiteout of a symbolic link": {
			[]entries{{file("d/x", "1"), link("l", "d")}, {file(".wh.l", "")}},
			map[string]string{"/d/": "", "/d/x": "1"},
		},
		"a file becomes a directory": {
			[]entries{{file("a", "1")}, {file("a/b", "2")}},
			map[string]string{"/a/": "", "/a/b": "2"},
		},
		"devices are left out": {
			[]entries{{{Name: "null", Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 3}, {Name: "sda", Typeflag: tar.TypeBlock}, file("x", "")}},
			map[string]string{"/x": ""},
		},
		"names of the sandbox's own": {
			[]entries{{file("proc", "a file"), link("dev", "/etc"), link("sys", "nowhere"), file(".sandboxctl", "x"), link("etc/resolv.conf", "/secret"), file("etc/mtab", "kept"), file("etc/hosts", "hostile"), file("etc/passwd", "kept")}},
			map[string]string{
				"/etc/passwd": "kept", "/etc/mtab": "kept", "/etc/resolv.conf": "nameserver 192.0.0.1\n", "/etc/hosts": "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n",
				"/etc/hostname": "sandbox\n", "/.sandboxctl/guest": "", "/proc/": "", "/dev/": "", "/sys/": "",
			},
		},
		"names that are no text": {
			[]entries{{file("a\xff\xfe", "1"), file("new\nline", "2"), file("x/"+strings.Repeat("n", 255), "3")}},
			map[string]string{"/a\xff\xfe": "1", "/new\nline": "2", "/x/": "", "/x/" + strings.Repeat("n", 255): "3"},
		},
		"no layers": {nil, nil},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			image, dir, err := pull(t, imageOf(t, test.layers...))
			if err != nil {
				t.Fatal(err)
			}
			expect(t, contents(t, dir, image), test.want)
		})
	}
}

func TestHostileLayers(t *testing.T) {
	deep := strings.Repeat("d/", 2047)
	for what, test := range map[string]struct {
		layers []entries
		want   string
	}{
		"upwards":                  {[]entries{{file("../x", "")}}, "leads upwards"},
		"upwards inside":           {[]entries{{file("a/../../x", "")}}, "leads upwards"},
		"a hard link upwards":      {[]entries{{hard("x", "../../etc/shadow")}}, "leads upwards"},
		"a hard link out":          {[]entries{{hard("x", "/etc/shadow")}}, "is no file of the image"},
		"a hard link through one":  {[]entries{{link("l", "/"), hard("x", "l/etc/shadow")}}, "is no file of the image"},
		"a hard link to a tree":    {[]entries{{dir("d"), hard("x", "d")}}, "is no file of the image"},
		"a hard link to the root":  {[]entries{{hard("x", "/")}}, "is no file of the image"},
		"a whiteout of nothing":    {[]entries{{file(".wh.", "")}}, "names nothing"},
		"a whiteout upwards":       {[]entries{{file(".wh...", "")}}, "names nothing"},
		"a loop of links":          {[]entries{{link("a", "b"), link("b", "a"), file("a/x", "")}}, "too many symbolic links"},
		"a long name":              {[]entries{{file(strings.Repeat("n", 256), "")}}, "more than 255 bytes"},
		"a long path":              {[]entries{{dir(strings.Repeat("n/", 3000))}}, "longer than 4096 bytes"},
		"a deep tree":              {[]entries{{dir(deep), link("l", "/"+deep), file("l/d/d/x", "")}}, "are in one another"},
		"a long link":              {[]entries{{link("l", strings.Repeat("t", 5000))}}, "no possible target"},
		"an empty link":            {[]entries{{link("l", "")}}, "no possible target"},
		"an impossible owner":      {[]entries{{{Name: "x", Typeflag: tar.TypeReg, Uid: 1 << 33}}}, "impossible owner"},
		"a root that is no folder": {[]entries{{link("./", "/etc")}}, "root is not a directory"},
		"an unknown kind":          {[]entries{{{Name: "x", Typeflag: 'Z'}}}, "that images do not have"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			image, dir, err := pull(t, imageOf(t, test.layers...))
			if err == nil {
				t.Fatalf("it was taken: %q", contents(t, dir, image))
			}
			if plugin.KindOf(err) != plugin.KindInvalid || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v (%s), want %q", err, plugin.KindOf(err), test.want)
			}
			onlyTheLock(t, dir)
		})
	}
}

func TestDamagedLayers(t *testing.T) {
	plain := entries{file("a", strings.Repeat("text", 10_000))}.bytes(t)
	other := entries{file("a", "other")}.bytes(t)
	for what, test := range map[string]struct {
		layer v1.Layer
		want  string
	}{
		"no archive":     {newLayer(t, []byte(strings.Repeat("no tar ", 1000)), []byte(strings.Repeat("no tar ", 1000))), "tar"},
		"cut gzip":       {newLayer(t, zipped(t, plain)[:100], plain), "cut short"},
		"cut tar":        {newLayer(t, plain[:1000], plain[:1000]), "cut short"},
		"another digest": {newLayer(t, zipped(t, other), plain), "not what its digest says"},
		"bzip2":          {newLayer(t, []byte("BZh91AY&SY"), nil), "bzip2"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, dir, err := pull(t, newImage(t, v1.Config{}, test.layer))
			if plugin.KindOf(err) != plugin.KindInvalid || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v (%s), want %q", err, plugin.KindOf(err), test.want)
			}
			onlyTheLock(t, dir)
		})
	}
}

func TestCompressions(t *testing.T) {
	plain := entries{file("a", strings.Repeat("text", 10_000))}.bytes(t)
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, stored := range map[string][]byte{
		"none": plain, "gzip": zipped(t, plain), "zstd": encoder.EncodeAll(plain, nil),
	} {
		t.Run(what, func(t *testing.T) {
			image, dir, err := pull(t, newImage(t, v1.Config{}, newLayer(t, stored, plain)))
			if err != nil {
				t.Fatal(err)
			}
			expect(t, contents(t, dir, image), map[string]string{"/a": strings.Repeat("text", 10_000)})
		})
	}
}

// TestZerosTakeNoSpace pulls a layer that would fill the disk.
func TestZerosTakeNoSpace(t *testing.T) {
	const size = 48 << 20
	plain := entries{file("zeros", string(make([]byte, size)))}.bytes(t)
	image, _, err := pull(t, newImage(t, v1.Config{}, newLayer(t, zipped(t, plain), plain)))
	if err != nil {
		t.Fatal(err)
	}
	if image.Size < size || image.Allocated > 1<<20 {
		t.Errorf("the image has %d bytes and takes %d", image.Size, image.Allocated)
	}
}

func TestMetadataSurvives(t *testing.T) {
	image, dir, err := pull(t, imageOf(t, entries{
		{Name: "su", Typeflag: tar.TypeReg, Mode: 0o6755, Uid: 1234, Gid: 4_000_000_000},
		{Name: "s", Typeflag: tar.TypeDir, Mode: 0o1777, Uid: 5, Gid: 6},
	}))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"su": "106755 1234:4000000000", "s": "41777 5:6"} {
		inode := lookup(t, dir, image, name)
		if got := fmt.Sprintf("%o %d:%d", inode.Mode(), inode.UID(), inode.GID()); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
