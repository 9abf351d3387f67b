package spec

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "512": 512, "64k": 64 << 10, "64K": 64 << 10, "64kb": 64 << 10, "2GiB": 2 << 30, "1.5g": 3 << 29, "512m": 512 << 20, "1t": 1 << 40, " 7b ": 7,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "k", "lots", "-1", "1e3", "0x10", "NaN", "inf", "1 k k", "9999999t", "1_000", "+5"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", text, got)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, seed := range []string{"1", "1.5g", "2GiB", "-", "9e9t"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if size, err := ParseSize(text); err == nil && size > 1<<53 {
			t.Errorf("ParseSize(%q) = %d", text, size)
		}
	})
}

func TestFormatSize(t *testing.T) {
	for size, want := range map[uint64]string{0: "0B", 1023: "1023B", 1024: "1.0KB", 1536: "1.5KB", 5 << 20: "5.0MB", 3 << 40: "3.0TB", 5 << 50: "5120.0TB"} {
		if got := FormatSize(size); got != want {
			t.Errorf("FormatSize(%d) = %q, want %q", size, got, want)
		}
	}
}

func TestParseEnv(t *testing.T) {
	here := map[string]string{"HERE": "v=1", "EMPTY": ""}
	lookup := func(name string) (string, bool) { value, ok := here[name]; return value, ok }
	got, err := ParseEnv([]string{"A=1", "B==x=", "A=2", "HERE", "EMPTY", "C="}, lookup)
	want := map[string]string{"A": "2", "B": "=x=", "HERE": "v=1", "EMPTY": "", "C": ""}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "=x", "NOT_HERE", "A B=1", "A=\x00", "\xff=1"} {
		if got, err := ParseEnv([]string{bad}, lookup); err == nil {
			t.Errorf("%q became %v", bad, got)
		}
	}
}

func TestReadEnvFile(t *testing.T) {
	content := "# comment\n\nA=1\r\n  # another\nB=\"quoted # not a comment\"\nC\n"
	got, err := ReadEnvFile(strings.NewReader(content), "f")
	if want := []string{"A=1", `B="quoted # not a comment"`, "C"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := ReadEnvFile(strings.NewReader("A=1\n=broken\n"), "f"); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
}

func TestParseNetwork(t *testing.T) {
	policy, err := ParseNetwork("", []string{"B.example.com.", "*.a.example.com", "b.example.com"}, []string{"203.0.113.0/24", "198.51.100.7", "2001:db8::/32"})
	if err != nil || policy.Mode != plugin.NetworkAllow ||
		!slices.Equal(policy.Hosts, []string{"*.a.example.com", "b.example.com"}) ||
		!slices.Equal(policy.CIDRs, []string{"198.51.100.7/32", "2001:db8::/32", "203.0.113.0/24"}) {
		t.Errorf("got %+v, %v", policy, err)
	}
	for mode, want := range map[string]plugin.NetworkMode{"": plugin.NetworkNone, "none": plugin.NetworkNone, "open": plugin.NetworkOpen} {
		if got, err := ParseNetwork(mode, nil, nil); err != nil || got.Mode != want {
			t.Errorf("%q: %v, %v", mode, got, err)
		}
	}
	if got, err := ParseNetwork("allow", []string{"a.example.com"}, nil); err != nil || got.Mode != plugin.NetworkAllow {
		t.Errorf("allow: %v, %v", got, err)
	}
	if got, err := ParseNetwork("allow", nil, nil); err == nil {
		t.Errorf("allow without a list became %v", got)
	}
	for _, host := range []string{
		"http://a.example.com", "a.example.com:443", "a.example.com/x", "*", "*.*.example.com", "a.*.com", "localhost", "10.0.0.1", "::1", "", ".", "-a.com", "a..com",
		"user@a.com", strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 130) + "com", "é.com", "a com",
	} {
		if got, err := ParseNetwork("", []string{host}, nil); err == nil {
			t.Errorf("host %q became %v", host, got)
		}
	}
	for _, cidr := range []string{"10.0.0.1/8", "0.0.0.0/0", "::/0", "10.0.0.0/33", "10.0.0", "", "fe80::1%eth0", "a.example.com"} {
		if got, err := ParseNetwork("", nil, []string{cidr}); err == nil {
			t.Errorf("range %q became %v", cidr, got)
		}
	}
	for _, mode := range []string{"some", "open"} {
		if got, err := ParseNetwork(mode, []string{"a.example.com"}, nil); err == nil {
			t.Errorf("mode %q with a list became %v", mode, got)
		}
	}
}

func TestCanonicalHoldsNoSecretAndComparesEverything(t *testing.T) {
	base := func() *Spec {
		return &Spec{Image: "i", Env: map[string]string{"TOKEN": "hunter2"}, TTL: time.Hour, Network: plugin.NetworkPolicy{Mode: plugin.NetworkNone}}
	}
	first, err := base().Canonical("key")
	if err != nil || strings.Contains(string(first), "hunter2") {
		t.Fatalf("got %s, %v", first, err)
	}
	again, _ := base().Canonical("key")
	if difference := Difference(first, again); difference != "" || string(first) != string(again) {
		t.Errorf("equal requests differ: %s", difference)
	}
	for name, change := range map[string]struct {
		edit func(*Spec)
		want string
	}{
		"image":  {func(s *Spec) { s.Image = "j" }, `image is "i", not "j"`},
		"secret": {func(s *Spec) { s.Env["TOKEN"] = "other" }, "env differs in TOKEN"},
		"new":    {func(s *Spec) { s.Env["MORE"] = "" }, "env differs in MORE"},
		"ttl":    {func(s *Spec) { s.TTL = 0 }, "ttl is"},
		"cpus":   {func(s *Spec) { s.CPUs = 1.5 }, "cpus is unset, not 1.5"},
		"memory": {func(s *Spec) { s.MemoryBytes = 1 }, "memory_bytes"},
		"disk":   {func(s *Spec) { s.DiskBytes = 1 << 30 }, "disk_bytes is unset, not 1073741824"},
		"pids":   {func(s *Spec) { s.PIDs = 64 }, "pids is unset, not 64"},
		"hosts":  {func(s *Spec) { s.Network = plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: []string{"a.b"}} }, "network"},
		"option": {func(s *Spec) { s.Options = map[string]string{"k": "v"} }, "options"},
		"idle":   {func(s *Spec) { s.IdleTimeout = time.Minute }, "idle_timeout"},
		"labels": {func(s *Spec) { s.Labels = map[string]string{"a": "b"} }, "labels"},
	} {
		changed := base()
		change.edit(changed)
		other, err := changed.Canonical("key")
		if err != nil {
			t.Fatal(err)
		}
		got := Difference(first, other)
		if !strings.Contains(got, change.want) || strings.Contains(got, "hunter2") || strings.Contains(got, "other") {
			t.Errorf("%s: %q does not say %q", name, got, change.want)
		}
	}
	if difference := Difference([]byte("{broken"), first); difference == "" {
		t.Error("a record that cannot be read is taken for equal")
	}
}
