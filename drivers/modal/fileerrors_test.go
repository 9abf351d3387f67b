package modal

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	modalsdk "github.com/modal-labs/modal-client/go"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// An upload that Modal does not take is given up, and later the larger it is.
func TestStalledUploadIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &file{driver: New(), path: "/tmp/x"}
		began := time.Now()
		err := f.limited(t.Context(), 64<<20, func(ctx context.Context) error {
			<-ctx.Done()
			return modalsdk.NotFoundError{Exception: "The Sandbox is unavailable"}
		})
		if plugin.KindOf(err) != plugin.KindUnavailable {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took <= fileLimit || took > time.Hour {
			t.Errorf("it took %s", took)
		}
	})
}

// Nobody is left to be told whether the sandbox lives, so it is not asked.
func TestCancelledFileCallAsksNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := &file{driver: New(), path: "/tmp/x"} // without a sandbox to ask
	if err := f.explain(ctx, "stat", modalsdk.NotFoundError{Exception: "The Sandbox is unavailable"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
