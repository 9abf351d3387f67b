package opensandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// First bytes of binary frames.
const (
	frameStdin  = 0x00
	frameStdout = 0x01
	frameStderr = 0x02
	frameReplay = 0x03
)

const (
	// startLimit is how long the daemon may take from the websocket to the command's start.
	startLimit = 30 * time.Second
	// keepAlive is how often a quiet connection is checked, and how long the answer may take.
	keepAlive = 15 * time.Second
	// maxMessage bounds a frame; the largest the daemon sends is its replay memory of 1 MiB.
	maxMessage = 4 << 20
)

// session is a terminal session with its websocket.
type session struct {
	id   string
	conn *websocket.Conn
	in   bytes.Buffer
}

// next reads a frame, which is valid until the next call.
func (s *session) next(ctx context.Context) (websocket.MessageType, []byte, error) {
	kind, r, err := s.conn.Reader(ctx)
	if err != nil {
		return 0, nil, err
	}
	s.in.Reset()
	_, err = s.in.ReadFrom(r)
	return kind, s.in.Bytes(), err
}

// openSession makes a session and attaches to it, which starts its process.
func (x *execd) openSession(ctx context.Context, command string, terminal bool) (*session, error) {
	id, err := x.startSession(ctx, command)
	if err != nil {
		return nil, err
	}
	conn, err := x.attach(ctx, id, terminal)
	if err != nil {
		return nil, errors.Join(err, x.discard(ctx, id))
	}
	return &session{id: id, conn: conn}, nil
}

// discard ends a session that is of no use, also when the context has ended.
func (x *execd) discard(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := x.endSession(ctx, id); err != nil && plugin.KindOf(err) != plugin.KindUnavailable {
		return err
	}
	return nil
}

func (x *execd) attach(ctx context.Context, id string, terminal bool) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	k := x.call(http.MethodGet, "attach to the command", "pty", id, "ws")
	mode := "0"
	if terminal {
		mode = "1"
	}
	k.url.RawQuery = "pty=" + mode
	conn, resp, err := websocket.Dial(ctx, k.url.String(), &websocket.DialOptions{
		HTTPClient: x.stream, HTTPHeader: k.header, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, x.explain(answerError(k.what, k.url, resp, nil)).(*plugin.Error).
				WithHint("commands need a websocket; a proxy on the way may not let it pass")
		}
		return nil, x.unreachable(transportError(k.what, k.url, err))
	}
	conn.SetReadLimit(maxMessage)
	return conn, nil
}

// control is a text frame from the daemon.
type control struct {
	Type     string `json:"type"`
	ExitCode int    `json:"exit_code"`
	Error    string `json:"error"`
	Code     string `json:"code"`
}

// sendStdin writes to the session's stdin.
func (s *session) sendStdin(ctx context.Context, data ...[]byte) error {
	frame := []byte{frameStdin}
	for _, d := range data {
		frame = append(frame, d...)
	}
	return s.conn.Write(ctx, websocket.MessageBinary, frame)
}

// maxProgram is what its length in eight digits leaves room for.
const maxProgram = 99_999_999

// sendProgram writes the text for bootstrap.
func (s *session) sendProgram(ctx context.Context, text []byte) error {
	return s.sendStdin(ctx, fmt.Appendf(nil, "%08d", len(text)), text)
}

// sendFrame writes a frame for the command's stdin.
func (s *session) sendFrame(ctx context.Context, data []byte) error {
	return s.sendStdin(ctx, fmt.Appendf(nil, "%d\n", len(data)), data)
}

func (s *session) resize(ctx context.Context, size plugin.TerminalSize) error {
	if size.Rows == 0 || size.Cols == 0 {
		return nil
	}
	data, err := json.Marshal(map[string]any{"type": "resize", "cols": min(size.Cols, 1<<15), "rows": min(size.Rows, 1<<15)})
	if err != nil {
		return err
	}
	return s.conn.Write(ctx, websocket.MessageText, data)
}

func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
