package conformance

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func limitCases() []Case {
	return []Case{
		{
			ID: "isolation.memory", Group: GroupIsolation, Needs: []Need{needsMemory}, Serial: true, Limit: 3 * time.Minute, run: checkMemory,
			Reason: "a memory limit that is only a wish lets one guest take the machine down; its end is no timeout",
			Source: "airflow 57, 93; reports 7",
		},
		{
			ID: "isolation.cpus", Group: GroupIsolation, Needs: []Need{needsCPUs}, Serial: true, Limit: 2 * time.Minute, run: checkCPUs,
			Reason: "a cpu limit that is not enforced is paid for by the neighbours",
			Source: "airflow 93",
		},
		{
			ID: "isolation.pids", Group: GroupIsolation, Needs: []Need{needsPIDs}, Limit: 4 * time.Minute, run: checkPIDs,
			Reason: "a guest that forks without end takes the machine's processes and memory; the sandbox outlives it",
			Source: "issue 8",
		},
		{
			ID: "isolation.disk", Group: GroupIsolation, Needs: []Need{needsDisk}, Limit: 3 * time.Minute, run: checkDisk,
			Reason: "a guest that fills the machine's disk stops everything else there; its own writes fail instead",
			Source: "issue 8",
		},
		{
			ID: "isolation.workdir", Group: GroupIsolation, Needs: []Need{needsWorkdir}, run: checkSpecWorkdir,
			Reason: "the working directory is made where it is missing, and commands and files start there",
			Source: "airflow 73; design 5",
		},
	}
}

// limited is a sandbox with the first of some limits that the backend takes: some
// have a smallest size, or whole cpus only.
func limited[L any](t *T, limits []L, set func(*plugin.SandboxSpec, L)) (*box, L) {
	var refused error
	for _, limit := range limits {
		spec := t.session.spec()
		set(spec, limit)
		sandbox, err := t.create(spec, &recorder{})
		if err == nil {
			return t.open(sandbox), limit
		}
		if kind := plugin.KindOf(err); kind != plugin.KindInvalid && kind != plugin.KindRefused {
			t.Fatalf("create failed: %v", err)
		}
		refused = err
	}
	t.Fatalf("the limit is claimed, but each that was tried is refused: %v", refused)
	panic("not reached")
}

func checkMemory(t *T) {
	box, limit := limited(t, []uint64{256 << 20, 1 << 30}, func(spec *plugin.SandboxSpec, limit uint64) { spec.MemoryBytes = limit })
	t.wantExit("a small command", box.exec(shell("head -c 10000000 /dev/zero | tail -c 10000000 | wc -c")), 0)
	// tail keeps all that it will print in memory.
	size := itoa(int(limit * 5 / 2))
	request := shell(`head -c "$1" /dev/zero | tail -c "$1" | wc -c`, size)
	request.Timeout = 100 * time.Second
	got := box.exec(request)
	switch {
	case got.err != nil: // the sandbox did not outlive it, which is an end as well
	case got.status.Reason == plugin.ExitTimedOut:
		t.Errorf("running out of memory is reported as a timeout after %v", got.took.Round(time.Second))
	case got.status.Code == 0 && strings.TrimSpace(got.stdout) == size:
		t.Errorf("a command used %s bytes in a sandbox of %d MiB", size, limit>>20)
	}
}

func checkCPUs(t *T) {
	box, cpus := limited(t, []float64{0.25, 1}, func(spec *plugin.SandboxSpec, limit float64) { spec.CPUs = limit })
	work, seconds := box.busyLoops()
	if cpus >= 1 {
		// Backends with whole cpus only are virtual machines, whose kernel knows.
		if allowed := cpus * 1.5 * busyFor; seconds > allowed {
			t.Errorf("two busy loops used %.1fs of cpu in %ds, more than %.0f cpus allow", seconds, busyFor, cpus)
		}
		return
	}
	// The work that gets done is compared, because gVisor's idea of cpu time goes on
	// while its process is throttled. A quarter is far from what two loops get
	// without a limit, even on a busy machine.
	free, _ := t.fresh().busyLoops()
	if work <= free*3/4 {
		return
	}
	if load, busy := machineLoad(); busy {
		t.Skipf("this machine is too busy to see a limit (load %.0f): two loops got no more without one", load)
	}
	t.Errorf("two busy loops did %d rounds with %.2f cpus and %d without a limit", work, cpus, free)
}

// machineLoad is how many processes want to run on this machine, where Linux tells,
// and whether those are more than it has processors.
func machineLoad() (load float64, busy bool) {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, false
	}
	_, err = fmt.Sscan(string(content), &load)
	return load, err == nil && load > float64(runtime.NumCPU())
}

// busyFor is how many seconds the loops run.
const busyFor = 4

// busyLoops runs two loops and returns how many rounds they made and how much cpu time
// the guest says that they took, in seconds.
func (b *box) busyLoops() (rounds int64, seconds float64) {
	got := b.exec(shell(`for i in 1 2; do
	(n=0; trap 'echo $n; exit' TERM; while :; do n=$((n + 1)); done) &
	pids="$pids $!"
done
sleep "$1"
kill $pids
wait
times`, itoa(busyFor)))
	b.t.wantExit("two busy loops", got, 0)
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	var user, system float64
	var first, second int64
	var minutes [2]int
	_, err := fmt.Sscan(strings.Join(lines[:min(2, len(lines))], " "), &first, &second)
	if err == nil {
		_, err = fmt.Sscanf(lines[len(lines)-1], "%dm%fs %dm%fs", &minutes[0], &user, &minutes[1], &system)
	}
	if err != nil {
		b.t.Fatalf("two busy loops printed %s", short(got.stdout))
	}
	return first + second, user + system + 60*float64(minutes[0]+minutes[1])
}

func checkPIDs(t *T) {
	box, limit := limited(t, []uint32{64, 256, 1024}, func(spec *plugin.SandboxSpec, limit uint32) { spec.PIDs = limit })
	// A shell ends when it cannot fork. What it has started ends by itself.
	request := shell(`i=0
while [ "$i" -lt "$1" ]; do
	sleep 30 >/dev/null 2>&1 &
	i=$((i + 1))
	echo "$i"
done`, itoa(int(limit)+8))
	request.Timeout = 100 * time.Second
	got := box.exec(request)
	lines := strings.Fields(got.stdout)
	started := len(lines)
	switch {
	case got.err != nil:
		t.Fatalf("starting processes up to the limit of %d failed altogether: %v", limit, got.err)
	case started >= int(limit):
		t.Errorf("a shell started %d processes in a sandbox of at most %d", started, limit)
	case started < int(limit)/4:
		t.Errorf("a shell could start only %d processes in a sandbox of at most %d", started, limit)
	case got.status.Code == 0:
		t.Errorf("a shell that could not start a process ended well")
	}
	for deadline := time.Now().Add(100 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		again := box.exec(&plugin.ExecRequest{Argv: []string{"true"}})
		if again.err == nil && again.status.Code == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no command runs after the processes have ended: code %d, %v", again.status.Code, again.err)
		}
	}
}

func checkDisk(t *T) {
	box, limit := limited(t, []uint64{64 << 20, 1 << 30, 10 << 30}, func(spec *plugin.SandboxSpec, limit uint64) { spec.DiskBytes = limit })
	request := shell(`for dir in . /tmp /var/tmp; do
	head -c "$1" /dev/zero 2>/dev/null >"$dir/conformance-fill" && echo whole
	wc -c <"$dir/conformance-fill"
done`, itoa(int(limit+limit/4)))
	request.Timeout = 2 * time.Minute
	got := box.exec(request)
	t.wantExit("filling the disk", got, 0)
	var written uint64
	for _, line := range strings.Fields(got.stdout) {
		size, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			t.Errorf("a file of %d bytes was written whole in a sandbox of at most %d", limit+limit/4, limit)
			continue
		}
		written += size
	}
	// What a file system needs for itself differs.
	if written > limit+limit/8 || written < limit/4 {
		t.Errorf("%d bytes of files fit into a sandbox of at most %d", written, limit)
	}
	box.must("rm -f ./conformance-fill /tmp/conformance-fill /var/tmp/conformance-fill")
	t.wantExit("writing after the files are gone", box.exec(shell("head -c 1000000 /dev/zero >conformance-fill && rm conformance-fill")), 0)
}

func checkSpecWorkdir(t *T) {
	const dir = "/srv/conformance/a dir"
	box := t.fresh(func(spec *plugin.SandboxSpec) { spec.Workdir = dir })
	got := box.exec(&plugin.ExecRequest{Argv: []string{"pwd"}})
	t.wantExit("pwd", got, 0)
	t.wantText("the directory", got.stdout, dir+"\n")
	t.wantExit("writing there", box.exec(shell("echo x >file")), 0)
	if t.info().Capabilities.Files.Files {
		content, err := box.readPath("file", 0)
		if err != nil || content != "x\n" {
			t.Errorf("a relative path for the driver: %s, %v", short(content), err)
		}
	}
}
