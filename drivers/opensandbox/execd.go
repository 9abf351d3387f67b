package opensandbox

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// execdTokenHeader authenticates to execd.
const execdTokenHeader = "X-EXECD-ACCESS-TOKEN"

// execd is the daemon inside one sandbox.
type execd struct {
	*clients
	*endpoint
}

// execd finds the daemon of a sandbox. The token is worthless when the sandbox was made by another state directory.
func (d *Driver) execd(ctx context.Context, box boxRef) (*execd, error) {
	e, err := d.server.endpoint(ctx, box.ID, execdPort)
	if err != nil {
		return nil, err
	}
	token, err := d.secret.token(box.sandboxctlID)
	if err != nil {
		return nil, err
	}
	e.header.Set(execdTokenHeader, token)
	return &execd{clients: d.server.clients, endpoint: e}, nil
}

// ping returns nil when execd answers.
func (x *execd) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := x.once(ctx, x.call(http.MethodGet, "reach execd", "ping"), nil, nil)
	return x.explain(err)
}

// explain turns what execd or something before it answers into what it means here.
func (x *execd) explain(err error) error {
	a := answerOf(err)
	switch {
	case a == nil:
		return x.unreachable(err)
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		return plugin.Errorf(plugin.KindAuth, "execd of the sandbox refused the access token: %w", err).
			WithHint("the sandbox was made by another user or with another state directory; use that one")
	}
	return x.unreachable(err)
}

// startSession makes a terminal session; its process starts when a websocket attaches.
func (x *execd) startSession(ctx context.Context, command string) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, unaryTimeout)
	defer cancel()
	k := x.call(http.MethodPost, "start the command", "pty")
	k.body = map[string]string{"command": command}
	var out struct {
		SessionID string `json:"session_id"`
	}
	_, err = x.do(ctx, k, &out)
	switch a := answerOf(err); {
	case a != nil && (a.status == http.StatusNotFound || a.status == http.StatusMethodNotAllowed):
		return "", plugin.Errorf(plugin.KindRefused, "the sandbox's execd has no terminal sessions: %w", err).
			WithHint("execd 1.0.10 or newer is needed; set runtime.execd_image in the server's configuration")
	case err != nil:
		return "", x.explain(err)
	case out.SessionID == "":
		return "", plugin.Errorf(plugin.KindInternal, "execd made a terminal session without an id")
	}
	return out.SessionID, nil
}

// endSession kills what is left of a session's own process group. An unknown session is done already.
func (x *execd) endSession(ctx context.Context, id string) error {
	_, err := x.do(ctx, x.call(http.MethodDelete, "end the session", "pty", id), nil)
	if a := answerOf(err); a != nil && a.status == http.StatusNotFound {
		return nil
	}
	return err
}

// commandLimit bounds a command of the driver's own: execd ends it after ten seconds, but some daemons accept a
// command and never say anything.
const commandLimit = 20 * time.Second

// run runs a short shell text with execd's plain command route and waits for its end.
func (x *execd) run(ctx context.Context, text string) (*outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	k := x.call(http.MethodPost, "run a command", "command")
	k.body = map[string]any{"command": text, "timeout": 10_000}
	resp, err := x.openStream(ctx, k)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return readEvents(resp.Body)
}

var errNotRunning = errors.New("the command has ended")

// signalName is what kill takes; the name becomes part of a shell text.
var signalName = regexp.MustCompile(`^[A-Z][A-Z0-9+-]*$`)

// signal sends a signal to a command's process group, or to the process alone before it has made its group.
func (x *execd) signal(ctx context.Context, name string, group int) error {
	if !signalName.MatchString(name) {
		return errors.New("it is not the name of a signal")
	}
	target := strconv.Itoa(group)
	out, err := x.run(ctx, "kill -s "+name+" -- -"+target+" 2>/dev/null || kill -s "+name+" "+target)
	if err != nil {
		return err
	}
	if out.exitCode != 0 {
		return errNotRunning
	}
	return nil
}
