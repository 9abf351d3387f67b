package conformance

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func lifecycleCases() []Case {
	return []Case{
		{
			ID: "lifecycle.info", Group: GroupLifecycle, run: checkInfo,
			Reason: "what a driver says of itself is shown to users and decides what is refused",
			Source: "design 3",
		},
		{
			ID: "lifecycle.create-usable", Group: GroupLifecycle, run: checkCreateUsable,
			Reason: "a create that returns before commands can run makes every first exec a race",
			Source: "airflow 1",
		},
		{
			ID: "lifecycle.early-handle", Group: GroupLifecycle, run: checkEarlyHandle,
			Reason: "a host that dies during create can only find the sandbox by a handle it was told in time",
			Source: "reports 35; design 3",
		},
		{
			ID: "lifecycle.list", Group: GroupLifecycle, run: checkList,
			Reason: "gc on another machine has nothing but what List says of identity, owner and expiry",
			Source: "airflow 17; reports 39",
		},
		{
			ID: "lifecycle.labels", Group: GroupLifecycle, Needs: []Need{needsLabels}, run: checkLabels,
			Reason: "labels that come back changed select the wrong sandboxes",
			Source: "airflow 17; reports 47",
		},
		{
			ID: "lifecycle.inspect", Group: GroupLifecycle, run: checkInspect,
			Reason: "Inspect and List must tell the same story",
			Source: "design 3",
		},
		{
			ID: "lifecycle.request-id", Group: GroupLifecycle, run: checkRequestID,
			Reason: "a create whose answer was lost is repeated, and must not make a second sandbox",
			Source: "airflow 8",
		},
		{
			ID: "lifecycle.failed-create", Group: GroupLifecycle, Needs: []Need{needsImage}, run: checkFailedCreate,
			Reason: "a failed create must leave nothing behind, and is about the image, not about a lost sandbox",
			Source: "airflow 5; reports 36, 42", Limit: 3 * time.Minute,
		},
		{
			ID: "lifecycle.cancelled-create", Group: GroupLifecycle, run: checkCancelledCreate,
			Reason: "Ctrl-C during create must end within five seconds without an orphan",
			Source: "airflow 7; reports 34, 69",
		},
		{
			ID: "lifecycle.second-process", Group: GroupLifecycle, run: checkSecondProcess,
			Reason: "every command of the CLI is a new driver process; a sandbox may not live in one of them",
			Source: "airflow 15",
		},
	}
}

func checkInfo(t *T) {
	info := t.info()
	if !regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`).MatchString(info.Name) {
		t.Errorf("the name %q is not a lower-case letter and up to 31 letters, digits and dashes", info.Name)
	}
	if info.Version == "" {
		t.Errorf("the version is empty")
	}
	if info.Description == "" || strings.ContainsAny(info.Description, "\n\x1b") {
		t.Errorf("the description %q is not one line of text", info.Description)
	}
	capabilities := info.Capabilities
	if !capabilities.Network.None && !capabilities.Network.Open {
		t.Errorf("neither network none nor open is claimed, so no sandbox could be made")
	}
	if match := capabilities.Network.AllowHosts; match != "" && !slices.Contains([]plugin.HostMatch{plugin.MatchAddress, plugin.MatchSNI, plugin.MatchProxy}, match) {
		t.Errorf("network.allow_hosts is %q", match)
	}
	if capabilities.Files.Files && capabilities.Files.SymlinkWrite != plugin.SymlinkFollow && capabilities.Files.SymlinkWrite != plugin.SymlinkReplace {
		t.Errorf("files are claimed, but symlink_write is %q, neither follow nor replace", capabilities.Files.SymlinkWrite)
	}
	if capabilities.Lease.MaxTTL > 0 && capabilities.Lease.MinTTL > capabilities.Lease.MaxTTL {
		t.Errorf("the shortest lifetime %v is above the longest %v", capabilities.Lease.MinTTL, capabilities.Lease.MaxTTL)
	}
	if capabilities.Isolation == "" {
		t.Errorf("capabilities.isolation does not say what keeps the guest in")
	}
}

func checkCreateUsable(t *T) {
	spec := t.session.spec()
	sandbox, err := t.create(spec, &recorder{})
	if err != nil {
		t.Fatalf("create failed: %v", err)
	}
	if sandbox.ID != spec.ID {
		t.Errorf("the sandbox's id is %q, want %q", sandbox.ID, spec.ID)
	}
	if len(sandbox.Handle) == 0 {
		t.Errorf("the sandbox has no handle")
	}
	if sandbox.State != plugin.StateRunning {
		t.Errorf("the sandbox's state is %q, want running", sandbox.State)
	}
	t.wantExit("the first command", t.open(sandbox).exec(&plugin.ExecRequest{Argv: []string{"true"}}), 0)
}

func checkEarlyHandle(t *T) {
	events := &recorder{}
	spec := t.session.spec()
	sandbox, err := t.create(spec, events)
	if err != nil {
		t.Fatalf("create failed: %v", err)
	}
	if len(events.handles) == 0 {
		t.Fatalf("create never told a handle on its way")
	}
	last := events.handles[len(events.handles)-1]
	if len(last) == 0 {
		t.Errorf("create told an empty handle")
	}
	// The early handle must do, since a killed host has no other.
	early := t.open(sandbox)
	early.ref.Handle = last
	t.wantExit("a command with the early handle", early.exec(&plugin.ExecRequest{Argv: []string{"true"}}), 0)
}

// row finds a sandbox in the driver's list.
func (t *T) row(id string) *plugin.Sandbox {
	list, err := t.driver().List(t.ctx, plugin.ListRequest{})
	if err != nil {
		t.Fatalf("list failed: %v", err)
	}
	var found *plugin.Sandbox
	for _, sandbox := range list.Sandboxes {
		if sandbox.ID == id {
			if found != nil {
				t.Errorf("sandbox %s is listed twice", id)
			}
			found = sandbox
		}
	}
	return found
}

func checkList(t *T) {
	spec := t.session.spec()
	sandbox, err := t.create(spec, &recorder{})
	if err != nil {
		t.Fatalf("create failed: %v", err)
	}
	row := t.row(spec.ID)
	if row == nil {
		t.Fatalf("the sandbox is not listed")
	}
	t.sameSandbox("the row", row, spec)
	if !bytes.Equal(row.Handle, sandbox.Handle) {
		t.Errorf("the row's handle is %q, the create's was %q", row.Handle, sandbox.Handle)
	}
	owned, err := t.driver().List(t.ctx, plugin.ListRequest{Owner: t.session.owner})
	if err != nil {
		t.Fatalf("list by owner failed: %v", err)
	}
	if !slices.ContainsFunc(owned.Sandboxes, func(s *plugin.Sandbox) bool { return s.ID == spec.ID }) {
		t.Errorf("the sandbox is missing from its owner's list")
	}
}

func (t *T) sameSandbox(what string, got *plugin.Sandbox, spec *plugin.SandboxSpec) {
	for _, field := range []struct{ name, got, want string }{
		{"id", got.ID, spec.ID}, {"name", got.Name, spec.Name}, {"owner", got.Owner, spec.Owner},
		{"state", string(got.State), string(plugin.StateRunning)},
	} {
		if field.got != field.want {
			t.Errorf("%s has the %s %q, want %q", what, field.name, field.got, field.want)
		}
	}
	if difference := got.CreatedAt.Sub(spec.CreatedAt).Abs(); difference > 5*time.Minute {
		t.Errorf("%s was created at %v, want %v", what, got.CreatedAt, spec.CreatedAt)
	}
}

func checkLabels(t *T) {
	// What Kubernetes takes is what most backends can hold.
	labels := map[string]string{"team": "data", "run-id": "manual__2026-11-29T10.00.00", "dotted.key": "1.2_3-4", "long": strings.Repeat("v", 63)}
	box := t.fresh(func(spec *plugin.SandboxSpec) { spec.Labels = labels })
	row := t.row(box.ref.ID)
	if row == nil {
		t.Fatalf("the sandbox is not listed")
	}
	for key, want := range labels {
		if got, ok := row.Labels[key]; !ok || got != want {
			t.Errorf("label %q came back as %q, want %q", key, got, want)
		}
	}
	for key := range row.Labels {
		if _, ours := labels[key]; !ours {
			t.Errorf("label %q came back, but was not given", key)
		}
	}
}

func checkInspect(t *T) {
	spec := t.session.spec()
	sandbox, err := t.create(spec, &recorder{})
	if err != nil {
		t.Fatalf("create failed: %v", err)
	}
	seen, err := t.driver().Inspect(t.ctx, plugin.Ref{ID: sandbox.ID, Handle: sandbox.Handle})
	if err != nil {
		t.Fatalf("inspect failed: %v", err)
	}
	t.sameSandbox("inspect", seen, spec)
	_, err = t.driver().Inspect(t.ctx, plugin.Ref{ID: "sb-" + random(12)})
	t.wantKind("inspecting a sandbox that never was", err, plugin.KindNotFound)
}

func checkRequestID(t *T) {
	spec := t.session.spec()
	first, err := t.create(spec, &recorder{})
	if err != nil {
		t.Fatalf("create failed: %v", err)
	}
	again, err := t.create(spec, &recorder{})
	if err != nil {
		t.Fatalf("the repeated create failed: %v", err)
	}
	if again.ID != first.ID || !bytes.Equal(again.Handle, first.Handle) {
		t.Errorf("the repeated create returned %s %q, the first %s %q", again.ID, again.Handle, first.ID, first.Handle)
	}
	if t.row(spec.ID) == nil {
		t.Errorf("the sandbox is not listed")
	}
}

func checkFailedCreate(t *T) {
	spec := t.session.spec()
	spec.Image = "conformance.invalid/there/is:nothing"
	_, err := t.create(spec, &recorder{})
	t.wantKind("create with an image that does not exist", err, plugin.KindInvalid, plugin.KindUnavailable, plugin.KindAuth, plugin.KindRefused)
	if row := t.row(spec.ID); row != nil {
		t.Errorf("the failed create left a sandbox in state %s", row.State)
	}
}

func checkCancelledCreate(t *T) {
	// Cancelled at once, and when something exists already.
	for _, moment := range []string{"at once", "after the handle was told"} {
		ctx, cancel := context.WithCancel(t.ctx)
		defer cancel()
		spec := t.session.spec()
		events := &recorder{created: cancel}
		if moment == "at once" {
			events.created = nil
			time.AfterFunc(20*time.Millisecond, cancel)
		}
		started := time.Now()
		_, err := t.createWith(ctx, spec, events)
		if took := time.Since(started); ctx.Err() != nil && took > promptly {
			t.Errorf("a create that was cancelled %s took %v", moment, took.Round(time.Millisecond))
		}
		if err == nil {
			continue // it was done before the cancel arrived, which is no failure
		}
		if row := t.row(spec.ID); row != nil && !t.eventually(promptly, func() bool { return t.row(spec.ID) == nil }) {
			t.Errorf("a create that was cancelled %s left a sandbox behind", moment)
		}
	}
}

func checkSecondProcess(t *T) {
	box := t.fresh().mkdir()
	second, err := t.session.target.Start(t.ctx)
	if err != nil {
		t.Fatalf("the driver could not be started a second time: %v", err)
	}
	defer second.Close()
	var stdout bytes.Buffer
	status, err := second.Exec(t.ctx, box.ref, shell("printf here"), &plugin.ExecIO{Stdout: &stdout, Stderr: &bytes.Buffer{}})
	t.wantExit("a command by a second process", ran{status: status, err: err}, 0)
	t.wantText("its output", stdout.String(), "here")
	gone, err := second.Destroy(t.ctx, box.ref)
	if err != nil || gone {
		t.Errorf("destroy by a second process: already gone %v, %v", gone, err)
	}
	if t.row(box.ref.ID) != nil {
		t.Errorf("the first process still lists what the second one destroyed")
	}
}
