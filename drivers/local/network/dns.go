package network

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// plainDNSSize is what a client takes over UDP that does not say otherwise, and
	// maxDNSSize the most that is sent to one that does, in bytes.
	plainDNSSize = 512
	maxDNSSize   = 4096

	typeSVCB  = dnsmessage.Type(64)
	typeHTTPS = dnsmessage.Type(65)
)

// query is a client's question, taken apart. Only what is in here goes on to a
// nameserver, never the client's bytes.
type query struct {
	header   dnsmessage.Header
	question dnsmessage.Question
	// name is the question's name in canonical form.
	name string
	// size is how large the reply may be, in bytes.
	size int
	// extended says that the client speaks EDNS, so the reply has to.
	extended bool
}

// parseQuery reads a client's message. Without a query, the reply says what is wrong
// with the message; where there is no reply either, it deserves none.
func parseQuery(message []byte) (parsed *query, reply []byte) {
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	if err != nil || header.Response {
		return nil, nil
	}
	parsed = &query{header: header, size: plainDNSSize}
	if header.OpCode != 0 {
		return nil, parsed.reply(dnsmessage.RCodeNotImplemented, nil, nil)
	}
	questions, err := parser.AllQuestions()
	if err != nil || len(questions) != 1 || questions[0].Class != dnsmessage.ClassINET {
		return nil, parsed.reply(dnsmessage.RCodeFormatError, nil, nil)
	}
	parsed.question = questions[0]
	parsed.name = canonicalName(questions[0].Name.String())
	parsed.readSize(&parser)
	return parsed, nil
}

// readSize looks for how much the client takes. A client that says it badly gets the
// least.
func (q *query) readSize(parser *dnsmessage.Parser) {
	if parser.SkipAllAnswers() != nil || parser.SkipAllAuthorities() != nil {
		return
	}
	for {
		header, err := parser.AdditionalHeader()
		if err != nil {
			return
		}
		if header.Type == dnsmessage.TypeOPT {
			q.extended = true
			q.size = min(max(int(header.Class), plainDNSSize), maxDNSSize)
			return
		}
		if parser.SkipAdditional() != nil {
			return
		}
	}
}

// reply builds the answer to the client. What is too large for it is left out and
// marked as truncated, so that the client comes back over TCP.
func (q *query) reply(code dnsmessage.RCode, answers, authorities []dnsmessage.Resource) []byte {
	message := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: q.header.ID, Response: true, OpCode: q.header.OpCode, RCode: code,
			RecursionDesired: q.header.RecursionDesired, RecursionAvailable: true,
		},
		Answers: answers, Authorities: authorities,
	}
	if q.question.Name.Length > 0 {
		message.Questions = []dnsmessage.Question{q.question}
	}
	if q.extended {
		option := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(".")}, Body: &dnsmessage.OPTResource{}}
		_ = option.Header.SetEDNS0(maxDNSSize, 0, false)
		message.Additionals = []dnsmessage.Resource{option}
	}
	packed, err := message.Pack()
	if err != nil {
		// The nameserver's records do not make a message.
		message.RCode, message.Answers, message.Authorities = dnsmessage.RCodeServerFailure, nil, nil
		packed, _ = message.Pack()
	}
	if len(packed) > q.size {
		message.Truncated, message.Answers, message.Authorities = true, nil, nil
		packed, _ = message.Pack()
	}
	return packed
}

// address is what a name was found to have.
type address struct {
	netip.Addr
	ttl time.Duration
}

// relevant returns, of a nameserver's records, the chain of aliases from the question
// on and what is asked for at its names, with bounded TTLs; and the addresses among
// that. Records that nobody asked for are no answer.
func (q *query) relevant(records []dnsmessage.Resource) (kept []dnsmessage.Resource, addresses []address) {
	chain := aliases(q.name, records)
	for _, each := range records {
		kind := each.Header.Type
		wanted := kind == q.question.Type || kind == dnsmessage.TypeCNAME || q.question.Type == dnsmessage.TypeALL
		if !wanted || each.Header.Class != dnsmessage.ClassINET || !slices.Contains(chain, canonicalName(each.Header.Name.String())) {
			continue
		}
		each.Header.TTL = min(each.Header.TTL, uint32(maxTTL/time.Second))
		ttl := time.Duration(each.Header.TTL) * time.Second
		switch body := each.Body.(type) {
		case *dnsmessage.AResource:
			addresses = append(addresses, address{netip.AddrFrom4(body.A), ttl})
		case *dnsmessage.AAAAResource:
			addresses = append(addresses, address{netip.AddrFrom16(body.AAAA), ttl})
		}
		kept = append(kept, each)
	}
	return kept, addresses
}

// maxAliases bounds the length of a chain.
const maxAliases = 16

// aliases returns a name and those that it is an alias of, in canonical form.
func aliases(name string, records []dnsmessage.Resource) []string {
	chain := []string{name}
	for i := 0; i < len(chain) && len(chain) <= maxAliases; i++ {
		for _, each := range records {
			alias, ok := each.Body.(*dnsmessage.CNAMEResource)
			if !ok || canonicalName(each.Header.Name.String()) != chain[i] {
				continue
			}
			if next := canonicalName(alias.CNAME.String()); !slices.Contains(chain, next) {
				chain = append(chain, next)
			}
		}
	}
	return chain
}

// denials keeps the records that let a client remember that there is nothing.
func denials(records []dnsmessage.Resource) []dnsmessage.Resource {
	var kept []dnsmessage.Resource
	for _, each := range records {
		if each.Header.Type == dnsmessage.TypeSOA {
			each.Header.TTL = min(each.Header.TTL, uint32(maxTTL/time.Second))
			kept = append(kept, each)
		}
	}
	return kept
}
