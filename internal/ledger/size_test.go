package ledger

import (
	"encoding/json"
	"strings"
	"testing"
)

// What is too large to be read again is refused, and what was there stays: a driver
// must not be able to make its sandbox unreadable.
func TestRecordIsNeverTooLargeToBeRead(t *testing.T) {
	l := open(t, t.TempDir())
	large := strings.Repeat("x", maxRecord)
	if r, err := l.Begin(t.Context(), Intent{Driver: "fake", Spec: json.RawMessage(`"` + large + `"`)}); err == nil {
		t.Errorf("a spec of a megabyte was taken: %s", r.ID)
	}
	r := begin(t, l, "web")
	if _, err := l.SetCreated(t.Context(), r.ID, []byte(large)); err == nil {
		t.Error("a handle of a megabyte was taken")
	}
	if _, err := l.SetCreated(t.Context(), r.ID, []byte(large[:maxGrown-4096])); err != nil {
		t.Error(err)
	}
	ready := Ready{Reported: json.RawMessage(`"` + large + `"`)}
	if _, err := l.SetReady(t.Context(), r.ID, ready); err == nil {
		t.Error("a report of a megabyte was taken")
	}
	got, err := l.Get(r.ID)
	if err != nil || got.State != StateCreated {
		t.Errorf("the record is %+v, %v", got.State, err)
	}
	if _, err := l.SetGone(t.Context(), r.ID, "removed"); err != nil {
		t.Error(err)
	}
	records, problems, err := l.List(t.Context(), Filter{})
	if err != nil || len(records)+len(problems) != 0 {
		t.Errorf("left: %v %v %v", records, problems, err)
	}
}
