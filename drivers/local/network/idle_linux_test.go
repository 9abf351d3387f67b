package network

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxctl/sandboxctl/drivers/local/internal/testnet"
)

// TestIdle counts how often a network that has nothing to do wakes up: with many
// sandboxes that adds up.
func TestIdle(t *testing.T) {
	world := testnet.New(t)
	world.ListenTCP("203.0.113.10:80", echo)
	world.DNS.SetAddrs("pkg.example.net", "203.0.113.10")
	k, g := startKeeper(t, world, 0, open)
	g.resolve("pkg.example.net", dnsmessage.TypeA)
	conn, err := g.dialTCP("203.0.113.10:80")
	must(t, err)
	exchangeBytes(t, conn, 1<<20)
	_ = conn.Close()
	lasting, err := g.dialTCP("203.0.113.10:80")
	must(t, err)
	defer lasting.Close()
	const quiet, most = 2 * time.Second, 20
	var wakeups int
	for began := time.Now(); time.Since(began) < hang; {
		before := k.wakeups()
		time.Sleep(quiet)
		if wakeups = k.wakeups() - before; wakeups <= most {
			t.Logf("%d in %v, %s", wakeups, quiet, k.report().RSS)
			return
		}
	}
	t.Errorf("the process wakes up %d times in %v", wakeups, quiet)
}

// wakeups is how often the keeper's threads have waited for something.
func (k *keeper) wakeups() int {
	sum := 0
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", k.pid))
	for _, file := range files {
		status, _ := os.ReadFile(file)
		_, after, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		var n int
		_, _ = fmt.Sscan(after, &n)
		sum += n
	}
	return sum
}
