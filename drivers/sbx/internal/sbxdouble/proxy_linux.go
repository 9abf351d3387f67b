package sbxdouble

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// proxyAddress is where a guest finds the host's proxy, by its environment.
const (
	proxyAddress = "127.0.0.1:3128"
	proxyURL     = "http://" + proxyAddress
)

func (m *machine) startProxy(p *proxy) error {
	listener, err := net.Listen("tcp4", proxyAddress)
	if err != nil {
		return err
	}
	p.machine = m
	go func() { _ = http.Serve(listener, p) }()
	return nil
}

type proxy struct {
	machine *machine
	hostNet *os.File
}

// allows asks the rules as they are now.
func (p *proxy) allows(host string, port int) bool {
	policy, err := p.machine.app.store.policy(p.machine.app.config)
	if err != nil {
		return false
	}
	allowed, _ := policy.decide(p.machine.app.config, p.machine.box.Name, host, port)
	return allowed
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, port := r.URL.Hostname(), 80
	if r.Method == http.MethodConnect {
		port = 443
	}
	if text := r.URL.Port(); text != "" {
		port, _ = strconv.Atoi(text)
	}
	if !p.allows(host, port) {
		http.Error(w, "Blocked by network policy", http.StatusForbidden)
		return
	}
	upstream, err := p.dial(net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer upstream.Close()
	if r.Method != http.MethodConnect {
		p.forward(w, r, upstream)
		return
	}
	client, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	_, _ = io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
	splice(client, upstream)
}

func (p *proxy) forward(w http.ResponseWriter, r *http.Request, upstream net.Conn) {
	// There is one connection, and it has been made.
	transport := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return upstream, nil },
		DisableKeepAlives: true,
	}
	r.RequestURI = ""
	response, err := transport.RoundTrip(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer response.Body.Close()
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body)
}

// dial connects in the host's network: the thread enters it and, because it
// could not be trusted afterwards, ends with the goroutine.
func (p *proxy) dial(address string) (net.Conn, error) {
	if p.hostNet == nil {
		return nil, fmt.Errorf("sbxdouble: no way out without root on the host")
	}
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(p.hostNet.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{err: err}
			return
		}
		addr, err := net.ResolveTCPAddr("tcp4", address)
		if err != nil {
			done <- result{err: err}
			return
		}
		conn, err := dialHere(addr)
		done <- result{conn: conn, err: err}
	}()
	r := <-done
	return r.conn, r.err
}

// dialHere connects on the calling thread, which net.Dial does not promise.
func dialHere(addr *net.TCPAddr) (net.Conn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "upstream")
	defer file.Close()
	var target [4]byte
	copy(target[:], addr.IP.To4())
	timeout := unix.NsecToTimeval(int64(10 * time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: addr.Port, Addr: target}); err != nil {
		return nil, err
	}
	return net.FileConn(file)
}
