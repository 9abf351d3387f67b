package reference

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func (b *broken) Exec(ctx context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
	if b.defect == "runs-one-at-a-time" {
		b.one.Lock()
		defer b.one.Unlock()
	}
	changed := *stdio
	finish := b.breakOutput(&changed)
	b.breakRequest(request, &changed)
	run := ctx
	if b.defect == "ignores-cancel" {
		run = context.WithoutCancel(ctx)
	}
	status, err := b.exec(ctx, run, ref, request, &changed)
	finish()
	return b.breakStatus(status, err)
}

// exec does not wait for a command that is not told of the cancel.
func (b *broken) exec(ctx, run context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
	if b.defect != "ignores-cancel" {
		return b.Driver.Exec(run, ref, request, stdio)
	}
	type result struct {
		status plugin.ExitStatus
		err    error
	}
	ended := make(chan result, 1)
	go func() {
		status, err := b.Driver.Exec(run, ref, request, stdio)
		ended <- result{status, err}
	}()
	select {
	case r := <-ended:
		return r.status, r.err
	case <-ctx.Done():
		return plugin.ExitStatus{}, ctx.Err()
	}
}

func (b *broken) breakRequest(request *plugin.ExecRequest, stdio *plugin.ExecIO) {
	switch b.defect {
	case "ignores-exec-env":
		request.Env = nil
	case "ignores-exec-workdir":
		request.Workdir = ""
	case "leaks-environment":
		request.Env = withEnvironment(request.Env)
	case "ignores-stdin":
		stdio.Stdin = strings.NewReader("")
	case "keeps-stdin-open":
		stdio.Stdin = endless{stdio.Stdin}
	case "ignores-user":
		request.User = ""
	case "ignores-signals":
		stdio.Signals = nil
	case "rounds-timeouts-down":
		request.Timeout = request.Timeout.Truncate(time.Second)
	case "splits-arguments":
		request.Argv = strings.Fields(strings.Join(request.Argv, " "))
	case "leaves-scratch-files":
		request.Argv = append([]string{"sh", "-c", `: >/tmp/scratch-$$; exec "$@"`, "sh"}, request.Argv...)
	case "starts-with-umask":
		request.Argv = append([]string{"sh", "-c", `umask 077; exec "$@"`, "sh"}, request.Argv...)
	}
}

// endless never ends.
type endless struct{ io.Reader }

func (e endless) Read(buffer []byte) (int, error) {
	n, err := e.Reader.Read(buffer)
	if err != nil {
		time.Sleep(10 * time.Millisecond)
		err = nil
	}
	return n, err
}

func withEnvironment(env map[string]string) map[string]string {
	all := map[string]string{}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		all[name] = value
	}
	for name, value := range env {
		all[name] = value
	}
	return all
}

func (b *broken) breakStatus(status plugin.ExitStatus, err error) (plugin.ExitStatus, error) {
	switch {
	case err != nil && b.defect == "hides-lost-sandboxes" && plugin.KindOf(err) == plugin.KindNotFound:
		return plugin.Exited(1), nil
	case err != nil:
		return status, err
	case b.defect == "invents-exit-0":
		status = plugin.Exited(0)
	case b.defect == "reports-1-for-all" && status.Code != 0:
		status = plugin.Exited(1)
	case b.defect == "takes-124-for-timeouts" && (status.Code == 124 || status.Code == 137):
		status.Reason = plugin.ExitTimedOut
	case b.defect == "denies-timeouts" && status.Reason == plugin.ExitTimedOut:
		status = plugin.ExitStatus{Code: 137, Reason: plugin.ExitSignaled, Signal: "KILL"}
	}
	return status, nil
}

// breakOutput changes what comes out; the function that it returns is called at the end.
func (b *broken) breakOutput(stdio *plugin.ExecIO) (finish func()) {
	stdout, stderr := stdio.Stdout, stdio.Stderr
	finish = func() {}
	switch b.defect {
	case "merges-streams":
		both := &locked{w: stdout}
		stdio.Stdout, stdio.Stderr = both, both
	case "adds-newline":
		last := &lastByte{w: stdout}
		stdio.Stdout = last
		finish = func() {
			if last.seen && last.value != '\n' {
				_, _ = io.WriteString(stdout, "\n")
			}
		}
	case "writes-crlf":
		stdio.Stdout = changedBy(stdout, func(data []byte) []byte { return bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")) })
	case "repairs-utf8":
		stdio.Stdout = changedBy(stdout, func(data []byte) []byte { return bytes.ToValidUTF8(data, []byte("\uFFFD")) })
		stdio.Stderr = changedBy(stderr, func(data []byte) []byte { return bytes.ToValidUTF8(data, []byte("\uFFFD")) })
	case "loses-tail":
		stdio.Stdout = &withoutTail{w: stdout}
	case "holds-output-back":
		held := &bytes.Buffer{}
		stdio.Stdout = held
		finish = func() { _, _ = held.WriteTo(stdout) }
	case "reads-ahead":
		ahead := newReadAhead(stdout)
		stdio.Stdout = ahead
		finish = ahead.close
	case "drops-on-timeout":
		held := &bytes.Buffer{}
		stdio.Stderr = held
		finish = func() {
			if held.Len() == 0 || !bytes.HasPrefix(held.Bytes(), []byte("talk")) {
				_, _ = held.WriteTo(stderr)
			}
		}
	}
	return finish
}
