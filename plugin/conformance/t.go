package conformance

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// abort ends a case from within.
type abort struct{}

// T is what a running case reports to, much like testing.T.
type T struct {
	ctx     context.Context
	session *Session
	name    string

	mu       sync.Mutex
	failures []string
	skipped  string
	cleanups []func()
}

func (t *T) run(do func(t *T)) {
	defer func() {
		for len(t.cleanups) > 0 {
			last := t.cleanups[len(t.cleanups)-1]
			t.cleanups = t.cleanups[:len(t.cleanups)-1]
			last()
		}
	}()
	defer func() {
		switch cause := recover().(type) {
		case nil, abort:
		default:
			t.Errorf("the case itself panicked: %v\n%s", cause, debug.Stack())
		}
	}()
	do(t)
}

func (t *T) outcome() (Outcome, string) {
	switch {
	case len(t.failures) > 0:
		return Failed, strings.Join(t.failures, "; ")
	case t.skipped != "":
		return Skipped, t.skipped
	}
	return Passed, ""
}

// Errorf notes a failure and goes on. It may be called from any goroutine.
func (t *T) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const most = 10
	if len(t.failures) < most {
		t.failures = append(t.failures, fmt.Sprintf(format, args...))
	}
}

// Fatalf notes a failure and ends the case.
func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	panic(abort{})
}

// Skipf ends the case because it cannot be looked at here.
func (t *T) Skipf(format string, args ...any) {
	t.skipped = fmt.Sprintf(format, args...)
	panic(abort{})
}

func (t *T) cleanup(do func()) { t.cleanups = append(t.cleanups, do) }

func (t *T) info() plugin.Info { return t.session.driver.Info }

func (t *T) driver() *Driver { return t.session.driver }
