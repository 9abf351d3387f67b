//go:build linux

// Package osbdouble is a working stand-in for an OpenSandbox installation on Docker: a lifecycle server, and in each
// sandbox an execd and, where a network policy was asked for, an egress sidecar. Sandboxes are separate Linux
// namespaces in which commands really run. It is built from the documented interface and from observations of the
// real thing, has a knob for each known defect, and knows nothing about the driver that it is used to test.
package osbdouble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/egress"
	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/execd"
)

// Knobs change how the installation behaves; the zero value is a healthy server with an egress image. They are read
// at each request, so that a test can change them at any time, see [Double.Set].
type Knobs struct {
	// APIKey is what lifecycle calls must carry; empty is a server without authentication.
	APIKey string
	// PullDelay is how long an image takes to arrive.
	PullDelay time.Duration
	// Images are those that can be had, DefaultImages when nil.
	Images []string
	// NoEgressImage refuses every network policy, as a server without the [egress] section does.
	NoEgressImage bool
	// Enforcement is the sidecars' mode, egress.ModeDNS when empty. In dns mode only names are refused.
	Enforcement string
	// DropPolicy accepts a policy and makes a sandbox without a sidecar.
	DropPolicy bool
	// AlterPolicy changes a policy before it is put in force.
	AlterPolicy func(egress.Policy) egress.Policy
	// UnreadyFor answers 502 on the server proxy for that long after Running.
	UnreadyFor time.Duration
	// WrapErrors answers {"detail":{"code","message"}}, as some deployments do.
	WrapErrors bool
	// LenientLimits ignores malformed resource limits, as releases up to 0.1 do, instead of refusing them.
	LenientLimits bool
	// UnknownFields refuses create requests with fields that are not documented, as compatible servers do.
	UnknownFields bool
	// MaxTimeout is the longest lifetime allowed; none when zero.
	MaxTimeout time.Duration
	// DeadEndpoints hands out an address on which nothing listens.
	DeadEndpoints bool
	// ClockSkew is added to the server's clock.
	ClockSkew time.Duration
	// MaxPageSize makes pages of a list smaller than the client asks for; no limit when zero.
	MaxPageSize int
	// Execd are the quirks of the execd in sandboxes created from now on.
	Execd execd.Options
	// Intercept sees each request to the lifecycle server first and returns true when it has answered it.
	Intercept func(w http.ResponseWriter, r *http.Request) bool
}

// DefaultImages are the images of an installation that says nothing about them. Whatever the name, a sandbox has
// the host's programs.
var DefaultImages = []string{"python:3.12-slim", "debian:bookworm-slim"}

// Double is one running installation.
type Double struct {
	addr string
	dir  string

	mu        sync.Mutex
	knobs     Knobs
	boxes     map[string]*sandbox
	server    *http.Server
	cut       context.CancelFunc // ends what the server still proxies
	epoch     int                // counts server starts; a create from an earlier life is abandoned
	creations sync.WaitGroup
	requests  []string
}

// Start runs an installation on a free port of the loopback.
func Start(knobs Knobs) (*Double, error) { return StartAt("127.0.0.1:0", knobs) }

// StartAt runs an installation whose lifecycle server listens on addr.
func StartAt(addr string, knobs Knobs) (*Double, error) {
	dir, err := os.MkdirTemp("", "osbdouble-")
	if err != nil {
		return nil, err
	}
	d := &Double{addr: addr, dir: dir, knobs: knobs, boxes: map[string]*sandbox{}}
	if err := d.ServerUp(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return d, nil
}

// URL is the lifecycle server's base address, without /v1.
func (d *Double) URL() string { return "http://" + d.addr }

// Addr is the lifecycle server's host and port.
func (d *Double) Addr() string { return d.addr }

// Set changes the knobs.
func (d *Double) Set(change func(*Knobs)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.knobs)
}

func (d *Double) settings() Knobs {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.knobs
}

// Requests lists the lifecycle requests so far, each as "METHOD path".
func (d *Double) Requests() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.requests...)
}

// ServerDown stops the lifecycle server; sandboxes keep running. What the server only had in memory is lost:
// renewed expiries fall back to those given at create.
func (d *Double) ServerDown() {
	d.mu.Lock()
	srv, cut := d.server, d.cut
	d.server = nil
	d.epoch++
	d.mu.Unlock()
	if srv == nil {
		return
	}
	cut()
	_ = srv.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.boxes {
		d.setExpiry(b, b.createExpiry)
	}
}

// ServerUp starts the lifecycle server again on the address it had.
func (d *Double) ServerUp() error {
	ln, err := listen(d.addr)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server != nil {
		_ = ln.Close()
		return errors.New("the server is already up")
	}
	d.addr = ln.Addr().String()
	life, cut := context.WithCancel(context.Background())
	srv := &http.Server{Handler: d.handler(), BaseContext: func(net.Listener) context.Context { return life }}
	d.server, d.cut = srv, cut
	go func() { _ = srv.Serve(ln) }()
	return nil
}

// listen takes a free port below those that the system gives to outgoing connections, so that a server that was down
// finds its port free again.
func listen(addr string) (ln net.Listener, err error) {
	host, found := strings.CutSuffix(addr, ":0")
	if !found {
		return net.Listen("tcp", addr)
	}
	for range 50 {
		if ln, err = net.Listen("tcp", fmt.Sprintf("%s:%d", host, 20000+rand.IntN(12000))); err == nil {
			return ln, nil
		}
	}
	return nil, err
}

// IDs lists the sandboxes that exist.
func (d *Double) IDs() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := make([]string, 0, len(d.boxes))
	for id := range d.boxes {
		ids = append(ids, id)
	}
	return ids
}

// Expire ends a sandbox as its lifetime would.
func (d *Double) Expire(id string) error {
	if !d.remove(id) {
		return fmt.Errorf("no sandbox %s", id)
	}
	return nil
}

// Pause freezes a sandbox, as another client of the server might.
func (d *Double) Pause(id string) error {
	d.mu.Lock()
	b := d.boxes[id]
	d.mu.Unlock()
	if b == nil {
		return fmt.Errorf("no sandbox %s", id)
	}
	if err := b.guest.Pause(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b.paused = true
	return nil
}

// Close stops the server and ends every sandbox.
func (d *Double) Close() {
	d.ServerDown()
	d.creations.Wait()
	for _, id := range d.IDs() {
		d.remove(id)
	}
	_ = os.RemoveAll(d.dir)
}
