//go:build linux

package execd

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coder/websocket"
)

// writeLimit is how long the daemon waits for a slow client before it gives the connection up.
const writeLimit = 10 * time.Second

const statusTakenOver = 4001

func (s *server) attachPTY(w http.ResponseWriter, r *http.Request) {
	p := s.pty(w, r)
	if p == nil {
		return
	}
	if !p.take(r.URL.Query().Get("takeover") == "1") {
		fail(w, http.StatusConflict, "ALREADY_CONNECTED", "another client is already connected to pty session "+p.id)
		return
	}
	defer p.release()
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(-1)
	if err := p.start(r.URL.Query().Get("pty") != "0"); err != nil {
		writeFrame(r.Context(), conn, map[string]any{"type": "error", "code": "START_FAILED", "error": err.Error()})
		return
	}
	since, _ := strconv.ParseInt(r.URL.Query().Get("since"), 10, 64)
	s.serveAttached(r.Context(), conn, p, since)
}

func (p *ptySession) take(evict bool) bool {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		free, fn := !p.attached, p.evict
		if free {
			p.attached = true
		}
		p.mu.Unlock()
		if free {
			return true
		}
		if !evict || time.Now().After(deadline) {
			return false
		}
		if fn != nil {
			fn()
		}
	}
}

func (p *ptySession) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attached, p.sink, p.evict = false, nil, nil
}

// serveAttached moves frames both ways until the client goes, another takes over or the process ends.
func (s *server) serveAttached(ctx context.Context, conn *websocket.Conn, p *ptySession, since int64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sent atomic.Int64
	connected := make(chan struct{})
	sink := func(channel byte, data []byte) {
		<-connected
		if s.opts.CutAfter > 0 && sent.Add(int64(len(data))) > s.opts.CutAfter {
			_ = conn.CloseNow()
			cancel()
			return
		}
		wctx, stop := context.WithTimeout(ctx, writeLimit)
		defer stop()
		if conn.Write(wctx, websocket.MessageBinary, append([]byte{channel}, data...)) != nil {
			cancel()
		}
	}
	missed, offset := p.snapshot(since, sink)
	if len(missed) > 0 {
		frame := binary.BigEndian.AppendUint64([]byte{0x03}, uint64(offset))
		_ = conn.Write(ctx, websocket.MessageBinary, append(frame, missed...))
	}
	mode := "pipe"
	p.mu.Lock()
	if p.onPTY {
		mode = "pty"
	}
	done := p.done
	p.evict = func() {
		go conn.Close(statusTakenOver, "TAKEN_OVER")
		cancel()
	}
	p.mu.Unlock()
	writeFrame(ctx, conn, map[string]any{"type": "connected", "session_id": p.id, "mode": mode})
	close(connected)

	go s.pingLoop(ctx, conn, cancel)
	go func() {
		select {
		case <-ctx.Done():
		case <-done:
			p.mu.Lock()
			code := p.exitCode
			p.mu.Unlock()
			writeFrame(ctx, conn, map[string]any{"type": "exit", "exit_code": code})
			_ = conn.Close(websocket.StatusNormalClosure, "process exited")
			cancel()
		}
	}()
	p.readFrames(ctx, conn)
}

func (s *server) pingLoop(ctx context.Context, conn *websocket.Conn, cancel func()) {
	interval := s.opts.PingInterval
	if interval == 0 {
		interval = 30 * time.Second
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
		pctx, stop := context.WithTimeout(ctx, interval)
		err := conn.Ping(pctx)
		stop()
		if err != nil {
			cancel()
			return
		}
	}
}

var signals = map[string]syscall.Signal{
	"SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL,
	"SIGQUIT": syscall.SIGQUIT, "SIGHUP": syscall.SIGHUP,
}

// readFrames handles what the client sends, one frame at a time: while stdin is full nothing else is read.
func (p *ptySession) readFrames(ctx context.Context, conn *websocket.Conn) {
	for {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			if len(data) > 0 && data[0] == 0x00 && !p.writeStdin(ctx, conn, data[1:]) {
				return
			}
			continue
		}
		var frame struct {
			Type, Data, Signal string
			Cols, Rows         uint16
		}
		if json.Unmarshal(data, &frame) != nil {
			continue
		}
		switch frame.Type {
		case "stdin":
			if !p.writeStdin(ctx, conn, []byte(frame.Data)) {
				return
			}
		case "signal":
			if sig, ok := signals[frame.Signal]; ok {
				p.signal(sig)
			}
		case "resize":
			p.resize(frame.Cols, frame.Rows)
		case "ping":
			writeFrame(ctx, conn, map[string]any{"type": "pong"})
		default:
			writeFrame(ctx, conn, map[string]any{"type": "error", "code": "INVALID_FRAME", "error": "unknown frame type " + frame.Type})
		}
	}
}

func (p *ptySession) writeStdin(ctx context.Context, conn *websocket.Conn, data []byte) bool {
	if _, err := p.stdin.Write(data); err != nil {
		writeFrame(ctx, conn, map[string]any{"type": "error", "code": "STDIN_WRITE_FAILED", "error": err.Error()})
		return false
	}
	return true
}

func writeFrame(ctx context.Context, conn *websocket.Conn, v map[string]any) {
	data, err := json.Marshal(v)
	if err != nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, writeLimit)
	defer stop()
	_ = conn.Write(ctx, websocket.MessageText, data)
}
