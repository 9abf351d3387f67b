package testnet

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// DNS is the internet's nameserver. Names that it was told nothing of do not exist.
type DNS struct {
	// Addr is where it answers, over UDP and TCP.
	Addr netip.AddrPort

	mu      sync.Mutex
	names   map[string]*Answer
	queries []Query
}

// Answer is what the nameserver says of a name.
type Answer struct {
	// Addrs are given for the family that is asked for.
	Addrs []netip.Addr
	// CNAME, when set, is given instead; what is known of its target is given too.
	CNAME string
	// TTL is in seconds.
	TTL uint32
	// Extra are records that are added to the answer as they are.
	Extra []dnsmessage.Resource
	// RCode is success when left out.
	RCode dnsmessage.RCode

	// Next, when set, takes this answer's place once it was given.
	Next *Answer
	// Silent gives no answer at all over UDP.
	Silent bool
	// WrongID sends an answer with another id first, which has the address Forged.
	WrongID bool
	// WrongName does so with an answer for another name.
	WrongName bool
	Forged    netip.Addr
	// Truncate says over UDP that the answer is too long.
	Truncate bool
}

// Query is a question that was asked.
type Query struct {
	Name    string
	Type    dnsmessage.Type
	Network string
	From    netip.AddrPort
	ID      uint16
}

func newDNS(n *Net, at netip.AddrPort) *DNS {
	d := &DNS{Addr: at, names: map[string]*Answer{}}
	var packets *net.UDPConn
	n.internet.do(func() {
		n.addAddress("lo", at.Addr())
		var err error
		packets, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		n.must(err)
	})
	// The nameserver's address is in the host's own subnet, where it answers ARP for it.
	var wait sync.WaitGroup
	wait.Go(func() { d.servePackets(packets) })
	n.onClose(func() { _ = packets.Close(); wait.Wait() })
	n.listenTCP(n.internet, at.String(), d.serveStream)
	return d
}

// Set says what a name, given without the last dot, is answered with.
func (d *DNS) Set(name string, answer Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[name] = &answer
}

// SetAddrs says which addresses a name has for a minute.
func (d *DNS) SetAddrs(name string, addrs ...string) {
	answer := Answer{TTL: 60}
	for _, each := range addrs {
		answer.Addrs = append(answer.Addrs, netip.MustParseAddr(each))
	}
	d.Set(name, answer)
}

// Queries returns the questions so far.
func (d *DNS) Queries() []Query {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.queries)
}

func (d *DNS) servePackets(packets *net.UDPConn) {
	buf := make([]byte, 4096)
	for {
		size, from, err := packets.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		for _, each := range d.replies(buf[:size], "udp", from) {
			_, _ = packets.WriteToUDPAddrPort(each, from)
		}
	}
}

func (d *DNS) serveStream(conn *net.TCPConn) {
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		message := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, message); err != nil {
			return
		}
		for _, each := range d.replies(message, "tcp", conn.RemoteAddr().(*net.TCPAddr).AddrPort()) {
			_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(each))), each...))
		}
	}
}

func (d *DNS) replies(message []byte, network string, from netip.AddrPort) [][]byte {
	var asked dnsmessage.Message
	if asked.Unpack(message) != nil || len(asked.Questions) != 1 {
		return nil
	}
	question := asked.Questions[0]
	name := strings.ToLower(strings.TrimSuffix(question.Name.String(), "."))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queries = append(d.queries, Query{name, question.Type, network, from, asked.ID})
	answer := d.names[name]
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: asked.ID, Response: true, RecursionDesired: true, RecursionAvailable: true},
		Questions: asked.Questions,
	}
	if answer == nil {
		reply.RCode = dnsmessage.RCodeNameError
		return pack(reply)
	}
	if answer.Next != nil {
		d.names[name] = answer.Next
	}
	if answer.Silent && network == "udp" {
		return nil
	}
	reply.RCode = answer.RCode
	reply.Answers = append(d.records(question.Name, question.Type, answer), answer.Extra...)
	if answer.Truncate && network == "udp" {
		reply.Truncated, reply.Answers = true, nil
	}
	return append(answer.forgeries(reply), pack(reply)...)
}

// forgeries are what an attacker would send ahead of the answer.
func (a *Answer) forgeries(reply dnsmessage.Message) [][]byte {
	question := reply.Questions[0]
	reply.Answers = records(question.Name, question.Type, 60, a.Forged)
	var forged [][]byte
	if a.WrongID {
		reply.ID++
		forged = append(forged, pack(reply)...)
		reply.ID--
	}
	if a.WrongName {
		question.Name = dnsmessage.MustNewName("another." + question.Name.String())
		reply.Questions = []dnsmessage.Question{question}
		forged = append(forged, pack(reply)...)
	}
	return forged
}

func (d *DNS) records(name dnsmessage.Name, kind dnsmessage.Type, answer *Answer) []dnsmessage.Resource {
	if answer.CNAME == "" {
		return records(name, kind, answer.TTL, answer.Addrs...)
	}
	target := dnsmessage.MustNewName(answer.CNAME + ".")
	found := []dnsmessage.Resource{{
		Header: dnsmessage.ResourceHeader{Name: name, Type: dnsmessage.TypeCNAME, Class: dnsmessage.ClassINET, TTL: answer.TTL},
		Body:   &dnsmessage.CNAMEResource{CNAME: target},
	}}
	if next := d.names[answer.CNAME]; next != nil {
		found = append(found, d.records(target, kind, next)...)
	}
	return found
}

// Record makes an address record for a name without the last dot.
func Record(name string, ttl uint32, addr string) dnsmessage.Resource {
	parsed := netip.MustParseAddr(addr)
	kind := dnsmessage.TypeA
	if parsed.Is6() {
		kind = dnsmessage.TypeAAAA
	}
	return records(dnsmessage.MustNewName(name+"."), kind, ttl, parsed)[0]
}

func records(name dnsmessage.Name, kind dnsmessage.Type, ttl uint32, addrs ...netip.Addr) []dnsmessage.Resource {
	var made []dnsmessage.Resource
	for _, each := range addrs {
		header := dnsmessage.ResourceHeader{Name: name, Type: kind, Class: dnsmessage.ClassINET, TTL: ttl}
		switch {
		case each.Is4() && kind == dnsmessage.TypeA:
			made = append(made, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: each.As4()}})
		case each.Is6() && kind == dnsmessage.TypeAAAA:
			made = append(made, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: each.As16()}})
		}
	}
	return made
}

func pack(message dnsmessage.Message) [][]byte {
	packed, err := message.Pack()
	if err != nil {
		panic(err)
	}
	return [][]byte{packed}
}
