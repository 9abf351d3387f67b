package conformance

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func isolationCases() []Case {
	return []Case{
		{
			ID: "isolation.host-env", Group: GroupIsolation, run: checkHostEnv,
			Reason: "the host's environment holds credentials; the guest gets none of it",
			Source: "airflow 81; reports 59",
		},
		{
			ID: "isolation.env", Group: GroupIsolation, Needs: []Need{needsEnv}, run: checkSpecEnv,
			Reason: "the sandbox's variables reach every command with exactly their values",
			Source: "airflow 82, 83",
		},
		{
			ID: "isolation.host-files", Group: GroupIsolation, run: checkHostFiles,
			Reason: "the guest sees and changes no file of the host, nor the sockets of its daemons",
			Source: "airflow 91, 92",
		},
		{
			ID: "isolation.host-processes", Group: GroupIsolation, run: checkHostProcesses,
			Reason: "what the guest can see of the driver's processes it can read secrets from",
			Source: "airflow 92",
		},
		{
			ID: "isolation.two-sandboxes", Group: GroupIsolation, run: checkTwoSandboxes,
			Reason: "two sandboxes share neither files, nor processes, nor their end",
			Source: "airflow 16",
		},
	}
}

func checkHostEnv(t *T) {
	box := t.fresh()
	// Of other processes, too: a supervisor in the guest may hold what its commands do not.
	out := box.must(`env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\000' '\n'`)
	for line := range strings.SplitSeq(out, "\n") {
		name, value, _ := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(name, "SANDBOXCTL_"), strings.HasPrefix(name, "PLUGIN_"), name == probeVariable:
			t.Errorf("the guest has the driver's variable %s", name)
		case value == probeValue:
			t.Errorf("the guest has a value of the driver's environment, as %s", name)
		}
	}
}

func checkSpecEnv(t *T) {
	values := map[string]string{"PATH": "/conformance/bin:/usr/local/bin:/usr/bin:/bin"}
	for name, value := range awkwardValues {
		values[name] = value
	}
	box := t.fresh(func(spec *plugin.SandboxSpec) { spec.Env = values })
	for range 2 {
		got := box.exec(shell(printValues()))
		t.wantExit("the command", got, 0)
		t.wantText("the variables", got.stdout, wantedValues())
	}
	t.wantText("PATH", box.exec(shell(`printf %s "$PATH"`)).stdout, values["PATH"])
	request := shell(`printf %s "$CONF_PLAIN"`)
	request.Env = map[string]string{"CONF_PLAIN": "for this one"}
	t.wantText("a variable that a command overrides", box.exec(request).stdout, "for this one")
}

func checkHostFiles(t *T) {
	dir, err := os.MkdirTemp("", "sandboxctl-conformance-")
	if err != nil {
		t.Skipf("this machine has no directory for temporary files: %v", err)
	}
	defer os.RemoveAll(dir)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Skipf("this machine has no room for a file: %v", err)
	}
	box := t.fresh()
	for _, path := range []string{secret, "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"} {
		if box.exec(shell(`[ -e "$1" ]`, path)).status.Code == 0 {
			t.Errorf("the guest sees the host's %s", path)
		}
	}
	mark := "conformance-escape-" + random(8)
	for _, dir := range []string{"/tmp", "/var/tmp", "/etc", "/usr/local", "/root", "/"} {
		box.exec(shell(`echo escaped >"$1"`, filepath.Join(dir, mark)))
		if _, err := os.Lstat(filepath.Join(dir, mark)); err == nil {
			t.Errorf("a file that the guest wrote to %s is on the host", dir)
			os.Remove(filepath.Join(dir, mark))
		}
	}
}

func checkHostProcesses(t *T) {
	box := t.fresh()
	out := box.must(`for f in /proc/[0-9]*/cmdline; do tr '\000' ' ' <"$f" 2>/dev/null; echo; done`)
	for line := range strings.SplitSeq(out, "\n") {
		if strings.Contains(line, "sandboxctl-driver-"+t.info().Name) {
			t.Errorf("the guest sees the driver's process: %s", short(line))
			return
		}
	}
}

func checkTwoSandboxes(t *T) {
	first, second := t.fresh(), t.fresh()
	first.must("echo first >file; mkdir -p /tmp/shared-by-name && echo first >/tmp/shared-by-name/file")
	if second.sh(`[ -e "$1" ] || [ -e /tmp/shared-by-name ]`, first.path("file")).status.Code == 0 {
		t.Errorf("a file of one sandbox is in the other")
	}
	// A process is looked for by name, since its number may be in use in both.
	suffix := random(6)
	first.must(`printf '#!/bin/sh\nsleep 30\n' >"nap-$1" && chmod +x "nap-$1"; "./nap-$1" >/dev/null 2>&1 & :`, suffix)
	seen := second.must(`cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\000' '\n' | grep -c "^\./nap-$1\$" || :`, suffix)
	if strings.TrimSpace(seen) != "0" {
		t.Errorf("a process of one sandbox is seen in the other")
	}
	first.must("rm -rf /tmp/shared-by-name")
	first.removeDir()
	second.removeDir()
	if _, err := t.driver().Destroy(t.ctx, first.ref); err != nil {
		t.Errorf("destroy failed: %v", err)
	}
	t.wantExit("a command after the first sandbox's end", second.exec(&plugin.ExecRequest{Argv: []string{"true"}}), 0)
}
