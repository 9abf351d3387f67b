package transfer

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlan is docker's table as a whole: sources x destinations x endings.
func TestPlan(t *testing.T) {
	const (
		missing = KindMissing
		file    = KindFile
		dir     = KindDir
		link    = KindSymlink
		other   = KindOther
	)
	tests := []struct {
		src     string
		srcKind Kind
		dst     string
		dstKind Kind
		want    Target
		wantErr string
	}{
		{"/s/f", file, "/d/x", missing, Target{"/d", "x"}, ""},
		{"/s/f", file, "/d/x/", missing, Target{}, "must exist"},
		{"/s/f", file, "/d/x/.", missing, Target{}, "must exist"},
		{"/s/f", file, "/d/x", file, Target{"/d", "x"}, ""},
		{"/s/f", file, "/d/x/", file, Target{}, "not a directory"},
		{"/s/f", file, "/d/x/.", file, Target{}, "not a directory"},
		{"/s/f", file, "/d/x", dir, Target{"/d/x", "f"}, ""},
		{"/s/f", file, "/d/x/", dir, Target{"/d/x", "f"}, ""},
		{"/s/f", file, "/d/x/.", dir, Target{"/d/x", "f"}, ""},
		{"/s/f", file, "/d/x", other, Target{}, "neither a regular file nor a directory"},
		{"/s/f/", file, "/d/x", dir, Target{}, "not a directory"},
		{"/s/f/.", file, "/d/x", dir, Target{}, "not a directory"},

		{"/s/a", dir, "/d/x", missing, Target{"/d", "x"}, ""},
		{"/s/a", dir, "/d/x/", missing, Target{"/d", "x"}, ""},
		{"/s/a", dir, "/d/x/.", missing, Target{"/d", "x"}, ""},
		{"/s/a", dir, "/d/x", file, Target{}, "onto a file"},
		{"/s/a", dir, "/d/x/", file, Target{}, "not a directory"},
		{"/s/a", dir, "/d/x", dir, Target{"/d/x", "a"}, ""},
		{"/s/a", dir, "/d/x/", dir, Target{"/d/x", "a"}, ""},
		{"/s/a", dir, "/d/x/.", dir, Target{"/d/x", "a"}, ""},
		{"/s/a", dir, "/d/x", other, Target{}, "neither a regular file nor a directory"},
		{"/s/a/", dir, "/d/x", missing, Target{"/d", "x"}, ""},
		{"/s/a/", dir, "/d/x", dir, Target{"/d/x", "a"}, ""},
		{"/s/a/", dir, "/d/x", file, Target{}, "onto a file"},
		{"/s/a/.", dir, "/d/x", missing, Target{"/d", "x"}, ""},
		{"/s/a/.", dir, "/d/x/", missing, Target{"/d", "x"}, ""},
		{"/s/a/.", dir, "/d/x", file, Target{}, "onto a file"},
		{"/s/a/.", dir, "/d/x", dir, Target{"/d/x", ""}, ""},
		{"/s/a/.", dir, "/d/x/", dir, Target{"/d/x", ""}, ""},
		{"/s/a/./", dir, "/d/x", dir, Target{"/d/x", ""}, ""},

		{"/s/l", link, "/d/x", missing, Target{"/d", "x"}, ""},
		{"/s/l", link, "/d/x", dir, Target{"/d/x", "l"}, ""},
		{"/s/l", link, "/d/x", file, Target{"/d", "x"}, ""},
		{"/s/n", missing, "/d/x", dir, Target{}, "no such file"},
		{"/s/p", other, "/d/x", dir, Target{}, "a device, a fifo or a socket"},

		{"/", dir, "/d/x", dir, Target{"/d/x", ""}, ""},
		{".", dir, "/d/x", dir, Target{"/d/x", ""}, ""},
		{"..", dir, "/d/x", dir, Target{"/d/x", ""}, ""},
		{"a/..", dir, "/d/x", dir, Target{"/d/x", ""}, ""},
		{".", dir, "/d/x", missing, Target{"/d", "x"}, ""},
		{"f", file, "x", missing, Target{".", "x"}, ""},
		{"f", file, ".", dir, Target{".", "f"}, ""},
		{"./f", file, "./", dir, Target{".", "f"}, ""},
		{"f", file, "/", dir, Target{"/", "f"}, ""},
		{"f", file, "/x", missing, Target{"/", "x"}, ""},
		{"f", file, "//x", missing, Target{"/", "x"}, ""},
		{"f", file, "d/../x", missing, Target{"d/..", "x"}, ""},
		{"a", dir, "C:/x", missing, Target{"C:/", "x"}, ""},
		{"f\n", file, "/d", dir, Target{"/d", "f\n"}, ""},
	}
	for _, tt := range tests {
		src := Endpoint{Arg: Arg{Side: SideLocal, Path: tt.src}, Info: Info{Kind: tt.srcKind}}
		dst := Endpoint{Arg: Arg{SideSandbox, "box", tt.dst}, Info: Info{Kind: tt.dstKind}}
		checkPlan(t, src, dst, tt.want, tt.wantErr)
		src.Arg, dst.Arg = Arg{SideSandbox, "box", tt.src}, Arg{Side: SideLocal, Path: tt.dst}
		checkPlan(t, src, dst, tt.want, tt.wantErr)
		dst.Arg = Arg{SideSandbox, "other", tt.dst}
		checkPlan(t, src, dst, tt.want, tt.wantErr)
	}
}

func checkPlan(t *testing.T, src, dst Endpoint, want Target, wantErr string) {
	t.Helper()
	got, err := Plan(src, dst)
	if wantErr == "" {
		if err != nil || got != want {
			t.Errorf("Plan(%v %d, %v %d) = %+v, %v; want %+v", src.Arg, src.Info.Kind, dst.Arg, dst.Info.Kind, got, err, want)
		}
		return
	}
	if ClassOf(err) != ClassPath || !strings.Contains(err.Error(), wantErr) {
		t.Errorf("Plan(%v %d, %v %d) error = %v; want a path error with %q", src.Arg, src.Info.Kind, dst.Arg, dst.Info.Kind, err, wantErr)
	}
}

func TestPlanParentMissing(t *testing.T) {
	dst := Endpoint{Arg: Arg{SideSandbox, "box", "/no/x"}, ParentMissing: true}
	for _, kind := range []Kind{KindFile, KindDir} {
		checkPlan(t, Endpoint{Arg: Arg{Path: "s"}, Info: Info{Kind: kind}}, dst, Target{}, "does not exist; create it first")
	}
}

func TestPlanIntoItself(t *testing.T) {
	dir := Info{Kind: KindDir}
	plan := func(src, dst, dstBox string, kind Kind) error {
		_, err := Plan(Endpoint{Arg: Arg{SideSandbox, "box", src}, Info: dir},
			Endpoint{Arg: Arg{SideSandbox, dstBox, dst}, Info: Info{Kind: kind}})
		return err
	}
	for _, dst := range []string{"/a", "/a/", "/a/b", "/x/../a/b"} {
		if err := plan("/a", dst, "box", KindDir); err == nil || !strings.Contains(err.Error(), "into itself") {
			t.Errorf("copy of /a to %s: %v", dst, err)
		}
		if err := plan("/a", dst, "other", KindDir); err != nil {
			t.Errorf("copy of /a to %s of another sandbox: %v", dst, err)
		}
	}
	if err := plan("/a", "/ab", "box", KindMissing); err != nil {
		t.Error(err)
	}
}

func TestPlanStream(t *testing.T) {
	stream := Endpoint{Arg: Arg{Side: SideStream}}
	box := func(kind Kind) Endpoint {
		return Endpoint{Arg: Arg{SideSandbox, "box", "/d/"}, Info: Info{Kind: kind}}
	}
	checkPlan(t, stream, box(KindDir), Target{Dir: "/d"}, "")
	checkPlan(t, stream, box(KindMissing), Target{}, "existing directory")
	checkPlan(t, stream, box(KindFile), Target{}, "not a directory")
	checkPlan(t, box(KindDir), stream, Target{}, "")
	checkPlan(t, box(KindMissing), stream, Target{}, "no such file")
}

// TestDockerTable copies for real, by way of StatSource, StatDest, Plan, Pack
// and Unpack, and looks at what came of it. In every case the source is f (a
// file) or a (a directory with the file in it), the destination x.
func TestDockerTable(t *testing.T) {
	tests := []struct {
		src, have, dst string
		want           string // the file that must hold the source's bytes
		wantErr        string
	}{
		{"f", "", "x", "x", ""},
		{"f", "", "x/", "", "must exist"},
		{"f", "", "no/x", "", "create it first"},
		{"f", "x", "x", "x", ""},
		{"f", "x", "x/", "", "not a directory"},
		{"f", "x", "x/y", "", "create it first"},
		{"f", "x/", "x", "x/f", ""},
		{"f", "x/", "x/", "x/f", ""},
		{"f", "x/", "x/.", "x/f", ""},
		{"f", "x/f", "x", "x/f", ""},
		{"f", "x/f/", "x", "", "a directory is in the way"},
		{"f/", "", "x", "", "not a directory"},
		{"f", "x@real", "x", "real", ""},
		{"f", "x@gone", "x", "gone", ""},
		{"f", "x@y/,y/", "x", "y/f", ""},
		{"f", "x@x", "x", "", "too many levels"},
		{"a", "", "x", "x/f", ""},
		{"a", "", "x/", "x/f", ""},
		{"a", "", "no/x", "", "create it first"},
		{"a", "x", "x", "", "onto a file"},
		{"a", "x/", "x", "x/a/f", ""},
		{"a", "x/", "x/", "x/a/f", ""},
		{"a/", "x/", "x", "x/a/f", ""},
		{"a/.", "x/", "x", "x/f", ""},
		{"a/.", "", "x", "x/f", ""},
		{"a/.", "x", "x", "", "onto a file"},
		{"a", "x/a", "x", "", "in the way of a directory"},
		{"a", "x/a/f", "x", "x/a/f", ""},
		{"al", "", "x", "", "symbolic link"},
		{"al/", "", "x", "x/f", ""},
		{"al/.", "x/", "x", "x/f", ""},
		{"no", "", "x", "", "no such file"},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.src+" to "+tt.dst+" having "+tt.have, "/", "|"), func(t *testing.T) {
			tmp := t.TempDir()
			src, dst := filepath.Join(tmp, "src"), filepath.Join(tmp, "dst")
			write(t, filepath.Join(src, "f"), "new")
			write(t, filepath.Join(src, "a", "f"), "new")
			symlink(t, "a", filepath.Join(src, "al"))
			if err := os.Mkdir(dst, 0o755); err != nil {
				t.Fatal(err)
			}
			for _, have := range strings.Split(tt.have, ",") {
				prepare(t, dst, have)
			}
			err := localCopy(t, src+"/"+tt.src, dst+"/"+tt.dst)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error = %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(filepath.Join(dst, tt.want)); string(got) != "new" {
				t.Errorf("%s holds %q, %v", tt.want, got, err)
			}
		})
	}
}

// prepare makes "name" a file, "name/" a directory and "name@target" a link.
func prepare(t *testing.T, dir, what string) {
	t.Helper()
	switch name, target, isLink := strings.Cut(what, "@"); {
	case what == "":
	case isLink:
		symlink(t, strings.TrimSuffix(target, "/"), filepath.Join(dir, name))
	case strings.HasSuffix(what, "/"):
		if err := os.MkdirAll(filepath.Join(dir, what), 0o755); err != nil {
			t.Fatal(err)
		}
	default:
		write(t, filepath.Join(dir, what), "old")
	}
}

// localCopy is what cp does, with this machine on both sides.
func localCopy(t *testing.T, src, dst string) error {
	t.Helper()
	ctx := t.Context()
	from, err := StatSource(ctx, Local{}, Arg{Path: src}, false)
	if err != nil {
		return err
	}
	to, err := StatDest(ctx, Local{}, Arg{Path: dst})
	if err != nil {
		return err
	}
	target, err := Plan(from, to)
	if err != nil {
		return err
	}
	return pipe(
		func(w io.Writer) error {
			_, err := Pack(ctx, w, from.Path, PackOptions{Name: "top"})
			return err
		},
		func(r io.Reader) error {
			_, err := Unpack(ctx, r, target, UnpackOptions{})
			return err
		})
}

// pipe runs both ends of a stream as the command line does.
func pipe(send func(io.Writer) error, receive func(io.Reader) error) error {
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := send(w)
		w.CloseWithError(err)
		sent <- err
	}()
	err := receive(r)
	r.CloseWithError(errors.New("the receiver stopped"))
	if sendErr := <-sent; err == nil {
		return sendErr
	}
	return err
}

type failingStater struct{ err error }

func (s failingStater) Stat(context.Context, string, bool) (Info, error) { return Info{}, s.err }

// TestStatPassesDriverErrorsOn: a sandbox that is gone is not a missing path.
func TestStatPassesDriverErrorsOn(t *testing.T) {
	gone := errors.New("the sandbox is gone")
	arg := Arg{SideSandbox, "box", "/x"}
	if _, err := StatSource(t.Context(), failingStater{gone}, arg, false); !errors.Is(err, gone) {
		t.Error(err)
	}
	if _, err := StatDest(t.Context(), failingStater{gone}, arg); !errors.Is(err, gone) {
		t.Error(err)
	}
}
