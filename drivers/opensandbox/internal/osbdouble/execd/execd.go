//go:build linux

// Package execd is a working stand-in for OpenSandbox's in-sandbox daemon: it runs commands, keeps pseudo-terminal
// sessions and serves files over the daemon's own HTTP interface, misbehaving where the real one is known to.
// Code contexts, bash sessions and bubblewrap sessions are left out; they answer 404 like an unknown route.
package execd

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Port is where execd listens inside a container.
const Port = 44772

// How a line of output becomes an event; it changed over the releases.
const (
	LinesStripped  = ""          // terminator removed, an empty line is sent as "\n" (1.0.x)
	LinesDropBlank = "dropblank" // terminator removed, blank lines lost (before 1.0.9)
	LinesKept      = "kept"      // terminator kept (1.1)
)

// Options are the quirks of one execd. The zero value behaves like release 1.0.19.
type Options struct {
	// Lines is one of the Lines constants.
	Lines string
	// Unterminated ends event streams by dropping the connection instead of finishing the chunked body.
	Unterminated bool
	// MuteCommands never sends the first event of a command, as seen on Firecracker hosts.
	MuteCommands bool
	// SSE sends "data:" lines, the documented form, instead of bare JSON objects.
	SSE bool
	// LoseTail makes sure that output still in flight when a terminal session's process ends is lost; the real
	// daemon loses it only sometimes.
	LoseTail bool
	// NoBash behaves as if the image had no bash.
	NoBash bool
	// BashOnly is the old daemon that starts terminal sessions with bash and nothing else.
	BashOnly bool
	// PingInterval is the time between websocket pings; 30 s when zero. An unanswered ping ends the connection
	// after the same time again.
	PingInterval time.Duration
	// CutAfter drops a terminal websocket after that many output bytes, as a proxy with a limit does; 0 never.
	CutAfter int64
}

type server struct {
	opts  Options
	token string
	hold  time.Duration
	self  http.Handler

	mu       sync.Mutex
	commands map[string]*command
	ptys     map[string]*ptySession
}

// New returns the daemon's HTTP handler. As the real one does it takes its access token and its hold time from
// the process environment.
func New(opts Options) (http.Handler, error) {
	s := &server{
		opts: opts, token: os.Getenv("EXECD_ACCESS_TOKEN"), hold: time.Second,
		commands: map[string]*command{}, ptys: map[string]*ptySession{},
	}
	if v := os.Getenv("EXECD_API_GRACE_SHUTDOWN"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			return nil, err
		}
		s.hold = d
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ping", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("POST /command", s.runCommand)
	mux.HandleFunc("DELETE /command", s.interruptCommand)
	mux.HandleFunc("GET /command/{first}/{second}", s.commandReport)
	mux.HandleFunc("POST /pty", s.createPTY)
	mux.HandleFunc("GET /pty/{id}", s.statusPTY)
	mux.HandleFunc("DELETE /pty/{id}", s.deletePTY)
	mux.HandleFunc("GET /pty/{id}/ws", s.attachPTY)
	mux.HandleFunc("GET /files/info", s.filesInfo)
	mux.HandleFunc("POST /files/upload", s.upload)
	mux.HandleFunc("GET /files/download", s.download)
	mux.HandleFunc("DELETE /files", s.removeFiles)
	mux.HandleFunc("POST /files/mv", s.moveFiles)
	mux.HandleFunc("POST /files/permissions", s.setPermissions)
	mux.HandleFunc("GET /files/search", s.searchFiles)
	mux.HandleFunc("POST /files/replace", s.replaceInFiles)
	mux.HandleFunc("GET /directories/list", s.listDirectory)
	mux.HandleFunc("POST /directories", s.makeDirectories)
	mux.HandleFunc("DELETE /directories", s.removeDirectories)
	mux.HandleFunc("/proxy/{port}/{rest...}", s.proxy)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "404 page not found", http.StatusNotFound)
	})
	s.self = mux
	return s.authenticated(mux), nil
}

// authenticated asks for the access token on every route once one is set, /ping and /proxy included.
func (s *server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.token != "" && r.Header.Get("X-EXECD-ACCESS-TOKEN") != s.token {
			writeJSON(w, http.StatusUnauthorized, map[string]string{"error": "Unauthorized: invalid or missing access token"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// proxy reaches a port inside the sandbox, execd itself included.
func (s *server) proxy(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.Atoi(r.PathValue("port"))
	if err != nil || port < 1 || port > 65535 {
		fail(w, http.StatusBadRequest, "INVALID_REQUEST_BODY", "invalid port")
		return
	}
	prefix := "/proxy/" + r.PathValue("port")
	if port == Port {
		http.StripPrefix(prefix, s.self).ServeHTTP(w, r)
		return
	}
	// Without it an answer that begins early cuts a request whose end has not been read.
	_ = http.NewResponseController(w).EnableFullDuplex()
	rp := &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(&url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", r.PathValue("port"))})
			pr.Out.URL.Path = strings.TrimPrefix(pr.In.URL.Path, prefix)
		},
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			http.Error(w, "Bad Gateway", http.StatusBadGateway)
		},
	}
	rp.ServeHTTP(w, r)
}

func (s *server) metrics(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{
		"cpu_count": 2.0, "cpu_used_pct": 1.0, "mem_total_mib": 1024.0, "mem_used_mib": 128.0,
		"timestamp": time.Now().UnixMilli(),
	})
}

// shell is how the daemon runs shell text: bash without start-up files, or plain sh.
func (s *server) shell(text ...string) *exec.Cmd {
	name, args := "sh", []string{}
	if bash, err := exec.LookPath("bash"); err == nil && !s.opts.NoBash {
		name, args = bash, []string{"--norc", "--noprofile"}
	}
	if len(text) > 0 {
		args = append(args, "-c", text[0])
	}
	return exec.Command(name, args...)
}

// Answers reports whether something at addr speaks execd's protocol, with or without a token.
func Answers(addr string) bool {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + addr + "/ping")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusUnauthorized
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, status int, code, message string) {
	writeJSON(w, status, map[string]string{"code": code, "message": message})
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// expand replaces ~ and $VAR in a path, as the daemon does with every path it is given.
func expand(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		path = os.Getenv("HOME") + path[1:]
	}
	return os.ExpandEnv(path)
}
