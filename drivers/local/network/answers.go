package network

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// minAnswerLife makes an answer with a TTL of zero usable.
	minAnswerLife = 5 * time.Second
	// maxTTL bounds how long an answer opens an address. The answers that the guest
	// gets say the same.
	maxTTL = 24 * time.Hour
	// maxAnswers bounds the addresses that are remembered.
	maxAnswers = 4096
)

// answers remembers which name gave which address and until when. An expired answer
// is kept while there is room, to say later why an address is refused.
type answers struct {
	now func() time.Time

	mu        sync.Mutex
	addresses map[netip.Addr]given
}

type given struct {
	host  string
	until time.Time
}

func newAnswers(now func() time.Time) *answers {
	return &answers{now: now, addresses: map[netip.Addr]given{}}
}

// add notes that a name has an address.
func (a *answers) add(host string, addr netip.Addr, ttl time.Duration) {
	until := a.now().Add(min(max(ttl, minAnswerLife), maxTTL))
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.addresses[addr]; ok && known.until.After(until) {
		// Another answer opens it for longer; the shorter one takes nothing back.
		until = known.until
	} else if !ok && len(a.addresses) >= maxAnswers {
		a.forget()
	}
	a.addresses[addr] = given{host, until}
}

// forget makes room: what expires first goes first.
func (a *answers) forget() {
	type entry struct {
		addr  netip.Addr
		until time.Time
	}
	all := make([]entry, 0, len(a.addresses))
	for addr, each := range a.addresses {
		all = append(all, entry{addr, each.until})
	}
	slices.SortFunc(all, func(x, y entry) int { return cmp.Or(x.until.Compare(y.until), x.addr.Compare(y.addr)) })
	for _, each := range all[:maxAnswers/8] {
		delete(a.addresses, each.addr)
	}
}

// lookup returns what the guest was told of an address.
func (a *answers) lookup(addr netip.Addr) answered {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.addresses[addr]
	if !ok {
		return answered{}
	}
	return answered{host: known.host, current: !a.now().After(known.until)}
}
