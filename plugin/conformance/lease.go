package conformance

import (
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// patience is how long after its expiry a sandbox may still be there.
const patience = 30 * time.Second

// shortest is the longest shortest lifetime that a case waits for.
const shortest = 90 * time.Second

func leaseCases() []Case {
	return []Case{
		{
			ID: "lease.expiry-told", Group: GroupLease, run: checkExpiryTold,
			Reason: "gc and users go by the expiry that create and list tell",
			Source: "airflow 17; design 7",
		},
		{
			ID: "lease.unlimited", Group: GroupLease, Needs: []Need{needsUnlimited}, run: checkUnlimited,
			Reason: "a sandbox without an expiry has none",
			Source: "design 7",
		},
		{
			ID: "lease.exec-keeps-it", Group: GroupLease, run: checkExecKeepsLease,
			Reason: "using a sandbox must not shorten its life",
			Source: "reports 38",
		},
		{
			ID: "lease.ttl", Group: GroupLease, Needs: []Need{needsTTL}, Limit: 4 * time.Minute, run: checkTTL,
			Reason: "a lifetime that the backend is said to enforce ends the sandbox without sandboxctl, and not before",
			Source: "airflow 18; reports 37",
		},
		{
			ID: "lease.renew", Group: GroupLease, Needs: []Need{needsRenew}, run: checkRenew,
			Reason: "a renewed lease is told, and a driver that is asked to keep it longer does",
			Source: "design 3",
		},
		{
			ID: "lease.renew-in-force", Group: GroupLease, Needs: []Need{needsRenew, needsTTL}, Limit: 4 * time.Minute, run: checkRenewInForce,
			Reason: "a renewed lease keeps the sandbox alive beyond its first expiry",
			Source: "design 3",
		},
		{
			ID: "lease.idle", Group: GroupLease, Needs: []Need{needsIdleTimeout}, Limit: 4 * time.Minute, run: checkIdle,
			Reason: "a sandbox that nobody uses ends by itself; one that is used does not",
			Source: "design 3",
		},
	}
}

// near says whether a backend's expiry is the one that was asked for, but for rounding.
func near(got, want time.Time) bool { return got.Sub(want).Abs() <= 5*time.Second }

func checkExpiryTold(t *T) {
	spec := t.session.spec()
	sandbox, err := t.create(spec, &recorder{})
	if err != nil {
		t.Fatalf("create failed: %v", err)
	}
	if !near(sandbox.ExpiresAt, spec.ExpiresAt) {
		t.Errorf("create says that it expires at %v, want %v", sandbox.ExpiresAt, spec.ExpiresAt)
	}
	if row := t.row(spec.ID); row == nil || !near(row.ExpiresAt, spec.ExpiresAt) {
		t.Errorf("list does not say that it expires at %v", spec.ExpiresAt)
	}
}

func checkUnlimited(t *T) {
	box := t.fresh(func(spec *plugin.SandboxSpec) { spec.ExpiresAt = time.Time{} })
	if !box.sandbox.ExpiresAt.IsZero() {
		t.Errorf("create says that it expires at %v", box.sandbox.ExpiresAt)
	}
	if row := t.row(box.ref.ID); row == nil || !row.ExpiresAt.IsZero() {
		t.Errorf("list has no row for it without an expiry")
	}
}

func checkExecKeepsLease(t *T) {
	box := t.fresh()
	before := t.row(box.ref.ID)
	t.wantExit("a command", box.exec(&plugin.ExecRequest{Argv: []string{"true"}}), 0)
	after := t.row(box.ref.ID)
	if before == nil || after == nil {
		t.Fatalf("the sandbox is not listed")
	}
	if after.ExpiresAt.Before(before.ExpiresAt) || before.ExpiresAt.IsZero() != after.ExpiresAt.IsZero() {
		t.Errorf("a command moved the expiry from %v to %v", before.ExpiresAt, after.ExpiresAt)
	}
}

// brief is a short lifetime that the driver takes, or the case is skipped.
func (t *T) brief(wanted time.Duration) time.Duration {
	lease := t.session.lease(wanted)
	if lease > shortest {
		t.Skipf("the driver's shortest lifetime is %v, which is too long to wait for", lease)
	}
	return lease
}

// gone says whether a sandbox is neither listed nor usable.
func (b *box) gone() bool {
	if b.t.row(b.ref.ID) != nil {
		return false
	}
	return plugin.KindOf(b.exec(&plugin.ExecRequest{Argv: []string{"true"}}).err) == plugin.KindNotFound
}

func checkTTL(t *T) {
	lease := t.brief(20 * time.Second)
	var expires time.Time
	box := t.fresh(func(spec *plugin.SandboxSpec) {
		expires = time.Now().Add(lease)
		spec.ExpiresAt = expires
	})
	if time.Until(expires) > 2*time.Second {
		t.wantExit("a command before the expiry", box.exec(&plugin.ExecRequest{Argv: []string{"true"}}), 0)
	}
	if !t.eventually(time.Until(expires)+patience, box.gone) {
		t.Fatalf("the sandbox is there %v after its expiry", patience)
	}
	if early := time.Until(expires); early > 2*time.Second {
		t.Errorf("the sandbox was gone %v before its expiry", early.Round(time.Second))
	}
}

func checkRenew(t *T) {
	box := t.fresh(func(spec *plugin.SandboxSpec) { spec.ExpiresAt = time.Now().Add(t.session.lease(10 * time.Minute)) })
	wanted := time.Now().Add(t.session.lease(20 * time.Minute)).Truncate(time.Second)
	told, err := t.driver().Renew(t.ctx, box.ref, wanted)
	if err != nil {
		t.Fatalf("renew failed: %v", err)
	}
	if !near(told, wanted) {
		t.Errorf("renew says %v, want %v", told, wanted)
	}
	if row := t.row(box.ref.ID); row == nil || !near(row.ExpiresAt, wanted) {
		t.Errorf("list does not say that it expires at %v", wanted)
	}
	_, err = t.driver().Renew(t.ctx, plugin.Ref{ID: "sb-" + random(12)}, wanted)
	t.wantKind("renewing what never was", err, plugin.KindNotFound)
}

func checkRenewInForce(t *T) {
	lease := t.brief(20 * time.Second)
	first := time.Now().Add(lease)
	box := t.fresh(func(spec *plugin.SandboxSpec) { spec.ExpiresAt = first })
	if _, err := t.driver().Renew(t.ctx, box.ref, time.Now().Add(t.session.lease(10*time.Minute))); err != nil {
		t.Fatalf("renew failed: %v", err)
	}
	t.wait(time.Until(first) + 5*time.Second)
	t.wantExit("a command after the first expiry", box.exec(&plugin.ExecRequest{Argv: []string{"true"}}), 0)
}

// wait lets time pass, for cases that check that nothing happens in it.
func (t *T) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
	}
}

func checkIdle(t *T) {
	const idle = 15 * time.Second
	box := t.fresh(func(spec *plugin.SandboxSpec) { spec.IdleTimeout = idle })
	t.wantExit("a command that outlasts the idle timeout", box.exec(shell("sleep 18")), 0)
	t.wantExit("a command right after it", box.exec(&plugin.ExecRequest{Argv: []string{"true"}}), 0)
	// Looking at it by exec would be use.
	if !t.eventually(idle+patience, func() bool { return t.row(box.ref.ID) == nil }) {
		t.Errorf("the sandbox is there %v after its last use, with an idle timeout of %v", idle+patience, idle)
	}
}
