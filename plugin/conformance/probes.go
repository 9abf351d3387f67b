package conformance

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// listeners take connections and datagrams on one port of this machine.
type listeners struct {
	tcp  net.Listener
	udp  net.PacketConn
	seen atomic.Int64
}

// listen listens on all addresses of this machine until the case ends.
func (t *T) listen() *listeners { return t.listenOn("") }

func (t *T) listenLoopback() *listeners { return t.listenOn("127.0.0.1") }

func (t *T) listenOn(host string) *listeners {
	tcp, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Skipf("this machine cannot listen: %v", err)
	}
	udp, err := net.ListenPacket("udp", net.JoinHostPort(host, port(tcp.Addr())))
	if err != nil {
		_ = tcp.Close()
		t.Skipf("this machine cannot listen: %v", err)
	}
	l := &listeners{tcp: tcp, udp: udp}
	var serving sync.WaitGroup
	serving.Go(l.accept)
	serving.Go(l.receive)
	t.cleanup(func() {
		_ = tcp.Close()
		_ = udp.Close()
		serving.Wait()
	})
	return l
}

func (l *listeners) accept() {
	for {
		connection, err := l.tcp.Accept()
		if err != nil {
			return
		}
		l.seen.Add(1)
		_, _ = connection.Write([]byte("x\n")) // what the probe waits for; it may be gone
		_ = connection.Close()
	}
}

func (l *listeners) receive() {
	buffer := make([]byte, 64)
	for {
		if _, _, err := l.udp.ReadFrom(buffer); err != nil {
			return
		}
		l.seen.Add(1)
	}
}

// reached counts what has arrived.
func (l *listeners) reached() int64 { return l.seen.Load() }

// at is this port at an address.
func (l *listeners) at(host string) string { return net.JoinHostPort(host, port(l.tcp.Addr())) }

// addresses are this port at all addresses of this machine that others could reach,
// and at the ones given.
func (l *listeners) addresses(more ...string) []string {
	addresses := []string{}
	interfaces, _ := net.InterfaceAddrs()
	for _, address := range interfaces {
		network, ok := address.(*net.IPNet)
		if ok && network.IP.IsGlobalUnicast() {
			addresses = append(addresses, l.at(network.IP.String()))
		}
	}
	for _, host := range more {
		addresses = append(addresses, l.at(host))
	}
	return addresses
}

// connectProbe opens TCP connections to pairs of host and port and prints the pairs
// that answered with a byte: a connect alone says nothing, since transparent proxies
// take all connections and then close those that are not allowed. It exits 77 when the guest has nothing to open sockets with.
const connectProbe = `if command -v python3 >/dev/null; then
	exec python3 -c '
import socket, sys, threading
def probe(host, port):
    try:
        connection = socket.create_connection((host, int(port)), 3)
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        if connection.recv(1):
            print(host, port, flush=True)
    except OSError:
        pass
threads = [threading.Thread(target=probe, args=pair) for pair in zip(sys.argv[1::2], sys.argv[2::2])]
[t.start() for t in threads]
[t.join() for t in threads]' "$@"
fi
command -v bash >/dev/null && command -v timeout >/dev/null || exit 77
while [ $# -ge 2 ]; do
	(timeout 5 bash -c 'exec 3<>"/dev/tcp/$0/$1" && printf "GET / HTTP/1.0\r\n\r\n" >&3 && head -c 1 <&3 | grep -q .' "$1" "$2" 2>/dev/null &&
		echo "$1 $2") &
	shift 2
done
wait
exit 0`

const noSockets = "the guest has neither python3 nor bash to open sockets with"

// connectAll tries to open connections from the guest, at once, and returns those
// addresses that answered.
func (b *box) connectAll(addresses []string) []string {
	arguments := []string{}
	byPair := map[string]string{}
	for _, address := range addresses {
		host, port, _ := net.SplitHostPort(address)
		arguments = append(arguments, host, port)
		byPair[host+" "+port] = address
	}
	got := b.exec(shell(connectProbe, arguments...))
	b.needSockets(got)
	reached := []string{}
	for line := range strings.Lines(got.stdout) {
		if address, ok := byPair[strings.TrimSpace(line)]; ok {
			reached = append(reached, address)
		}
	}
	return reached
}

func (b *box) needSockets(got ran) {
	switch {
	case got.err != nil:
		b.t.Fatalf("the network probe could not be run: %v", got.err)
	case got.status.Code == 77:
		b.t.Skipf(noSockets)
	case got.status.Code != 0:
		b.t.Fatalf("the network probe ended with %s%s", describe(got), stderrOf(got))
	}
}

// sendDatagrams sends UDP from the guest; whether it gets anywhere the listener says.
func (b *box) sendDatagrams(addresses []string) {
	arguments := []string{}
	for _, address := range addresses {
		host, port, _ := net.SplitHostPort(address)
		arguments = append(arguments, host, port)
	}
	b.needSockets(b.exec(shell(`if command -v python3 >/dev/null; then
	exec python3 -c '
import socket, sys
for host, port in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        for family, kind, proto, _, address in socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM):
            socket.socket(family, kind, proto).sendto(b"probe", address)
    except OSError:
        pass' "$@"
fi
command -v bash >/dev/null || exit 77
while [ $# -ge 2 ]; do
	bash -c 'echo probe >"/dev/udp/$0/$1"' "$1" "$2" 2>/dev/null
	shift 2
done
exit 0`, arguments...)))
}

// resolves says whether the guest finds an address for a name.
func (b *box) resolves(name string) bool {
	request := shell(`if command -v python3 >/dev/null; then
	exec python3 -c '
import socket, sys
try:
    socket.getaddrinfo(sys.argv[1], 443)
    print("found")
except OSError:
    pass' "$1"
fi
command -v getent >/dev/null || exit 0
getent hosts "$1" >/dev/null && echo found
exit 0`, name)
	return strings.TrimSpace(b.exec(request).stdout) == "found"
}

// speaksTLS says whether the guest completes a TLS handshake with a name.
func (b *box) speaksTLS(name string) bool {
	if !b.has("python3") {
		b.t.Skipf("the guest has no python3 to speak TLS with")
	}
	got := b.exec(&plugin.ExecRequest{Argv: []string{"python3", "-c", `
import socket, ssl, sys
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.wrap_socket(socket.create_connection((sys.argv[1], 443), 10), server_hostname=sys.argv[1]).close()`, name}})
	return got.err == nil && got.status.Code == 0
}

// gateways are the guest's default gateways, which in user-space networks often stand
// for the host.
func (b *box) gateways() []string {
	gateways := []string{}
	for line := range strings.Lines(b.exec(shell("cat /proc/net/route")).stdout) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != "00000000" {
			continue
		}
		raw, err := hex.DecodeString(fields[2])
		if err == nil && len(raw) == 4 {
			ip := make(net.IP, 4)
			binary.LittleEndian.PutUint32(ip, binary.BigEndian.Uint32(raw))
			gateways = append(gateways, ip.String())
		}
	}
	return gateways
}
