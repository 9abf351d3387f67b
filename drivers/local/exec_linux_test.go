package local_test

import (
	"strings"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestExec(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		ref := f.create()
		for name, test := range map[string]struct {
			request *plugin.ExecRequest
			stdin   []string
			code    int
			stdout  string
			stderr  string
		}{
			"streams are apart":        {request: shell("echo out; echo err >&2; exit 7"), code: 7, stdout: "out\n", stderr: "err\n"},
			"no newline is added":      {request: shell(`printf 'A\n\nB'`), stdout: "A\n\nB"},
			"no output":                {request: &plugin.ExecRequest{Argv: []string{"true"}}},
			"argv is exact":            {request: &plugin.ExecRequest{Argv: []string{"printf", "%s|", "a b", "", "$HOME", "x\ny", "-n"}}, stdout: "a b||$HOME|x\ny|-n|"},
			"exit 255":                 {request: shell("exit 255"), code: 255},
			"exit 124 is no timeout":   {request: shell("exit 124"), code: 124},
			"exit 137 is no kill":      {request: shell("exit 137"), code: 137},
			"exit 128 passes":          {request: shell("exit 128"), code: 128},
			"stdin":                    {request: &plugin.ExecRequest{Argv: []string{"cat"}}, stdin: []string{"in\x00put"}, stdout: "in\x00put"},
			"no stdin is empty":        {request: &plugin.ExecRequest{Argv: []string{"cat"}}},
			"stdin that nobody reads":  {request: &plugin.ExecRequest{Argv: []string{"true"}}, stdin: []string{string(make([]byte, 4<<20))}},
			"not found":                {request: &plugin.ExecRequest{Argv: []string{"nosuchcmd"}}, code: 127, stderr: "sandboxctl: nosuchcmd: command not found\n"},
			"not executable":           {request: &plugin.ExecRequest{Argv: []string{"/etc/passwd"}}, code: 126, stderr: "sandboxctl: /etc/passwd: permission denied\n"},
			"a directory":              {request: &plugin.ExecRequest{Argv: []string{"/usr"}}, code: 126, stderr: "sandboxctl: /usr: permission denied\n"},
			"missing path":             {request: &plugin.ExecRequest{Argv: []string{"/no/such"}}, code: 127, stderr: "sandboxctl: /no/such: no such file, or its interpreter is missing\n"},
			"a large argument":         {request: &plugin.ExecRequest{Argv: []string{"sh", "-c", "echo ${#1}", "sh", strings.Repeat("x", 120_000)}}, stdout: "120000\n"},
			"too large an argument":    {request: &plugin.ExecRequest{Argv: []string{"true", strings.Repeat("x", 3<<20)}}, code: 126, stderr: "sandboxctl: true: argument list too long\n"},
			"workdir":                  {request: &plugin.ExecRequest{Argv: []string{"pwd"}, Workdir: "/tmp"}, stdout: "/tmp\n"},
			"default workdir":          {request: &plugin.ExecRequest{Argv: []string{"pwd"}}, stdout: "/workspace\n"},
			"background output":        {request: shell("sleep 300 & echo done"), stdout: "done\n"},
			"user by name":             {request: &plugin.ExecRequest{Argv: []string{"id", "-un"}, User: "nobody"}, stdout: "nobody\n"},
			"user and group by number": {request: &plugin.ExecRequest{Argv: []string{"sh", "-c", "id -u; id -g"}, User: "1234:77"}, stdout: "1234\n77\n"},
		} {
			t.Run(name, func(t *testing.T) {
				f := &fixture{Client: f.Client, t: t}
				done := f.exec(ref, test.request, test.stdin...)
				if done.Code != test.code || done.Reason != plugin.ExitExited || done.stdout != test.stdout || done.stderr != test.stderr {
					t.Errorf("got %+v\nwant code %d, stdout %q, stderr %q", done, test.code, test.stdout, test.stderr)
				}
			})
		}
	})
}
