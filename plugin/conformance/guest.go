package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// box is a sandbox in the hands of a case.
type box struct {
	t       *T
	ref     plugin.Ref
	sandbox *plugin.Sandbox
	// dir is the case's own directory in the guest, used says that it was made.
	dir  string
	used bool
}

// shared is the sandbox that cases share. They must leave it alive.
func (t *T) shared() *box {
	sandbox, err := t.session.sharedSandbox(t.ctx)
	if err != nil {
		t.Fatalf("no sandbox could be created: %v", err)
	}
	box := t.open(sandbox)
	t.cleanup(box.removeDir)
	return box
}

// removeDir removes the case's directory. Others use the sandbox, too, and a driver
// without isolation has it on the host.
func (b *box) removeDir() {
	if !b.used {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.ctx), cleanupLimit)
	defer cancel()
	// A sandbox that is gone has no directory either.
	b.execWith(ctx, shell(`rm -rf "$1"`, b.dir), nil)
}

// fresh is a sandbox of the case's own, which is destroyed after it.
func (t *T) fresh(change ...func(*plugin.SandboxSpec)) *box {
	spec := t.session.spec()
	for _, change := range change {
		change(spec)
	}
	sandbox, err := t.create(spec, &recorder{})
	if err != nil {
		t.Fatalf("create failed: %v", err)
	}
	return t.open(sandbox)
}

// create makes a sandbox that is destroyed after the case, even if it seems to have
// failed.
func (t *T) create(spec *plugin.SandboxSpec, events plugin.CreateEvents) (*plugin.Sandbox, error) {
	return t.createWith(t.ctx, spec, events)
}

func (t *T) createWith(ctx context.Context, spec *plugin.SandboxSpec, events plugin.CreateEvents) (*plugin.Sandbox, error) {
	sandbox, err := t.driver().Create(ctx, spec, events)
	ref := plugin.Ref{ID: spec.ID}
	if err == nil {
		ref.Handle = sandbox.Handle
	}
	t.destroyAfter(ref)
	return sandbox, err
}

func (t *T) destroyAfter(ref plugin.Ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), cleanupLimit)
		defer cancel()
		// A sandbox that stays is found by the last case; here it would hide what
		// the case was about.
		_, _ = t.driver().Destroy(ctx, ref)
	})
}

func (t *T) open(sandbox *plugin.Sandbox) *box {
	return &box{
		t: t, ref: plugin.Ref{ID: sandbox.ID, Handle: sandbox.Handle}, sandbox: sandbox,
		dir: "/tmp/conformance-" + strings.ReplaceAll(t.name, ".", "-"),
	}
}

// recorder is what a create reports.
type recorder struct {
	mu       sync.Mutex
	handles  [][]byte
	warnings []string
	// created, unless nil, is called with the first handle.
	created func()
}

func (r *recorder) Created(handle []byte) {
	r.mu.Lock()
	first := len(r.handles) == 0
	r.handles = append(r.handles, handle)
	r.mu.Unlock()
	if first && r.created != nil {
		r.created()
	}
}

func (r *recorder) Progress(plugin.Progress) {}

func (r *recorder) Warn(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warnings = append(r.warnings, message)
}

// ran is how a command went.
type ran struct {
	status         plugin.ExitStatus
	stdout, stderr string
	took           time.Duration
	err            error
}

// exec runs a command with an empty stdin and keeps what it prints.
func (b *box) exec(request *plugin.ExecRequest) ran { return b.execWith(b.t.ctx, request, nil) }

func (b *box) execWith(ctx context.Context, request *plugin.ExecRequest, stdin io.Reader) ran {
	var stdout, stderr bytes.Buffer
	request.Stdin = stdin != nil
	started := time.Now()
	status, err := b.t.driver().Exec(ctx, b.ref, request, &plugin.ExecIO{Stdin: stdin, Stdout: &stdout, Stderr: &stderr})
	return ran{status: status, stdout: stdout.String(), stderr: stderr.String(), took: time.Since(started), err: err}
}

// shell is a script with arguments, run in the sandbox's own directory.
func shell(script string, args ...string) *plugin.ExecRequest {
	return &plugin.ExecRequest{Argv: append([]string{"sh", "-c", script, "sh"}, args...)}
}

// sh runs a script in the case's own directory; the case ends when it cannot be run.
func (b *box) sh(script string, args ...string) ran {
	b.used = true
	got := b.exec(&plugin.ExecRequest{Argv: append([]string{"sh", "-c", `mkdir -p "$0" && cd "$0" || exit 120
` + script, b.dir}, args...)})
	if got.err != nil {
		b.t.Fatalf("exec failed: %v", got.err)
	}
	return got
}

// must is sh for scripts that have to succeed; it returns what they print.
func (b *box) must(script string, args ...string) string {
	got := b.sh(script, args...)
	if got.status.Code != 0 || got.status.Reason != plugin.ExitExited {
		b.t.Fatalf("a script of the case ended with %s: %s", describe(got), short(got.stderr))
	}
	return got.stdout
}

// path names a file in the case's own directory.
func (b *box) path(name string) string { return b.dir + "/" + name }

// mkdir makes the case's own directory.
func (b *box) mkdir() *box {
	b.must(":")
	return b
}

func (b *box) write(name, content string) error {
	return b.t.driver().WriteFile(b.t.ctx, b.ref, b.path(name), 0, strings.NewReader(content))
}

func (b *box) read(name string, limit int64) (string, error) { return b.readPath(b.path(name), limit) }

func (b *box) readPath(path string, limit int64) (string, error) {
	var content bytes.Buffer
	err := b.t.driver().ReadFile(b.t.ctx, b.ref, path, limit, &content)
	return content.String(), err
}

// alive counts the processes of a script's file of pids that still run. A zombie does
// not: whether it is reaped is up to the guest's init. Nor does the shell that counts,
// which may have one of the numbers where each command has processes of its own.
func (b *box) alive(pidFile string) int {
	out := b.must(`n=0
while read -r pid; do
	[ "$pid" != $$ ] && [ -r "/proc/$pid/stat" ] || continue
	state=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -c1)
	case $state in Z | X | '') ;; *) n=$((n + 1)) ;; esac
done <"$1"
printf %s "$n"`, pidFile)
	n := 0
	for _, digit := range out {
		n = n*10 + int(digit-'0')
	}
	return n
}

// has says whether the guest has a tool.
func (b *box) has(tool string) bool {
	return b.sh(`command -v "$1" >/dev/null`, tool).status.Code == 0
}

// eventually tries until it holds or the time is over.
func (t *T) eventually(limit time.Duration, holds func() bool) bool {
	deadline := time.Now().Add(limit)
	for {
		if holds() {
			return true
		}
		select {
		case <-t.ctx.Done():
			return false
		case <-time.After(200 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// wantKind checks an error's kind.
func (t *T) wantKind(what string, err error, kinds ...plugin.Kind) {
	if err == nil {
		t.Errorf("%s succeeded, want an error of kind %v", what, kinds)
		return
	}
	var told *plugin.Error
	if errors.As(err, &told) {
		for _, kind := range kinds {
			if told.Kind == kind {
				return
			}
		}
		t.Errorf("%s failed with kind %s (%v), want %v", what, told.Kind, err, kinds)
		return
	}
	t.Errorf("%s failed with %v, want an error of kind %v", what, err, kinds)
}

// wantPath checks that an error is about a path.
func (t *T) wantPath(what string, err error, reasons ...plugin.PathReason) {
	var told *plugin.Error
	if !errors.As(err, &told) || told.Kind != plugin.KindPath {
		t.wantKind(what, err, plugin.KindPath)
		return
	}
	for _, reason := range reasons {
		if told.PathReason == reason {
			return
		}
	}
	if len(reasons) > 0 {
		t.Errorf("%s failed with path reason %q (%v), want %v", what, told.PathReason, err, reasons)
	}
}

// wantExit checks how a command ended.
func (t *T) wantExit(what string, got ran, code int, reasons ...plugin.ExitReason) {
	if got.err != nil {
		t.Errorf("%s failed: %v", what, got.err)
		return
	}
	if len(reasons) == 0 {
		reasons = []plugin.ExitReason{plugin.ExitExited}
	}
	for _, reason := range reasons {
		if got.status.Reason == reason && (got.status.Code == code || reason == plugin.ExitTimedOut) {
			return
		}
	}
	t.Errorf("%s ended with %s, want %v %d%s", what, describe(got), reasons, code, stderrOf(got))
}

func stderrOf(got ran) string {
	if got.stderr == "" {
		return ""
	}
	return " (stderr: " + short(got.stderr) + ")"
}
