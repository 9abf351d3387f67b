package local_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/local/internal/testnet"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// onInternet starts the driver on a host of its own that has an internet beside it.
func onInternet(t *testing.T, uid int) (*testnet.Net, *fixture) {
	t.Helper()
	world := testnet.New(t)
	return world, startDriverOn(t, uid, world.Run)
}

func serveText(text string) func(*net.TCPConn) {
	return func(connection *net.TCPConn) { _, _ = io.WriteString(connection, text) }
}

// reach is a guest that says what it gets from each of its arguments, HOST:PORT.
const reach = `
import socket, sys, time
for target in sys.argv[1:]:
    host, port = target.rsplit(":", 1)
    began = time.monotonic()
    try:
        with socket.create_connection((host.strip("[]"), int(port)), 20) as s:
            s.shutdown(socket.SHUT_WR)
            said = s.makefile().read()
    except ConnectionRefusedError:
        said = "refused"
    except socket.gaierror as e:
        said = {socket.EAI_NONAME: "no name"}.get(e.errno, str(e))
    except OSError as e:
        said = str(e)
    print(target, said, "" if time.monotonic() - began < 10 else "slow")
`

// reach runs the guest and returns what it got by target.
func (f *fixture) reach(ref plugin.Ref, targets ...string) map[string]string {
	f.t.Helper()
	done := f.exec(ref, &plugin.ExecRequest{Argv: append([]string{"python3", "-c", reach}, targets...), Timeout: patience})
	got := map[string]string{}
	for line := range strings.Lines(done.stdout) {
		target, said, _ := strings.Cut(strings.TrimSpace(line), " ")
		got[target] = said
	}
	if len(got) != len(targets) {
		f.t.Fatalf("%+v", done)
	}
	return got
}

func (f *fixture) wantReach(ref plugin.Ref, want map[string]string) {
	f.t.Helper()
	var targets []string
	for target := range want {
		targets = append(targets, target)
	}
	for target, said := range f.reach(ref, targets...) {
		if said != want[target] {
			f.t.Errorf("%s: %q, want %q", target, said, want[target])
		}
	}
}

func TestOpenNetwork(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		world, f := onInternet(t, uid)
		world.ListenTCP("203.0.113.10:80", serveText("public"))
		world.ListenTCP("10.20.30.40:80", serveText("private"))
		world.ListenTCP("[2001:db8:1::10]:80", serveText("public6"))
		world.ListenTCP("169.254.169.254:80", serveText("metadata"))
		world.HostListenTCP("127.0.0.1:8080", serveText("host"))
		world.HostListenTCP(testnet.HostIPv4.Addr().String()+":8080", serveText("host"))
		world.DNS.SetAddrs("www.example.net", "203.0.113.10", "2001:db8:1::10")
		world.DNS.SetAddrs("rebound.example.net", "127.0.0.1")

		ref := f.create(opened)
		f.wantReach(ref, map[string]string{
			"203.0.113.10:80": "public", "[2001:db8:1::10]:80": "public6", "203.0.113.10:81": "refused",
			"10.20.30.40:80": "refused", "169.254.169.254:80": "refused", "[fe80::1]:80": "refused",
			"127.0.0.1:8080": "refused", "rebound.example.net:8080": "refused", "192.0.0.1:8080": "refused",
			testnet.HostIPv4.Addr().String() + ":8080": "refused",
			"no-such.example.net:80":                   "no name",
		})
		if got := f.reach(ref, "www.example.net:80")["www.example.net:80"]; !strings.HasPrefix(got, "public") {
			t.Errorf("by name: %q", got)
		}
		// What is refused is told with its reason.
		f.wantAccess(ref, plugin.Access{Verdict: plugin.AccessRefused, Protocol: "tcp", Address: "10.20.30.40", Port: 80}, "private range")
		f.wantAccess(ref, plugin.Access{Verdict: plugin.AccessFailed, Protocol: "tcp", Address: "203.0.113.10", Port: 81}, "refused")
		f.wantAccess(ref, plugin.Access{Verdict: plugin.AccessFailed, Protocol: "dns", Host: "no-such.example.net"}, "no such name")

		private := f.create(opened, func(spec *plugin.SandboxSpec) { spec.Network.CIDRs = []string{"10.20.30.0/24"} })
		f.wantReach(private, map[string]string{"203.0.113.10:80": "public", "10.20.30.40:80": "private", "169.254.169.254:80": "refused"})
		none := f.create()
		f.wantReach(none, map[string]string{"203.0.113.10:80": "[Errno 101] Network is unreachable"})
	})
}

// wantAccess looks for an entry of the access log that is alike.
func (f *fixture) wantAccess(ref plugin.Ref, want plugin.Access, reason string) {
	f.t.Helper()
	log, err := f.AccessLog(f.ctx(), ref)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, each := range log {
		if each.Verdict == want.Verdict && each.Protocol == want.Protocol && each.Host == want.Host && each.Address == want.Address && each.Port == want.Port {
			if !strings.Contains(each.Reason, reason) || each.Count == 0 || each.Last.Before(each.First) || each.First.IsZero() {
				f.t.Errorf("got %+v", each)
			}
			return
		}
	}
	f.t.Errorf("%+v is not in %+v", want, log)
}

func TestAllowedNetwork(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		world, f := onInternet(t, uid)
		for _, at := range []string{"203.0.113.10:443", "203.0.113.11:443", "203.0.113.12:443", "[2001:db8:1::12]:443"} {
			world.ListenTCP(at, serveText("served"))
		}
		world.DNS.SetAddrs("pkg.example.net", "203.0.113.10")
		world.DNS.SetAddrs("evil.example.com", "203.0.113.11")
		ref := f.create(func(spec *plugin.SandboxSpec) {
			spec.Network = plugin.NetworkPolicy{
				Mode: plugin.NetworkAllow, Hosts: []string{"pkg.example.net"}, CIDRs: []string{"2001:db8:1::/64", "203.0.113.12/32"},
			}
		})
		// The address counts only once an answer has given it.
		f.wantReach(ref, map[string]string{"203.0.113.10:443": "refused", "evil.example.com:443": "no name"})
		f.wantReach(ref, map[string]string{
			"pkg.example.net:443": "served", "203.0.113.12:443": "served", "[2001:db8:1::12]:443": "served", "203.0.113.11:443": "refused",
		})
		f.wantReach(ref, map[string]string{"203.0.113.10:443": "served"})
		seen, err := f.Inspect(f.ctx(), ref)
		if err != nil || seen.Network.Mode != plugin.NetworkAllow || len(seen.Network.Hosts) != 1 || len(seen.Network.CIDRs) != 2 {
			t.Errorf("inspect: %+v, %v", seen, err)
		}
		f.wantAccess(ref, plugin.Access{Verdict: plugin.AccessAllowed, Protocol: "tcp", Host: "pkg.example.net", Address: "203.0.113.10", Port: 443}, "")
		for _, query := range world.DNS.Queries() {
			if query.Name != "pkg.example.net" {
				t.Errorf("the nameserver was asked for %s", query.Name)
			}
		}
	})
}

// TestNetworkCarriesBytes sends more than any buffer holds through the guest and back.
func TestNetworkCarriesBytes(t *testing.T) {
	world, f := onInternet(t, otherUser)
	content := make([]byte, 32<<20)
	for i := range content {
		content[i] = byte(rand.Uint32())
	}
	at := world.ListenTCP("203.0.113.10:80", func(connection *net.TCPConn) {
		sum := sha256.New()
		if _, err := io.Copy(sum, connection); err != nil {
			return
		}
		_, _ = io.Copy(connection, bytes.NewReader(content))
		_, _ = connection.Write(sum.Sum(nil))
	})
	world.ListenUDP("203.0.113.10:7", func(datagram []byte, _ netip.AddrPort) []byte { return datagram })
	ref := f.create(opened)
	script := fmt.Sprintf(`
import socket, hashlib, sys
s = socket.create_connection(("%s", %d))
sent = bytes(range(256)) * 65536
s.sendall(sent)
s.shutdown(socket.SHUT_WR)
got = s.makefile("rb").read()
print(got[-32:] == hashlib.sha256(sent).digest(), hashlib.sha256(got[:-32]).hexdigest())
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(20)
u.connect(("203.0.113.10", 7))
u.send(b"x" * 1400)
print(len(u.recv(2000)))
u.connect(("10.0.0.1", 7))
u.send(b"y")
try:
    u.recv(10)
except ConnectionRefusedError:
    print("refused")
`, at.Addr(), at.Port())
	sum := sha256.Sum256(content)
	want := "True " + hex.EncodeToString(sum[:]) + "\n1400\nrefused\n"
	if done := f.exec(ref, &plugin.ExecRequest{Argv: []string{"python3", "-c", script}, Timeout: patience}); done.stdout != want {
		t.Errorf("got %+v, want %s", done, want)
	}
}

// TestNetworkEndsWithItsKeeper: what was reached before is not any more.
func TestNetworkEndsWithItsKeeper(t *testing.T) {
	world, f := onInternet(t, 0)
	world.ListenTCP("203.0.113.10:80", serveText("public"))
	ref := f.create(opened)
	f.wantReach(ref, map[string]string{"203.0.113.10:80": "public"})
	if err := syscall.Kill(f.keeper(ref), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	done := f.exec(ref, &plugin.ExecRequest{Argv: []string{"python3", "-c", strings.Replace(reach, ", 20)", ", 2)", 1), "203.0.113.10:80"}})
	if strings.Contains(done.stdout, "public") || done.took > 30*time.Second {
		t.Errorf("got %+v", done)
	}
}
