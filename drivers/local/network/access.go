package network

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// The verdicts of an Access.
const (
	Allowed = "allowed"
	Refused = "refused"
	// Failed was allowed and did not come about.
	Failed = "failed"
)

// The protocols of an Access.
const (
	TCP   = "tcp"
	UDP   = "udp"
	DNS   = "dns"
	Other = "other"
)

// Access is an entry of the access log: all attempts of one kind on one target.
type Access struct {
	Verdict  string `json:"verdict"`
	Protocol string `json:"protocol"`
	// Host is the name that was asked for or, for a connection, whose DNS answer gave
	// the address. It is empty where none is known.
	Host string `json:"host,omitempty"`
	// Address is empty for DNS and for packets that were dropped unread.
	Address string `json:"address,omitempty"`
	Port    uint16 `json:"port,omitempty"`
	// Reason is a sentence for whoever asks why the target cannot be reached.
	Reason string `json:"reason,omitempty"`
	// Count is the number of attempts, the first at First and the last at Last.
	Count uint64    `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

const (
	maxAccesses = 1000
	// reasonFolded stands for entries that had to make room.
	reasonFolded = "older entries, which the log has no more room for"
)

// accessLog is the bounded access log.
type accessLog struct {
	now func() time.Time

	mu sync.Mutex
	// entries are keyed by themselves without count and times.
	entries map[Access]*Access
}

func newAccessLog(now func() time.Time) *accessLog {
	return &accessLog{now: now, entries: map[Access]*Access{}}
}

// add counts one attempt.
func (l *accessLog) add(access Access) {
	now := l.now().UTC()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) >= maxAccesses && l.entries[access] == nil {
		l.fold()
	}
	l.count(access, 1, now, now)
}

// target fills an Access in for an address.
func target(verdict, protocol, host string, addr netip.AddrPort, reason string) Access {
	return Access{Verdict: verdict, Protocol: protocol, Host: host, Address: addr.Addr().String(), Port: addr.Port(), Reason: reason}
}

func (l *accessLog) count(key Access, n uint64, first, last time.Time) {
	entry := l.entries[key]
	if entry == nil {
		made := key
		made.First, made.Last = first, last
		entry = &made
		l.entries[key] = entry
	}
	entry.Count += n
	if first.Before(entry.First) {
		entry.First = first
	}
	if last.After(entry.Last) {
		entry.Last = last
	}
}

// fold replaces the entries that are longest ago by their number, one for each verdict.
func (l *accessLog) fold() {
	for _, each := range l.sorted()[:maxAccesses/10] {
		key := *each
		key.Count, key.First, key.Last = 0, time.Time{}, time.Time{}
		if key.Reason == reasonFolded {
			continue
		}
		delete(l.entries, key)
		l.count(Access{Verdict: key.Verdict, Protocol: Other, Reason: reasonFolded}, each.Count, each.First, each.Last)
	}
}

func (l *accessLog) sorted() []*Access {
	all := make([]*Access, 0, len(l.entries))
	for _, each := range l.entries {
		all = append(all, each)
	}
	slices.SortFunc(all, func(a, b *Access) int { return a.Last.Compare(b.Last) })
	return all
}

// list returns copies of all entries, the newest last.
func (l *accessLog) list() []Access {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Access, 0, len(l.entries))
	for _, each := range l.sorted() {
		list = append(list, *each)
	}
	return list
}
