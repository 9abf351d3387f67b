package ledger

import "testing"

func FuzzParseStat(f *testing.F) {
	const tail = " 1 1 1 0 -1 4194304 100 0 0 0 0 0 0 0 20 0 1 0 42661 3133440"
	f.Add("4805 (cat) R" + tail)
	f.Add("1 (a) b) (c) S" + tail)
	f.Add("1 (dead) Z" + tail)
	f.Add("")
	for stat, want := range map[string]string{"4805 (cat) R" + tail: "42661", "1 (a) b) (c) S" + tail: "42661", "1 (dead) Z" + tail: ""} {
		if got, err := parseStat(stat); got != want || err != nil {
			f.Errorf("%q gives %q, %v; want %q", stat, got, err, want)
		}
	}
	f.Fuzz(func(t *testing.T, stat string) {
		if start, err := parseStat(stat); err != nil && start != "" {
			t.Errorf("a start time %q with an error", start)
		}
	})
}
