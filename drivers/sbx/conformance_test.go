package sbx

import (
	"context"
	"slices"
	"testing"

	"github.com/sandboxctl/sandboxctl/drivers/sbx/internal/sbxdouble"
	"github.com/sandboxctl/sandboxctl/plugin"
	"github.com/sandboxctl/sandboxctl/plugin/conformance"
	"github.com/sandboxctl/sandboxctl/plugin/conformance/conformancetest"
)

// checkedAgainst is what docs/conformance.md says of this driver.
const checkedAgainst = "double built from public facts, real binary not run"

// seeds give each generation other answers to what nobody has published. Bit 3 is
// always set: without it no sandbox has an open network under a deny-all preset, which
// the allow-lists of the suite need.
var seeds = map[string]int64{
	sbxdouble.Gen035: 1 << 3,
	sbxdouble.Gen039: allYes,
	sbxdouble.Gen042: mixed | 1<<3,
	sbxdouble.Gen045: allYes&^mixed | 1<<3,
}

// bulk are the cases that move much data or take long. What a generation prints and
// understands makes no difference to them, so they run on the newest alone.
var bulk = []string{
	"archive.200-mb", "archive.many-files", "files.50-mb", "files.list-20000", "files.slow-download", "output.50-mb", "output.endless", "output.slow-reader",
}

func TestConformance(t *testing.T) {
	conformancetest.Test(t, doubleTarget(t, sbxdouble.Gen045))
}

func TestConformanceOfOlderGenerations(t *testing.T) {
	for _, generation := range []string{sbxdouble.Gen035, sbxdouble.Gen039, sbxdouble.Gen042} {
		t.Run(generation, func(t *testing.T) {
			session, err := conformance.NewSession(t.Context(), doubleTarget(t, generation))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(session.Close)
			for _, c := range conformance.Cases() {
				if slices.Contains(bulk, c.ID) {
					continue
				}
				t.Run(c.ID, func(t *testing.T) {
					if !c.Serial {
						t.Parallel()
					}
					switch result := session.Run(t.Context(), c); result.Outcome {
					case conformance.Failed:
						t.Errorf("%s: %s (%s)", result.Detail, c.Reason, c.Source)
					case conformance.Skipped:
						t.Skip(result.Detail)
					}
				})
			}
		})
	}
}

func doubleTarget(t *testing.T, generation string) conformance.Target {
	double := sbxdouble.Install(t, sbxdouble.Config{Generation: generation, Seed: seeds[generation], Preset: sbxdouble.PresetDenyAll})
	stateDir := t.TempDir()
	return conformance.Target{
		CheckedAgainst: checkedAgainst,
		Start: func(ctx context.Context) (*conformance.Driver, error) {
			driver, err := start(ctx, stateDir, double.Path)
			if err != nil {
				return nil, err
			}
			info, err := driver.client.Info(ctx)
			return &conformance.Driver{Calls: closing{driver.client, driver.stop}, Info: info, PID: driver.pid}, err
		},
	}
}

// closing is a client whose process ends with Close.
type closing struct {
	*plugin.Client
	stop func()
}

func (c closing) Close() { c.stop() }
