package network

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/sandboxctl/sandboxctl/drivers/local/internal/testnet"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// hang is how long a test waits for what should come at once.
const hang = time.Minute

// keeperVariable makes the test binary the process that serves a network.
const keeperVariable = "NETWORK_TEST_KEEPER"

func TestMain(m *testing.M) {
	if os.Getenv(keeperVariable) != "" {
		os.Exit(keep())
	}
	os.Exit(m.Run())
}

// keep serves a network like the real keeper does, and tells its accesses when asked.
// Its last line says what it has left behind.
func keep() int {
	input := bufio.NewReader(os.Stdin)
	var config keeperConfig
	line, _ := input.ReadBytes('\n')
	if err := json.Unmarshal(line, &config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	link := os.NewFile(3, "link")
	goroutines, files := runtime.NumGoroutine(), openFiles()
	n, err := Start(Config{Link: link, Policy: config.Policy})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadString('\n')
		if err != nil {
			break
		}
		switch line {
		case "done\n":
			<-n.Done()
			_ = output.Encode(keeperReport{})
		default:
			_ = output.Encode(keeperReport{Accesses: n.Accesses(), Goroutines: runtime.NumGoroutine(), Files: openFiles(), RSS: residentSize()})
		}
	}
	n.Close()
	report := keeperReport{}
	// The stack's own goroutines notice a little later.
	for began := time.Now(); time.Since(began) < 5*time.Second; time.Sleep(10 * time.Millisecond) {
		// Our end of the link was open before and the poller is open after.
		report.Goroutines, report.Files = runtime.NumGoroutine()-goroutines, openFiles()-files
		if report.Goroutines <= 0 && report.Files <= 2 {
			break
		}
	}
	if report.Goroutines > 0 || report.Files > 2 {
		stacks := make([]byte, 1<<20)
		report.Leak = string(stacks[:runtime.Stack(stacks, true)])
	}
	_ = output.Encode(report)
	return 0
}

type keeperConfig struct{ Policy plugin.NetworkPolicy }

type keeperReport struct {
	Accesses          []Access
	Goroutines, Files int
	RSS               string
	Leak              string
}

func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

func residentSize() string {
	var pages, resident int
	text, _ := os.ReadFile("/proc/self/statm")
	_, _ = fmt.Sscan(string(text), &pages, &resident)
	return fmt.Sprintf("%d KiB", resident*os.Getpagesize()/1024)
}

// keeper is the process with the network under test, in a world's host.
type keeper struct {
	t      testing.TB
	pid    int
	stdin  io.WriteCloser
	output *json.Decoder
	// stop closes the network and says what it left behind.
	stop func()
}

// otherUser is an ordinary user that needs no entry in any database.
const otherUser = 54321

// startKeeper runs the network of a policy in the host and returns the guest's end too.
func startKeeper(t testing.TB, world *testnet.Net, uid uint32, policy plugin.NetworkPolicy) (*keeper, *guest) {
	t.Helper()
	ours, guests := testPair(t, uid)
	return startKeeperOn(t, world, uid, policy, ours), newGuest(t, guests)
}

func startKeeperOn(t testing.TB, world *testnet.Net, uid uint32, policy plugin.NetworkPolicy, ours *os.File) *keeper {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), keeperVariable+"=1")
	cmd.ExtraFiles = []*os.File{ours}
	cmd.Stderr = os.Stderr
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		cmd.Path = readableSelf(t)
	}
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, world.Start(cmd))
	_ = ours.Close()
	k := &keeper{t: t, pid: cmd.Process.Pid, stdin: stdin, output: json.NewDecoder(stdout)}
	must(t, json.NewEncoder(stdin).Encode(keeperConfig{policy}))
	k.stop = sync.OnceFunc(func() {
		_ = stdin.Close()
		if left := k.read(); left.Leak != "" {
			t.Errorf("left behind: %d goroutines, %d files\n%s", left.Goroutines, left.Files, left.Leak)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("keeper: %v", err)
		}
	})
	t.Cleanup(k.stop)
	return k
}

// usersBuffer gives a socket net.core.wmem_default as most systems have it: the kernel
// doubles it.
const usersBuffer = 106496

// testPair is a Pair with the buffers that the user would get.
func testPair(t testing.TB, uid uint32) (ours, guests *os.File) {
	t.Helper()
	ours, guests, err := Pair()
	must(t, err)
	if uid != 0 {
		for _, each := range []*os.File{ours, guests} {
			must(t, unix.SetsockoptInt(int(each.Fd()), unix.SOL_SOCKET, unix.SO_SNDBUF, usersBuffer))
		}
	}
	return ours, guests
}

// readableSelf is a copy of the test binary that other users can run.
func readableSelf(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "network-test-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	data, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	path := dir + "/network.test"
	must(t, os.WriteFile(path, data, 0o755))
	return path
}

func (k *keeper) read() keeperReport {
	var report keeperReport
	if err := k.output.Decode(&report); err != nil {
		k.t.Errorf("the keeper does not answer: %v", err)
	}
	return report
}

func (k *keeper) report() keeperReport {
	_, _ = io.WriteString(k.stdin, "accesses\n")
	return k.read()
}

// waitDone returns once the network has noticed that the guest is gone.
func (k *keeper) waitDone() {
	_, _ = io.WriteString(k.stdin, "done\n")
	k.read()
}

// await waits until the access log has an entry like the one wanted; what is empty
// there may be anything.
func (k *keeper) await(want Access) Access {
	k.t.Helper()
	var log []Access
	for began := time.Now(); time.Since(began) < hang; time.Sleep(20 * time.Millisecond) {
		log = k.report().Accesses
		if i := slices.IndexFunc(log, func(a Access) bool { return alike(want, a) }); i >= 0 {
			return log[i]
		}
	}
	k.t.Fatalf("the access log lacks %+v; it has %+v", want, log)
	return Access{}
}

func alike(want, have Access) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	return same(want.Verdict, have.Verdict) && same(want.Protocol, have.Protocol) && same(want.Host, have.Host) &&
		same(want.Address, have.Address) && same(want.Reason, have.Reason) && (want.Port == 0 || want.Port == have.Port) && want.Count <= have.Count
}

func must(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// guest is a network stack at the other end of the link, as runsc has one.
type guest struct {
	t     testing.TB
	stack *stack.Stack
	file  *os.File
	// stopped is closed when the endpoint reads no more.
	stopped chan struct{}
}

func newGuest(t testing.TB, file *os.File) *guest {
	t.Helper()
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})
	sack := tcpip.TCPSACKEnabled(true)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &sack)
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &moderate)
	stopped := make(chan struct{})
	endpoint, err := fdbased.New(&fdbased.Options{
		FDs: []int{int(file.Fd())}, MTU: MTU, PacketDispatchMode: fdbased.RecvMMsg,
		TXChecksumOffload: true, RXChecksumOffload: true, ProcessorsPerChannel: 1,
		ClosedFunc: func(tcpip.Error) { close(stopped) },
	})
	must(t, err)
	for _, err := range []tcpip.Error{
		s.CreateNIC(1, endpoint),
		s.AddProtocolAddress(1, protocolAddress(GuestIPv4), stack.AddressProperties{}),
		s.AddProtocolAddress(1, protocolAddress(GuestIPv6), stack.AddressProperties{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}, {Destination: header.IPv6EmptySubnet, NIC: 1}})
	g := &guest{t: t, stack: s, file: file, stopped: stopped}
	t.Cleanup(g.leave)
	return g
}

// leave ends the guest. Its endpoint has to be stopped before the stack is, which waits
// for it with a lock that the endpoint's packets need; and by hand, since it takes the
// other end's end for empty packets, of which it reads one after the other and never
// looks whether it should stop.
func (g *guest) leave() {
	if g.stopped == nil {
		return
	}
	file := int(g.file.Fd())
	socket, err := unix.Dup(file)
	must(g.t, err)
	null, err := os.Open(os.DevNull)
	must(g.t, err)
	// What it reads next is no socket, and what it may wait for is over.
	must(g.t, unix.Dup3(int(null.Fd()), file, unix.O_CLOEXEC))
	_ = unix.Shutdown(socket, unix.SHUT_RDWR)
	<-g.stopped
	g.stack.Close()
	g.stack.Wait()
	_, _, _ = unix.Close(socket), null.Close(), g.file.Close()
	g.stopped = nil
}

func protocolAddress(prefix netip.Prefix) tcpip.ProtocolAddress {
	return tcpip.ProtocolAddress{
		Protocol:          protocolOf(prefix.Addr()),
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(prefix.Addr().AsSlice()), PrefixLen: prefix.Bits()},
	}
}

func fullAddress(at netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFromSlice(at.Addr().AsSlice()), Port: at.Port()}
}

// dialTCP connects to an address and port.
func (g *guest) dialTCP(at string) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	to := netip.MustParseAddrPort(at)
	conn, err := gonet.DialContextTCP(ctx, g.stack, fullAddress(to), protocolOf(to.Addr()))
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(hang))
	}
	return conn, err
}

// reach connects and closes at once.
func (g *guest) reach(at string) error {
	conn, err := g.dialTCP(at)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

func (g *guest) dialUDP(at string) *gonet.UDPConn {
	g.t.Helper()
	to := netip.MustParseAddrPort(at)
	full := fullAddress(to)
	conn, err := gonet.DialUDP(g.stack, nil, &full, protocolOf(to.Addr()))
	must(g.t, err)
	_ = conn.SetDeadline(time.Now().Add(hang))
	g.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask puts a DNS question to the gateway.
func (g *guest) ask(name string, kind dnsmessage.Type) dnsmessage.Message {
	g.t.Helper()
	conn := g.dialUDP(netip.AddrPortFrom(GatewayIPv4, 53).String())
	defer conn.Close()
	message, id, err := newQuestion(dnsmessage.Question{Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET})
	must(g.t, err)
	_, err = conn.Write(message)
	must(g.t, err)
	buf := make([]byte, maxDNSSize)
	n, err := conn.Read(buf)
	must(g.t, err)
	var reply dnsmessage.Message
	must(g.t, reply.Unpack(buf[:n]))
	if reply.ID != id || !reply.Response {
		g.t.Fatalf("not an answer to %d: %+v", id, reply.Header)
	}
	return reply
}

// resolve asks for a name's addresses of one family.
func (g *guest) resolve(name string, kind dnsmessage.Type) (addrs []string) {
	g.t.Helper()
	for _, each := range g.ask(name, kind).Answers {
		switch body := each.Body.(type) {
		case *dnsmessage.AResource:
			addrs = append(addrs, netip.AddrFrom4(body.A).String())
		case *dnsmessage.AAAAResource:
			addrs = append(addrs, netip.AddrFrom16(body.AAAA).String())
		}
	}
	return addrs
}

// inject sends a packet that no honest stack would.
func (g *guest) inject(packet []byte) {
	for {
		_, err := unix.Write(int(g.file.Fd()), packet)
		if err != unix.EAGAIN {
			return
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(g.file.Fd()), Events: unix.POLLOUT}}, 1000)
	}
}
