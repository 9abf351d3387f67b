package conformance_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin/conformance"
)

// defects are the ways in which the reference driver can be wrong, what of the suite
// is run against each, and exactly which of those cases must then fail.
var defects = []struct{ defect, run, fails string }{
	{"describes-in-lines", `^lifecycle\.(info|create)`, "lifecycle.info"},
	{"tells-no-handle", `^lifecycle\.(create-usable|early-handle|list)`, "lifecycle.early-handle"},
	{"ignores-request-id", `^lifecycle\.(request-id|create-usable|list)`, "lifecycle.request-id"},
	{"lists-no-owner", `^lifecycle\.(list|labels|create-usable)`, "lifecycle.list"},
	{"lists-no-labels", `^lifecycle\.(list|labels|create-usable)`, "lifecycle.labels"},
	{"keeps-half-created", `^lifecycle\.(cancelled-create|list)`, "lifecycle.cancelled-create"},
	{"destroys-once", `^lifecycle\.(destroy$|after|lookup|nothing)`, "lifecycle.destroy"},
	{"denies-already-gone", `^lifecycle\.(destroy$|after|lookup|nothing)`, "lifecycle.destroy"},
	{"destroys-nothing", `^lifecycle\.(destroy$|destroy-at|after|lookup|nothing|list)`, "lifecycle.destroy lifecycle.destroy-at-once lifecycle.after-destroy lifecycle.lookup-by-id lifecycle.nothing-left"},
	{"hides-lost-sandboxes", `^lifecycle\.(after|unknown|destroy-under)`, "lifecycle.after-destroy lifecycle.unknown-handle"},
	{"needs-handles", `^lifecycle\.(destroy$|lookup)`, "lifecycle.lookup-by-id"},
	{"forgets-with-its-process", `^lifecycle\.(second|lookup)`, "lifecycle.second-process"},
	{"lies-about-images", `^lifecycle\.(failed|info)`, "lifecycle.failed-create"},

	{"invents-exit-0", `^(exec\.(exit|not-found|signals)|output\.(silence|live))`, "exec.exit-codes exec.not-found exec.signals-of-guest"},
	{"reports-1-for-all", `^exec\.(exit|not-found|signals|argv)`, "exec.exit-codes exec.not-found exec.signals-of-guest"},
	{"splits-arguments", `^exec\.(argv|not-found|no-stdin)`, "exec.argv"},
	{"ignores-exec-env", `^exec\.(env|argv|fresh)`, "exec.env exec.env-path"},
	{"ignores-exec-workdir", `^exec\.(workdir|env|argv)`, "exec.workdir"},
	{"ignores-user", `^exec\.(user|workdir)`, "exec.user"},
	{"ignores-stdin", `^exec\.(no-stdin|stdin-(bytes|end|unread))`, "exec.stdin-bytes exec.stdin-end"},
	{"keeps-stdin-open", `^exec\.(stdin-end|stdin-unread|argv)`, "exec.stdin-end"},
	{"ignores-signals", `^exec\.(signal$|cancel)`, "exec.signal"},
	{"ignores-cancel", `^exec\.(signal$|cancel)`, "exec.cancel"},
	{"waits-for-background", `^exec\.(background-output|cancel)`, "exec.background-output"},
	{"kills-background", `^exec\.(background|cancel)`, "exec.background-lives"},
	{"leaves-scratch-files", `^exec\.(no-traces|argv)`, "exec.no-traces"},
	{"runs-one-at-a-time", `^(concurrency\.slow|exec\.argv)`, "concurrency.slow-exec"},
	{"starts-with-umask", `^exec\.(umask|argv|user)`, "exec.umask"},
	{"lies-about-tty", `^exec\.(tty|no-tty)`, "exec.tty exec.tty-resize"},

	{"adds-newline", `^output\.(bytes|silence|separate|both|live)`, "output.bytes-of-text"},
	{"writes-crlf", `^output\.(bytes|silence|all-bytes|one-long)`, "output.bytes-of-text output.all-bytes output.one-long-line"},
	{"repairs-utf8", `^output\.(bytes|silence|all-bytes|separate)`, "output.all-bytes"},
	{"merges-streams", `^output\.(silence|separate|one-long)`, "output.separate"},
	{"loses-tail", `^output\.(bytes|silence|tail|one-long|separate)`, "output.tail-at-exit output.one-long-line"},
	{"holds-output-back", `^output\.(bytes|live|separate)`, "output.live"},
	{"reads-ahead", `^output\.(bytes|slow-reader)`, "output.slow-reader"},
	{"drops-on-timeout", `^output\.(bytes|kept|separate)`, "output.kept-on-timeout"},

	{"timeout-spares-children", `^timeout\.(kills|not-yet)`, "timeout.kills-the-tree"},
	{"takes-124-for-timeouts", `^timeout\.(kills|not-yet|survival)`, "timeout.not-yet"},
	{"denies-timeouts", `^timeout\.(not-yet|survival|term)`, "timeout.survival timeout.term-ignored"},
	{"rounds-timeouts-down", `^timeout\.(fraction|not-yet)`, "timeout.fraction"},
	{"hides-longest-timeout", `^timeout\.(longest|not-yet)`, "timeout.longest"},

	{"changes-file-bytes", `^files\.(round|overwrite|limit|missing)`, "files.round-trip"},
	{"reads-missing-as-empty", `^files\.(round|missing|limit|list-edges)`, "files.missing"},
	{"takes-files-for-sandboxes", `^files\.(round|missing|limit|list-edges)`, "files.missing"},
	{"ignores-read-limit", `^files\.(round|limit|proc|special)`, "files.limit files.proc"},
	{"keeps-half-files", `^files\.(round|cut|cancelled|parents)`, "files.cut-upload files.cancelled-upload"},
	{"trims-paths", `^files\.(round|awkward|missing)`, "files.awkward-names"},
	{"cuts-paths-at-nul", `^files\.(round|impossible)`, "files.impossible-paths"},
	{"starts-elsewhere", `^files\.(round|same)`, "files.same-as-exec"},
	{"ignores-mode", `^files\.(mode|overwrite|stat)`, "files.mode"},
	{"lies-about-symlinks", `^files\.(symlink|overwrite)`, "files.symlink-write"},
	{"hides-dot-files", `^files\.(list|list-edges|stat)$`, "files.list"},
	{"follows-links-in-lists", `^files\.(list|list-edges|stat)$`, "files.list"},
	{"lists-missing-as-empty", `^files\.(list|list-edges|missing)$`, "files.list-edges files.missing"},
	{"cuts-lists", `^files\.list`, "files.list-20000"},
	{"always-follows", `^archive\.(put|follow|one)`, "archive.follow"},
	{"hides-unpack-errors", `^archive\.(put|errors|cut)`, "archive.errors archive.cut-tar"},
	{"keeps-half-archives", `^archive\.(put|cut-upload)`, "archive.cut-upload"},

	{"leaks-environment", `^isolation\.(host-env|host-processes|env)`, "isolation.host-env isolation.env"},
	{"ignores-env", `^isolation\.(host-env|env)`, "isolation.env"},
	{"ignores-workdir", `^isolation\.(workdir|env)`, "isolation.workdir"},
	{"shares-tmp", `^isolation\.(host|two|env)`, "isolation.host-files isolation.two-sandboxes"},
	{"shares-network", `^network\.(none|reported)`, "network.none"},
	{"opens-the-host", `^network\.open`, "network.open-not-host"},
	{"ignores-allow-lists", `^network\.(allow|reported)`, "network.allow-cidrs network.allow-hosts-only"},
	{"logs-no-access", `^network\.(access-log|none)`, "network.access-log"},
	{"shows-other-network", `^network\.(none|reported)`, "network.reported"},
	{"lies-about-memory", `^isolation\.(memory|host-env)`, "isolation.memory"},
	{"lies-about-cpus", `^isolation\.(cpus|host-env)`, "isolation.cpus"},
	{"lies-about-pids", `^isolation\.(pids|host-env)`, "isolation.pids"},
	{"lies-about-disk", `^isolation\.(disk|host-env)`, "isolation.disk"},
	{"moves-expiry", `^lease\.(expiry|exec)`, "lease.expiry-told"},
	{"always-expires", `^lease\.(unlimited|expiry|exec)`, "lease.unlimited"},
	{"lies-about-ttl", `^lease\.(ttl|expiry)`, "lease.ttl"},
	{"lies-about-idle-timeouts", `^lease\.(idle|expiry)`, "lease.idle"},
	{"renews-nothing", `^lease\.(renew$|expiry)`, "lease.renew"},
}

// The suite must be able to fail: each defect fails the cases that are about it, and
// no others.
func TestDefectsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("the defects take a minute")
	}
	// The defect that shares the host's /tmp leaves its cases' directories there.
	t.Cleanup(func() {
		left, err := filepath.Glob("/tmp/conformance-isolation-*")
		if err != nil {
			t.Error(err)
		}
		for _, dir := range left {
			_ = os.RemoveAll(dir)
		}
	})
	// More than -parallel allows: most of them wait for a clock.
	const atOnce = 8
	slots := make(chan struct{}, atOnce)
	reports := make([]chan conformance.Report, len(defects))
	for i, d := range defects {
		target := driver(t, d.defect)
		reports[i] = make(chan conformance.Report, 1)
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			// A driver that does not start gives a report without results.
			report, _ := conformance.Run(t.Context(), target, conformance.Options{Run: regexp.MustCompile(d.run)})
			reports[i] <- report
		}()
	}
	for i, d := range defects {
		report := <-reports[i]
		t.Run(d.defect, func(t *testing.T) { judge(t, report, strings.Fields(d.fails)) })
	}
}

func judge(t *testing.T, report conformance.Report, want []string) {
	t.Helper()
	if slices.Contains(want, "isolation.cpus") && busy(t) {
		t.Skip("this machine is too busy to measure how much cpu a command gets")
	}
	failed := []string{}
	for _, result := range report.Results {
		if result.Outcome == conformance.Failed {
			failed = append(failed, result.ID)
			t.Logf("%s: %s", result.ID, result.Detail)
		}
	}
	slices.Sort(failed)
	slices.Sort(want)
	if !slices.Equal(failed, want) {
		t.Errorf("failed: %v, want %v", failed, want)
	}
	if report.Passed == 0 {
		t.Error("no case passed, so that nothing shows that the others would")
	}
}

// busy says whether more processes want to run than there are processors.
func busy(t *testing.T) bool {
	t.Helper()
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	var load float64
	if _, err := fmt.Sscan(string(content), &load); err != nil {
		t.Fatal(err)
	}
	return load > float64(runtime.NumCPU())
}
