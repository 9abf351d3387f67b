package opensandbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// maxFrame bounds one event. A line of output is one event, however long it is.
const maxFrame = 64 << 20

// maxOutput is how much of a command's output is kept; the guest decides how much there is.
const maxOutput = 64 << 10

// openStream makes a streaming request; the caller closes the body. It is never repeated: a command that was sent
// may have run.
func (c *clients) openStream(ctx context.Context, k call) (*http.Response, error) {
	payload, err := json.Marshal(k.body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, k.method, k.url.String(), bytes.NewReader(payload))
	if err != nil {
		return nil, err
	}
	req.Header = k.header
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.stream.Do(req)
	if err != nil {
		return nil, transportError(k.what, k.url, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		data, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return nil, answerError(k.what, k.url, resp, data)
	}
	return resp, nil
}

// outcome is how a command on the plain command route ended.
type outcome struct {
	exitCode int // -1 when it was killed
	output   string
}

// readEvents reads a command's events to the terminal one and no further: the daemon holds the body open for a
// second after it and may then drop the connection.
func readEvents(body io.Reader) (*outcome, error) {
	out := &outcome{}
	frames := newFrameScanner(body)
	for frames.Scan() {
		var ev struct {
			Type, Text, Code, Message string
			Error                     *struct {
				Evalue string `json:"evalue"`
			}
		}
		if err := json.Unmarshal(frames.Bytes(), &ev); err != nil {
			return nil, plugin.Errorf(plugin.KindInternal, "execd sent an event that is not JSON: %w", err)
		}
		switch {
		case ev.Type == "stdout":
			out.output += ev.Text[:min(len(ev.Text), maxOutput-len(out.output))]
		case ev.Type == "execution_complete":
			return out, nil
		case ev.Type == "error" && ev.Error != nil:
			code, err := strconv.Atoi(ev.Error.Evalue)
			if err != nil {
				return nil, plugin.Errorf(plugin.KindInternal, "execd could not run a command: %s", ev.Error.Evalue)
			}
			out.exitCode = code
			return out, nil
		case ev.Type == "" && ev.Code != "":
			return nil, plugin.Errorf(plugin.KindInternal, "execd failed while running a command: %s %s", ev.Code, ev.Message)
		}
	}
	if err := frames.Err(); err != nil {
		return nil, plugin.Errorf(plugin.KindIndeterminate, "the connection to execd was lost while a command ran: %w", err)
	}
	return nil, plugin.Errorf(plugin.KindIndeterminate, "execd's event stream ended before the command's end was told")
}

// newFrameScanner splits a body into JSON objects. Frames are bare objects ended by an empty line, or documented
// server-sent events with "data:" lines.
func newFrameScanner(body io.Reader) *bufio.Scanner {
	s := bufio.NewScanner(body)
	s.Buffer(make([]byte, 0, 64<<10), maxFrame)
	s.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		advance := 0
		for {
			n, line, err := bufio.ScanLines(data[advance:], atEOF)
			if err != nil || n == 0 {
				return advance, nil, err
			}
			advance += n
			line = bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(line), []byte("data:")))
			if len(line) > 0 && line[0] == '{' {
				return advance, line, nil
			}
		}
	})
	return s
}
