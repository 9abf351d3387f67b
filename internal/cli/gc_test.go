//go:build linux

package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/faultdriver"
)

// collected is what a gc says.
type collected struct {
	Removed []struct {
		Name, ID, Reason string
		Mine             bool
	}
	Errors []struct{ Class, Message, Sandbox string }
}

func (c collected) names() []string {
	names := []string{}
	for _, removed := range c.Removed {
		names = append(names, removed.Name)
	}
	slices.Sort(names)
	return names
}

func (p *place) gc(code int, flags ...string) collected {
	p.t.Helper()
	got, stdout := p.run(append([]string{"gc", "--json"}, flags...)...)
	var said collected
	if err := json.Unmarshal([]byte(stdout), &said); err != nil || got != code {
		p.t.Fatalf("gc: exit %d, want %d: %s (%v)", got, code, stdout, err)
	}
	return said
}

// editJSON changes a file of JSON as a user with an editor would.
func editJSON(t testing.TB, file string, edit func(map[string]any)) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(content, &object); err != nil {
		t.Fatal(err)
	}
	edit(object)
	if content, err = json.Marshal(object); err == nil {
		err = os.WriteFile(file, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// expireAt moves the expiry that the backend knows of.
func (p *place) expireAt(id string, when time.Time) {
	p.t.Helper()
	editJSON(p.t, filepath.Join(p.backend, id+".json"), func(stored map[string]any) {
		stored["sandbox"].(map[string]any)["expireTime"] = when.UTC().Format(time.RFC3339)
	})
}

func (p *place) create(name string, flags ...string) (id string) {
	p.t.Helper()
	made := struct{ ID string }{}
	stdout := p.must(append([]string{"create", "--json", "--network", "open", "--name", name}, flags...)...)
	if err := json.Unmarshal([]byte(stdout), &made); err != nil {
		p.t.Fatal(err)
	}
	return made.ID
}

func TestGC(t *testing.T) {
	programs := buildFaultyPlaces(t)
	parallel(t, "beside a create", func(t *testing.T) { testGCBesideCreate(t, programs) })
	parallel(t, "beside a renewal", func(t *testing.T) { testGCBesideRenewal(t, programs) })
	parallel(t, "beside another gc", func(t *testing.T) { testTwoGCs(t, programs) })
	parallel(t, "one bad candidate", func(t *testing.T) { testOneBadCandidate(t, programs) })
	parallel(t, "process of another host", func(t *testing.T) { testUnknownProcess(t, programs) })
	parallel(t, "no record", func(t *testing.T) { testNoRecord(t, programs) })
	for _, step := range []faultdriver.Step{faultdriver.StepCreate, faultdriver.StepMade, faultdriver.StepTold} {
		parallel(t, "rm beside a create/"+string(step), func(t *testing.T) { testRemovalBesideCreate(t, programs, step) })
	}
	parallel(t, "late backend", func(t *testing.T) { testLateBackend(t, programs) })
	parallel(t, "lying backend", func(t *testing.T) { testLyingBackend(t, programs) })
	parallel(t, "lagging listing", func(t *testing.T) { testLaggingListing(t, programs) })
	parallel(t, "owners", func(t *testing.T) { testOwners(t, programs) })
	parallel(t, "damaged record", func(t *testing.T) { testDamagedRecord(t, programs) })
}

// A gc that has read the ledger before a create finished must not take it for cut off.
func testGCBesideCreate(t *testing.T, programs string) {
	p := newFaultyPlace(t, programs, "")
	p.closeGate(faultdriver.StepTold)
	create := p.start("create", "--network", "open", "--name", "box")
	p.awaitState("created")
	p.closeGate(faultdriver.StepList)
	gc := p.start("gc", "--json")
	p.awaitGate(faultdriver.StepList)
	p.openGate(faultdriver.StepTold)
	if code := create.wait(); code != 0 {
		t.Fatalf("create: exit %d: %s", code, create.stderr)
	}
	p.openGate(faultdriver.StepList)
	if code := gc.wait(); code != 0 || !strings.Contains(gc.stdout.String(), `"removed":[]`) {
		t.Errorf("gc: exit %d: %s", code, gc.stdout)
	}
	if left := p.check(); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}

func testGCBesideRenewal(t *testing.T, programs string) {
	p := newFaultyPlace(t, programs, "")
	p.create("box", "--ttl", "1s")
	time.Sleep(time.Second)
	p.closeGate(faultdriver.StepList)
	gc := p.start("gc", "--json")
	p.awaitGate(faultdriver.StepList)
	p.must("renew", "box", "--ttl", "1h")
	p.openGate(faultdriver.StepList)
	if code := gc.wait(); code != 0 || !strings.Contains(gc.stdout.String(), `"removed":[]`) {
		t.Errorf("gc: exit %d: %s", code, gc.stdout)
	}
	if left := p.check(); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}

// Two sweeps at once remove everything once, and neither fails.
func testTwoGCs(t *testing.T, programs string) {
	p := newFaultyPlace(t, programs, "")
	names := []string{"box1", "box2", "box3"}
	for _, name := range names {
		p.create(name, "--ttl", "1ms")
	}
	p.closeGate(faultdriver.StepDestroy)
	one, two := p.start("gc", "--json"), p.start("gc", "--json")
	p.awaitGate(faultdriver.StepDestroy)
	p.openGate(faultdriver.StepDestroy)
	removed := []string{}
	for _, gc := range []*running{one, two} {
		code := gc.wait()
		var said collected
		if err := json.Unmarshal([]byte(gc.stdout.String()), &said); err != nil || code != 0 {
			t.Errorf("gc: exit %d: %s", code, gc.stdout)
		}
		removed = append(removed, said.names()...)
	}
	if slices.Sort(removed); !slices.Equal(removed, names) {
		t.Errorf("removed: %q", removed)
	}
	p.check()
}

func testOneBadCandidate(t *testing.T, programs string) {
	p := newFaultyPlace(t, programs, "")
	p.create("bad", "--ttl", "1ms", "--opt", "fault=destroy-fails")
	for _, name := range []string{"good1", "good2"} {
		p.create(name, "--ttl", "1ms")
	}
	said := p.gc(7)
	if names := said.names(); !slices.Equal(names, []string{"good1", "good2"}) {
		t.Errorf("removed: %q", names)
	}
	if len(said.Errors) != 1 || said.Errors[0].Sandbox != "bad" || said.Errors[0].Class != "unavailable" {
		t.Errorf("errors: %+v", said.Errors)
	}
	if listed := p.must("ls", "-q"); listed != "bad\n" {
		t.Errorf("listed: %q", listed)
	}
}

// Whether a process on another host is alive cannot be known. Its unfinished create is
// left alone until its lease ends, and anybody may remove it by name.
func testUnknownProcess(t *testing.T, programs string) {
	p := newFaultyPlace(t, programs, "")
	for _, ttl := range []string{"1h", "0"} {
		p.closeGate(faultdriver.StepTold)
		create := p.start("create", "--network", "open", "--name", "box", "--ttl", ttl)
		p.awaitGate(faultdriver.StepTold)
		p.awaitState("created")
		create.signal(syscall.SIGKILL)
		create.wait()
		p.awaitNoDriver()
		p.openGate(faultdriver.StepTold)
		var id string
		for id = range p.records() {
		}
		file := filepath.Join(p.state, "records", id+".json")
		editJSON(t, file, func(record map[string]any) {
			record["process"] = map[string]any{"pid": 1, "start": "1", "boot": "another", "host": "another"}
		})
		if said := p.gc(0); len(said.Removed) != 0 {
			t.Errorf("with a ttl of %s gc has removed %+v", ttl, said)
		}
		if ttl == "0" {
			p.must("rm", "box")
			continue
		}
		editJSON(t, file, func(record map[string]any) {
			record["expires_at"] = time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
		})
		if said := p.gc(0); len(said.Removed) != 1 || said.Removed[0].Reason != "expired" {
			t.Errorf("after its expiry gc has removed %+v", said)
		}
	}
	p.collect()
	if left := p.check(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A sandbox of ours that the ledger has lost is shown, and stays until it expires.
func testNoRecord(t *testing.T, programs string) {
	p := newFaultyPlace(t, programs, "")
	id := p.create("box")
	if err := os.Remove(filepath.Join(p.state, "records", id+".json")); err != nil {
		t.Fatal(err)
	}
	if said := p.gc(0); len(said.Removed) > 0 {
		t.Errorf("gc has removed %+v", said)
	}
	for _, flags := range [][]string{{"--all"}, {"--driver", "faulty"}} {
		listed := p.must(append([]string{"ls", "--json"}, flags...)...)
		if !strings.Contains(listed, id) || !strings.Contains(listed, `"mine":true`) {
			t.Errorf("ls %q: %s", flags, listed)
		}
	}
	p.expireAt(id, time.Now().Add(-6*time.Minute))
	if said := p.gc(0); len(said.Removed) != 1 || !said.Removed[0].Mine {
		t.Errorf("after its expiry gc has removed %+v", said)
	}
}

// Whoever removes a sandbox that is being created wins; the create undoes itself.
func testRemovalBesideCreate(t *testing.T, programs string, step faultdriver.Step) {
	p := newFaultyPlace(t, programs, "")
	p.closeGate(step)
	create := p.start("create", "--json", "--network", "open", "--name", "box", "--ttl", "0")
	p.awaitGate(step)
	if step == faultdriver.StepTold {
		p.awaitState("created")
	}
	p.must("rm", "box")
	p.openGate(step)
	if code := create.wait(); code != 6 || !strings.Contains(create.stdout.String(), `"class":"conflict"`) {
		t.Errorf("create: exit %d: %s", code, create.stdout)
	}
	if left := p.check(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A backend may finish a create after its caller has died and gc has looked for it.
func testLateBackend(t *testing.T, programs string) {
	p := newFaultyPlace(t, programs, "")
	p.closeGate(faultdriver.StepCreate)
	create := p.start("create", "--network", "open", "--name", "box", "--ttl", "0")
	p.awaitGate(faultdriver.StepCreate)
	create.signal(syscall.SIGKILL)
	create.wait()
	p.awaitNoDriver()
	p.openGate(faultdriver.StepCreate)
	var late string
	for late = range p.records() {
	}
	if said := p.gc(0); len(said.Removed) != 1 || said.Removed[0].Reason != "unfinished" {
		t.Errorf("gc has removed %+v", said)
	}
	other := p.create("box", "--ttl", "0")
	content, err := os.ReadFile(filepath.Join(p.backend, other+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.backend, late+".json"), []byte(strings.ReplaceAll(string(content), other, late)), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := p.gc(0); len(said.Removed) != 1 || said.Removed[0].ID != late || !said.Removed[0].Mine {
		t.Errorf("gc has removed %+v", said)
	}
	p.ageSockets()
	p.collect()
	if left := p.check(); !slices.Equal(left, []string{other}) {
		t.Errorf("left: %q", left)
	}
}

// A driver may fail a create, leave what it has made and not say so.
func testLyingBackend(t *testing.T, programs string) {
	p := newFaultyPlace(t, programs, "")
	if code, stdout := p.run("create", "--network", "open", "--name", "box", "--ttl", "0", "--opt", "fault=create-lies"); code != 1 {
		t.Fatalf("create: exit %d, %s", code, stdout)
	}
	if said := p.gc(0); len(said.Removed) != 1 || said.Removed[0].Name != "box" {
		t.Errorf("gc has removed %+v", said)
	}
	if left := p.check(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A sandbox that is missing in the listing, and there when asked for, stays.
func testLaggingListing(t *testing.T, programs string) {
	p := newFaultyPlace(t, programs, "")
	id := p.create("box")
	away := filepath.Join(p.dir, "away")
	file := filepath.Join(p.backend, id+".json")
	p.closeGate(faultdriver.StepList)
	gc := p.start("gc", "--json")
	p.awaitGate(faultdriver.StepList)
	if err := os.Rename(file, away); err != nil {
		t.Fatal(err)
	}
	p.closeGate(faultdriver.StepInspect)
	p.openGate(faultdriver.StepList)
	p.awaitGate(faultdriver.StepInspect)
	if err := os.Rename(away, file); err != nil {
		t.Fatal(err)
	}
	p.openGate(faultdriver.StepInspect)
	if code := gc.wait(); code != 0 || !strings.Contains(gc.stdout.String(), `"removed":[]`) {
		t.Errorf("gc: exit %d: %s", code, gc.stdout)
	}
	if left := p.check(); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}

// Two owners share an account. Each removes what has expired, allowing for the other's
// clock, and nobody touches what is alive or not made by sandboxctl.
func testOwners(t *testing.T, programs string) {
	a := newFaultyPlace(t, programs, "")
	b := newFaultyPlace(t, programs, a.backend)
	ids := map[string]string{}
	for name, ago := range map[string]time.Duration{"live": -time.Hour, "late": 4 * time.Minute, "expired": 6 * time.Minute, "unowned": time.Hour, "alien": time.Hour} {
		ids[name] = a.create(name)
		a.expireAt(ids[name], time.Now().Add(-ago))
	}
	a.create("forever", "--ttl", "0")
	editJSON(t, filepath.Join(a.backend, ids["unowned"]+".json"), func(stored map[string]any) {
		delete(stored["sandbox"].(map[string]any), "owner")
	})
	editJSON(t, filepath.Join(a.backend, ids["alien"]+".json"), func(stored map[string]any) {
		stored["sandbox"].(map[string]any)["id"] = "i-0123456789"
	})
	if names := b.gc(0, "--dry-run").names(); !slices.Equal(names, []string{"expired"}) {
		t.Errorf("B's dry run: %q", names)
	}
	if said := b.gc(0); !slices.Equal(said.names(), []string{"expired"}) || said.Removed[0].Mine {
		t.Errorf("B has removed %+v", said)
	}
	if listed := b.must("ls", "-q"); listed != "" {
		t.Errorf("B lists %q", listed)
	}
	for _, name := range []string{"live", "late", "forever"} {
		if listed := b.must("ls", "-q", "--all"); !strings.Contains(listed, name+"\n") {
			t.Errorf("A's %s is not listed: %q", name, listed)
		}
	}
	// With its state lost, A is somebody else.
	if err := os.RemoveAll(a.state); err != nil {
		t.Fatal(err)
	}
	a.expireAt(ids["late"], time.Now().Add(-6*time.Minute))
	if said := a.gc(0); !slices.Equal(said.names(), []string{"late"}) || said.Removed[0].Mine {
		t.Errorf("without its state A has removed %+v", said)
	}
	if left := a.sandboxes(); len(left) != 4 {
		t.Errorf("left: %q of %q", left, ids)
	}
}

// A damaged record is told of and hides nothing else.
func testDamagedRecord(t *testing.T, programs string) {
	p := newFaultyPlace(t, programs, "")
	damaged, good := p.create("damaged"), p.create("good")
	file := filepath.Join(p.state, "records", damaged+".json")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for what, content := range map[string]string{"cut": string(whole[:len(whole)/2]), "empty": "", "edited": strings.Replace(string(whole), `"ready"`, `"well"`, 1)} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		ls := p.start("ls", "--offline", "-q")
		if code := ls.wait(); code != 0 || ls.stdout.String() != "good\n" || strings.Count(ls.stderr.String(), file) != 1 {
			t.Errorf("%s: ls: exit %d, %q, %q", what, code, ls.stdout, ls.stderr)
		}
		if said := p.gc(7); len(said.Errors) != 1 || said.Errors[0].Sandbox != damaged || len(said.Removed) > 0 {
			t.Errorf("%s: gc: %+v", what, said)
		}
		rm := p.start("rm", "damaged")
		if code := rm.wait(); code != 1 || !strings.Contains(rm.stderr.String(), "repair or delete it") {
			t.Errorf("%s: rm: exit %d, %q", what, code, rm.stderr)
		}
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	p.must("rm", "damaged", "good")
	if left := p.check(); len(left) > 0 {
		t.Errorf("left: %q (good was %s)", left, good)
	}
}
