package network

import (
	"context"
	"errors"

	"golang.org/x/net/dns/dnsmessage"
)

// The reasons in the log's DNS entries.
const (
	reasonNameNotAllowed = "no --allow-host matches the name"
	reasonNoSuchName     = "the nameserver says that there is no such name"
	reasonNotAHost       = "the question is not for a host's name"
	reasonServerRefused  = "the nameserver refused to answer"
	reasonServerFailed   = "the nameserver failed to answer"
)

// resolver answers the guest's DNS messages.
type resolver struct {
	rules   *rules
	answers *answers
	log     *accessLog
	own     *hostAddrs
	// exchange asks a nameserver.
	exchange func(context.Context, dnsmessage.Question) (*dnsmessage.Message, error)
}

// answer returns the reply to a message, or nothing for one that deserves none. Over a
// stream the reply may be as large as it is.
func (r *resolver) answer(ctx context.Context, message []byte, stream bool) []byte {
	asked, reply := parseQuery(message)
	if asked == nil {
		return reply
	}
	if stream {
		asked.size = maxStreamDNS
	}
	if !r.rules.allowsName(asked.name) {
		// Not REFUSED, upon which some clients ask again and again.
		r.note(Refused, asked, reasonNameNotAllowed)
		return asked.reply(dnsmessage.RCodeNameError, nil, nil)
	}
	if r.useless(asked.question.Type) {
		return asked.reply(dnsmessage.RCodeSuccess, nil, nil)
	}
	return r.forward(ctx, asked)
}

// useless says that nobody could use an answer: a client that has IPv6 addresses tries
// them first, and the types for services tell of protocols and addresses that are not
// looked at here.
func (r *resolver) useless(kind dnsmessage.Type) bool {
	switch kind {
	case typeSVCB, typeHTTPS:
		return true
	case dnsmessage.TypeAAAA:
		return !r.own.reachesIPv6() && !r.rules.namesIPv6()
	}
	return false
}

func (r *resolver) forward(ctx context.Context, asked *query) []byte {
	found, err := r.exchange(ctx, asked.question)
	if err != nil {
		r.note(Failed, asked, upstreamReason(err))
		return asked.reply(dnsmessage.RCodeServerFailure, nil, nil)
	}
	kept, addresses := asked.relevant(found.Answers)
	for _, each := range addresses {
		r.answers.add(asked.shown(), each.Addr, each.ttl)
	}
	switch found.RCode {
	case dnsmessage.RCodeSuccess:
		r.note(Allowed, asked, "")
	case dnsmessage.RCodeNameError:
		r.note(Failed, asked, reasonNoSuchName)
	case dnsmessage.RCodeRefused:
		r.note(Failed, asked, reasonServerRefused)
	default:
		r.note(Failed, asked, reasonServerFailed)
	}
	return asked.reply(found.RCode, kept, denials(found.Authorities))
}

func (r *resolver) note(verdict string, asked *query, reason string) {
	if asked.shown() == "" && verdict != Allowed {
		reason = reasonNotAHost
	}
	r.log.add(Access{Verdict: verdict, Protocol: DNS, Host: asked.shown(), Reason: reason})
}

// shown is the name as far as it may be shown.
func (q *query) shown() string {
	if isHostName(q.name) {
		return q.name
	}
	return ""
}

func upstreamReason(err error) string {
	if errors.Is(err, errNoNameserver) {
		return errNoNameserver.Error()
	}
	return errNoAnswer.Error()
}
