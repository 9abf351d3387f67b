package local_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxctl/sandboxctl/drivers/local/internal/testnet"
	"github.com/sandboxctl/sandboxctl/plugin/conformance"
	"github.com/sandboxctl/sandboxctl/plugin/conformance/conformancetest"
)

// onHostEnv is set, to the directory with the driver, in the process that runs the suite
// on a host of the tests' own.
const onHostEnv = "SANDBOXCTL_TEST_ON_HOST"

// TestConformance runs the suite as root and as an ordinary user. There is no internet
// where tests run, so each has a host of its own, on which the suite runs as a process,
// and an internet in which what the suite looks for can be reached.
func TestConformance(t *testing.T) {
	if built := os.Getenv(onHostEnv); built != "" {
		testConformanceHere(t, built)
		return
	}
	asUsers(t, func(t *testing.T, uid int) {
		world := testnet.New(t)
		for _, address := range []string{"1.1.1.1:443", "8.8.8.8:443"} {
			world.ListenTCP(address, serveText("x\n"))
		}
		world.DNS.SetAddrs("example.com", "203.0.113.80")
		world.ListenTCP("203.0.113.80:443", serveTLS(t))

		dir := t.TempDir()
		for _, each := range []string{filepath.Dir(dir), dir} {
			if err := os.Chmod(each, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		tmp := filepath.Join(dir, "t")
		if err := os.Mkdir(tmp, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(tmp, uid, uid); err != nil {
			t.Fatal(err)
		}
		// Other users may not be able to reach the test's own file.
		self := filepath.Join(dir, "suite.test")
		if out, err := exec.Command("cp", os.Args[0], self).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		suite := exec.Command(self, "-test.run=^TestConformance$", "-test.v", "-test.parallel=4")
		suite.Dir = tmp
		suite.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + tmp, "HOME=" + tmp, onHostEnv + "=" + built, "GORACE=" + os.Getenv("GORACE")}
		if uid == 0 {
			suite.Env = append(suite.Env, conformancetest.ReportsEnv+"="+os.Getenv(conformancetest.ReportsEnv))
		}
		suite.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		var output strings.Builder
		suite.Stdout, suite.Stderr = &output, &output
		if err := world.Start(suite); err != nil {
			t.Fatal(err)
		}
		if err := suite.Wait(); err != nil {
			t.Errorf("the suite: %v\n%s", err, failures(output.String()))
		}
	})
}

// failures leaves of a test's output what is of use.
func failures(output string) string {
	var kept []string
	for line := range strings.Lines(output) {
		trimmed := strings.TrimSpace(line)
		if !strings.HasPrefix(trimmed, "=== ") && !strings.HasPrefix(trimmed, "--- PASS") && !strings.HasPrefix(trimmed, "--- SKIP") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

func testConformanceHere(t *testing.T, built string) {
	state := t.TempDir()
	target := conformance.Binary(conformance.BinaryOptions{
		Name: "local", Path: filepath.Join(built, "sandboxctl-driver-local"), StateDir: state,
	})
	target.CheckedAgainst = "gVisor on this machine, with an internet of the test's own"
	t.Cleanup(func() {
		for _, left := range leftovers(state) {
			t.Errorf("left behind: %s", left)
		}
	})
	conformancetest.Test(t, target)
}

// serveTLS makes a handshake with whoever does not look at the certificate.
func serveTLS(t *testing.T) func(*net.TCPConn) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: private}}}
	return func(connection *net.TCPConn) {
		_ = tls.Server(connection, config).Handshake()
	}
}
