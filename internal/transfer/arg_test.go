package transfer

import (
	"strings"
	"testing"
)

func TestParseArg(t *testing.T) {
	long := strings.Repeat("x", 4096)
	tests := []struct {
		in      string
		windows bool
		want    Arg
		wantErr string
	}{
		{in: "box:/a", want: Arg{SideSandbox, "box", "/a"}},
		{in: "box:a/b", want: Arg{SideSandbox, "box", "a/b"}},
		{in: "box:.", want: Arg{SideSandbox, "box", "."}},
		{in: "box:", want: Arg{SideSandbox, "box", "."}},
		{in: "Box_1.b:/a", want: Arg{SideSandbox, "Box_1.b", "/a"}},
		{in: "b x:/a", wantErr: "not the name or id"},
		{in: "_b:/a", wantErr: "write ./_b:/a for a local file"},
		{in: "box:/a:b", want: Arg{SideSandbox, "box", "/a:b"}},
		{in: "box::", want: Arg{SideSandbox, "box", ":"}},
		{in: "box:/a/", want: Arg{SideSandbox, "box", "/a/"}},
		{in: "box:/a/.", want: Arg{SideSandbox, "box", "/a/."}},
		{in: "box:-rf", want: Arg{SideSandbox, "box", "-rf"}},
		{in: "box:a\nb \xff", want: Arg{SideSandbox, "box", "a\nb \xff"}},
		{in: "sb-abcdefghij23:/a", want: Arg{SideSandbox, "sb-abcdefghij23", "/a"}},
		{in: "0-a:x", want: Arg{SideSandbox, "0-a", "x"}},
		{in: "c:/x", want: Arg{SideSandbox, "c", "/x"}},
		{in: "box:" + long, want: Arg{SideSandbox, "box", long}},
		{in: "-", want: Arg{Side: SideStream}},
		{in: "./-", want: Arg{SideLocal, "", "./-"}},
		{in: "-x", want: Arg{SideLocal, "", "-x"}},
		{in: "a", want: Arg{SideLocal, "", "a"}},
		{in: ".", want: Arg{SideLocal, "", "."}},
		{in: "./a:b", want: Arg{SideLocal, "", "./a:b"}},
		{in: "/x/a:b", want: Arg{SideLocal, "", "/x/a:b"}},
		{in: "x/a:b", want: Arg{SideLocal, "", "x/a:b"}},
		{in: `C:\x\y`, windows: true, want: Arg{SideLocal, "", "C:/x/y"}},
		{in: `c:/x`, windows: true, want: Arg{SideLocal, "", "c:/x"}},
		{in: `dir\a:b`, windows: true, want: Arg{SideLocal, "", "dir/a:b"}},
		{in: `\\host\share\x`, windows: true, want: Arg{SideLocal, "", "//host/share/x"}},
		{in: `box:/x`, windows: true, want: Arg{SideSandbox, "box", "/x"}},

		{in: "", wantErr: "empty"},
		{in: ":", wantErr: "no sandbox before the colon"},
		{in: ":/a", wantErr: "no sandbox before the colon"},
		{in: "-box:/a", wantErr: "not the name or id"},
		{in: "b x:/a", wantErr: "not the name or id"},
		{in: "box:/a\x00b", wantErr: "NUL"},
		{in: "a\x00", wantErr: "NUL"},
		{in: "box:" + long + "x", wantErr: "longer than 4096"},
		{in: `c:x`, windows: true, wantErr: "start at its root"},
		{in: `c:`, windows: true, wantErr: "start at its root"},
	}
	for _, tt := range tests {
		got, err := parseArg(tt.in, tt.windows)
		if tt.wantErr == "" {
			if err != nil || got != tt.want {
				t.Errorf("parseArg(%.40q) = %+v, %v; want %+v", tt.in, got, err, tt.want)
			}
			continue
		}
		if ClassOf(err) != ClassUsage || !strings.Contains(err.Error(), tt.wantErr) {
			t.Errorf("parseArg(%.40q) error = %v (%q); want a usage error with %q", tt.in, err, ClassOf(err), tt.wantErr)
		}
	}
}

func TestParsePair(t *testing.T) {
	for _, ok := range [][2]string{{"a", "b:c"}, {"b:c", "a"}, {"a:b", "c:d"}, {"-", "b:c"}, {"b:c", "-"}} {
		src, dst, err := ParsePair(ok[0], ok[1])
		if err != nil || src.String() != ok[0] || dst.String() != ok[1] {
			t.Errorf("ParsePair(%q) = %v, %v, %v", ok, src, dst, err)
		}
	}
	for _, bad := range [][2]string{{"a", "b"}, {"-", "-"}, {"a", "-"}, {"-", "a"}, {"", "b:c"}, {"b:c", ""}} {
		if _, _, err := ParsePair(bad[0], bad[1]); ClassOf(err) != ClassUsage {
			t.Errorf("ParsePair(%q) = %v; want a usage error", bad, err)
		}
	}
}

func FuzzParseArg(f *testing.F) {
	for _, seed := range []string{"box:/a", "./a:b", "-", "", ":", "c:\\x", "a\x00", "box:/a/."} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, s string, windows bool) {
		arg, err := parseArg(s, windows)
		if err != nil {
			if ClassOf(err) != ClassUsage {
				t.Fatalf("parseArg(%q) = %v, not a usage error", s, err)
			}
			return
		}
		if strings.IndexByte(arg.Path, 0) >= 0 || (arg.Path == "") != (arg.Side == SideStream) {
			t.Fatalf("parseArg(%q) accepted the path %q", s, arg.Path)
		}
		if !windows && arg.String() != s {
			t.Fatalf("parseArg(%q) reads back as %q", s, arg.String())
		}
	})
}
