package network

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// clock is a time that only moves when told.
type clock struct{ time.Time }

func newClock() *clock          { return &clock{time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)} }
func (c *clock) now() time.Time { c.Time = c.Add(time.Second); return c.Time }

func TestAccessLog(t *testing.T) {
	log := newAccessLog(newClock().now)
	to := netip.MustParseAddrPort("203.0.113.1:443")
	log.add(target(Refused, TCP, "a.example.net", to, reasonNoMatch))
	log.add(target(Allowed, TCP, "a.example.net", to, ""))
	log.add(target(Refused, TCP, "a.example.net", to, reasonNoMatch))
	got := log.list()
	if len(got) != 2 || got[0].Verdict != Allowed || got[1].Count != 2 || got[1].Last.Sub(got[1].First) != 2*time.Second {
		t.Fatalf("%+v", got)
	}
	text, err := json.Marshal(got[1])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"verdict":"refused","protocol":"tcp","host":"a.example.net","address":"203.0.113.1","port":443,"reason":"` + reasonNoMatch +
		`","count":2,"first":"2030-01-02T03:04:06Z","last":"2030-01-02T03:04:08Z"}`
	if string(text) != want {
		t.Errorf("%s\nwant %s", text, want)
	}
}

func TestAccessLogIsBounded(t *testing.T) {
	log := newAccessLog(newClock().now)
	const attempts = 20000
	for i := range attempts {
		verdict := Refused
		if i%2 == 0 {
			verdict = Allowed
		}
		log.add(Access{Verdict: verdict, Protocol: DNS, Host: fmt.Sprintf("h%d.example.net", i)})
	}
	list := log.list()
	if len(list) > maxAccesses {
		t.Errorf("%d entries", len(list))
	}
	var sum uint64
	folded := 0
	for i, each := range list {
		sum += each.Count
		if each.Reason == reasonFolded {
			folded++
		}
		if i > 0 && each.Last.Before(list[i-1].Last) {
			t.Errorf("entry %d is out of order", i)
		}
	}
	if sum != attempts || folded != 2 {
		t.Errorf("the entries count %d attempts, %d are folded", sum, folded)
	}
	if newest := list[len(list)-1]; newest.Host != fmt.Sprintf("h%d.example.net", attempts-1) {
		t.Errorf("the newest is %+v", newest)
	}
}

func TestAnswers(t *testing.T) {
	now := newClock()
	known := newAnswers(func() time.Time { return now.Time })
	a, b := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2")
	known.add("zero.example.net", a, 0)
	known.add("long.example.net", b, 1000*time.Hour)
	expect := func(addr netip.Addr, host string, current bool) {
		t.Helper()
		if got := known.lookup(addr); got != (answered{host, current}) {
			t.Errorf("%s: %+v", addr, got)
		}
	}
	expect(a, "zero.example.net", true)
	now.Time = now.Add(minAnswerLife)
	expect(a, "zero.example.net", true)
	now.Time = now.Add(1)
	expect(a, "zero.example.net", false)
	now.Time = now.Add(maxTTL - minAnswerLife)
	expect(b, "long.example.net", false)
	known.add("minute.example.net", a, time.Minute)
	known.add("zero.example.net", a, 0)
	now.Time = now.Add(time.Minute)
	expect(a, "zero.example.net", true)
	expect(netip.MustParseAddr("203.0.113.3"), "", false)
	for i := range 3 * maxAnswers {
		known.add("many.example.net", netip.AddrFrom4([4]byte{5, 6, byte(i >> 8), byte(i)}), time.Duration(i)*time.Second)
	}
	if n := len(known.addresses); n > maxAnswers {
		t.Errorf("%d addresses are remembered", n)
	}
}
