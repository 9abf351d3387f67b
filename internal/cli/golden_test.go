package cli_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// updateGolden rewrites testdata/golden: go test ./internal/cli -run TestPlain -update
var updateGolden = flag.Bool("update", false, "rewrite the golden files")

// volatile is what differs from run to run, and what stands for it in golden files.
var volatile = []struct {
	pattern *regexp.Regexp
	stable  string
}{
	{regexp.MustCompile(`sb-[a-z2-7]{12}`), "sb-aaaaaaaaaaaa"},
	{regexp.MustCompile(`"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z"`), `"2026-01-02T03:04:05Z"`},
	{regexp.MustCompile(`"(duration_ms|seconds|size|size_bytes|freed_bytes)":[0-9.e-]+`), `"$1":7`},
	{regexp.MustCompile(`sha256:[0-9a-f]{64}`), "sha256:0"},
	{regexp.MustCompile(`started in [0-9]+ ms`), "started in 7 ms"},
	{regexp.MustCompile(`"os":"[^"]+","arch":"[^"]+","go":"[^"]+"`), `"os":"linux","arch":"amd64","go":"go1"`},
}

// scriptGolden compares the last stdout, one JSON object, with a file in
// testdata/golden: golden exec.json.
func scriptGolden(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: golden FILE")
	}
	line := ts.ReadFile("stdout")
	for _, name := range []string{"DRIVER", "WORK"} {
		line = strings.ReplaceAll(line, ts.Getenv(name), "$"+name)
	}
	for _, v := range volatile {
		line = v.pattern.ReplaceAllString(line, v.stable)
	}
	var got bytes.Buffer
	ts.Check(json.Indent(&got, []byte(line), "", "  "))
	path := filepath.Join(ts.Getenv("GOLDEN"), args[0])
	if *updateGolden {
		ts.Check(os.WriteFile(path, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	ts.Check(err)
	if !bytes.Equal(got.Bytes(), want) {
		ts.Fatalf("%s has another shape (-update rewrites it):\n%s", path, got.Bytes())
	}
}
