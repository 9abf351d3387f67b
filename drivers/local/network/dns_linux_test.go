package network

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// FuzzDNS feeds the handler with messages of both sides.
func FuzzDNS(f *testing.F) {
	question := dnsmessage.Question{Name: dnsmessage.MustNewName("pkg.example.net."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	asked, _, err := newQuestion(question)
	if err != nil {
		f.Fatal(err)
	}
	reply := dnsmessage.Message{
		Header: dnsmessage.Header{Response: true}, Questions: []dnsmessage.Question{question},
		Answers: []dnsmessage.Resource{
			{Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 60},
				Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("b.example.net.")}},
			{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("b.example.net."), Class: dnsmessage.ClassINET, TTL: 1 << 31},
				Body: &dnsmessage.AResource{A: [4]byte{203, 0, 113, 1}}},
		},
	}
	packed, err := reply.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(asked, packed)
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, message, upstream []byte) {
		policy := mustRules(t, plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: []string{"pkg.example.net"}})
		known := newAnswers(time.Now)
		asked := 0
		r := &resolver{rules: policy, answers: known, log: newAccessLog(time.Now), own: &hostAddrs{},
			exchange: func(_ context.Context, q dnsmessage.Question) (*dnsmessage.Message, error) {
				asked++
				if canonicalName(q.Name.String()) != "pkg.example.net" {
					t.Errorf("asked for %s", q.Name)
				}
				if found := matching(upstream, binaryID(upstream), q); found != nil {
					return found, nil
				}
				return nil, errNoAnswer
			}}
		answer := r.answer(t.Context(), message, false)
		if answer != nil {
			var parsed dnsmessage.Message
			if err := parsed.Unpack(answer); err != nil || !parsed.Response {
				t.Errorf("the answer is none: %v", err)
			}
			if len(answer) > maxDNSSize {
				t.Errorf("the answer has %d bytes", len(answer))
			}
		}
		if asked == 0 && len(known.addresses) > 0 {
			t.Error("an address came from nowhere")
		}
		for _, each := range r.log.list() {
			if each.Host != "" && !isHostName(each.Host) {
				t.Errorf("the log shows %q", each.Host)
			}
		}
	})
}

func binaryID(message []byte) uint16 {
	if len(message) < 2 {
		return 0
	}
	return uint16(message[0])<<8 | uint16(message[1])
}

func TestParseResolvConf(t *testing.T) {
	got := parseResolvConf("# nameserver 192.0.2.9\nsearch example.net\n nameserver 192.0.2.1\nnameserver fe80::1%eth0 # x\nnameserver\nnameserver nonsense\nnameserver 2001:db8::1\nnameserver 192.0.2.4\n")
	want := []netip.AddrPort{
		netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("[fe80::1%eth0]:53"), netip.MustParseAddrPort("[2001:db8::1]:53"),
	}
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%v, want %v", got[i], want[i])
		}
	}
}

// TestExtendedSize has a client that takes long answers over UDP, and one that does not.
func TestExtendedSize(t *testing.T) {
	question := dnsmessage.Question{Name: dnsmessage.MustNewName("pkg.example.net."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	var records []dnsmessage.Resource
	for i := range 100 {
		records = append(records, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: 60},
			Body:   &dnsmessage.AResource{A: [4]byte{203, 0, 113, byte(i)}},
		})
	}
	for size, want := range map[int]int{0: 0, 512: 0, 1232: 0, 2048: 100, 65535: 100} {
		message := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{question}}
		if size > 0 {
			option := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(".")}, Body: &dnsmessage.OPTResource{}}
			if err := option.Header.SetEDNS0(size, 0, false); err != nil {
				t.Fatal(err)
			}
			message.Additionals = append(message.Additionals, option)
		}
		packed, err := message.Pack()
		if err != nil {
			t.Fatal(err)
		}
		asked, _ := parseQuery(packed)
		var reply dnsmessage.Message
		if err := reply.Unpack(asked.reply(dnsmessage.RCodeSuccess, records, nil)); err != nil {
			t.Fatal(err)
		}
		if len(reply.Answers) != want || reply.Truncated != (want == 0) || (size > 0) != (len(reply.Additionals) == 1) {
			t.Errorf("size %d: %d records, truncated %v, %d additional", size, len(reply.Answers), reply.Truncated, len(reply.Additionals))
		}
	}
}
