package network

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// exchangeTry is how long one nameserver has for one answer, and exchangeTimeout
	// how long all have. Clients give up after five seconds, and then ask again.
	exchangeTry     = 2 * time.Second
	exchangeTimeout = 9 * time.Second
	exchangeRounds  = 2
	maxStreamDNS    = 65535
)

// errNoNameserver and errNoAnswer are what an exchange fails with.
var (
	errNoNameserver = errors.New("this host has no nameserver")
	errNoAnswer     = errors.New("no nameserver answered")
)

// upstream asks nameservers.
type upstream struct {
	// fixed are the nameservers; when there are none, the host's are asked.
	fixed []netip.AddrPort
	host  resolvConf
}

// exchange asks one nameserver after the other until one has an answer.
func (u *upstream) exchange(ctx context.Context, question dnsmessage.Question) (*dnsmessage.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	servers := u.fixed
	if len(servers) == 0 {
		servers = u.host.nameservers()
	}
	if len(servers) == 0 {
		return nil, errNoNameserver
	}
	var worse *dnsmessage.Message
	for range exchangeRounds {
		for _, server := range servers {
			found, err := ask(ctx, server, question)
			if err == nil && (found.RCode == dnsmessage.RCodeSuccess || found.RCode == dnsmessage.RCodeNameError) {
				return found, nil
			}
			if err == nil {
				worse = found
			}
			if ctx.Err() != nil {
				return nil, errors.Join(errNoAnswer, ctx.Err())
			}
		}
		if worse != nil {
			return worse, nil
		}
	}
	return nil, errNoAnswer
}

// ask puts the question to a nameserver over UDP and, where the answer is too long for
// that, over TCP. Each question has a socket, and so a port, of its own.
func ask(ctx context.Context, server netip.AddrPort, question dnsmessage.Question) (*dnsmessage.Message, error) {
	found, err := askOver(ctx, "udp", server, question)
	if err == nil && found.Truncated {
		return askOver(ctx, "tcp", server, question)
	}
	return found, err
}

func askOver(ctx context.Context, network string, server netip.AddrPort, question dnsmessage.Question) (*dnsmessage.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTry)
	defer cancel()
	message, id, err := newQuestion(question)
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if network == "tcp" {
		return streamExchange(conn, message, id, question)
	}
	if _, err := conn.Write(message); err != nil {
		return nil, err
	}
	buf := make([]byte, maxDNSSize)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		if found := matching(buf[:n], id, question); found != nil {
			return found, nil
		}
		// Somebody else's answer; the right one may still come.
	}
}

func streamExchange(conn net.Conn, message []byte, id uint16, question dnsmessage.Question) (*dnsmessage.Message, error) {
	if err := writeStream(conn, message); err != nil {
		return nil, err
	}
	reply, err := readStream(conn)
	if err != nil {
		return nil, err
	}
	if found := matching(reply, id, question); found != nil {
		return found, nil
	}
	return nil, errNoAnswer
}

func newQuestion(question dnsmessage.Question) (message []byte, id uint16, err error) {
	var random [2]byte
	_, _ = rand.Read(random[:])
	id = binary.BigEndian.Uint16(random[:])
	made := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{question},
	}
	message, err = made.Pack()
	return message, id, err
}

// matching returns a message when it is the answer to a question.
func matching(message []byte, id uint16, question dnsmessage.Question) *dnsmessage.Message {
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	if err != nil || header.ID != id || !header.Response {
		return nil
	}
	questions, err := parser.AllQuestions()
	if err != nil || len(questions) != 1 || questions[0].Type != question.Type || questions[0].Class != question.Class ||
		canonicalName(questions[0].Name.String()) != canonicalName(question.Name.String()) {
		return nil
	}
	found := &dnsmessage.Message{Header: header}
	if header.Truncated {
		// The records may be cut anywhere.
		return found
	}
	if found.Answers, err = parser.AllAnswers(); err != nil {
		return nil
	}
	if found.Authorities, err = parser.AllAuthorities(); err != nil {
		return nil
	}
	return found
}

// readStream and writeStream carry messages behind their length, as DNS over TCP does.
func readStream(from io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(from, message)
	return message, err
}

func writeStream(to io.Writer, message []byte) error {
	framed := binary.BigEndian.AppendUint16(nil, uint16(len(message)))
	_, err := to.Write(append(framed, message...))
	return err
}
