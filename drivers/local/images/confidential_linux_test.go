package images

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
)

// TestOnlyThisMachineIsAskedInTheClear asks a server that is on this machine, for
// registries that are not: go-containerregistry itself would take private addresses and
// names in .local for safe.
func TestOnlyThisMachineIsAskedInTheClear(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer server.Close()
	for host, plain := range map[string]bool{
		strings.TrimPrefix(server.URL, "http://"): true, "localhost:5000": true, "localhost": true, "127.1.2.3": true, "[::1]:5000": true,
		"registry.local": false, "10.1.2.3:5000": false, "192.168.1.1": false, "registry.example.com": false, "localhost.example.com": false,
	} {
		registry, err := name.NewRegistry(host)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequest(http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		asked = 0
		answer, err := newTransport(registry).RoundTrip(request)
		if err == nil {
			_ = answer.Body.Close()
		}
		if (err == nil) != plain || (asked == 1) != plain {
			t.Errorf("%s: asked %d times in the clear (%v)", host, asked, err)
		}
	}
}
