package modal

import (
	"context"
	"crypto/rand"
	_ "embed"
	"io"

	modalsdk "github.com/modal-labs/modal-client/go"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// markName is the variable that marks a command and all that it starts.
const markName = "EXEC_MARK"

// mark tells one command's processes from all others. The SDK gives out neither
// process IDs nor a way to send signals, but every process inherits its
// environment, also across setsid and double forks.
type mark string

func newMark() mark { return mark(rand.Text()) }

//go:embed control.sh
var controlScript string

// control runs the control script on the command's processes.
func (r *run) control(ctx context.Context, action string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	argv := append([]string{"sh", "-c", controlScript, "sh", markName + "=" + string(r.mark), action}, args...)
	// The worker's own limit ends a script that we have given up.
	process, err := r.sandbox.Exec(ctx, argv, &modalsdk.SandboxExecParams{Stdout: modalsdk.Ignore, Timeout: wholeSeconds(killLimit)})
	if err != nil {
		return classify(err, "starting the %s of the command", action)
	}
	code, err := process.Wait(ctx, nil)
	if err != nil {
		return classify(err, "waiting for the %s of the command", action)
	}
	if code != 0 {
		said, _ := io.ReadAll(io.LimitReader(process.Stderr, 512)) // only to be helpful
		return plugin.Errorf(plugin.KindInternal, "the %s of the command ended with %d: %s", action, code, said)
	}
	return nil
}

// kill ends the command and everything that it started, on a context of its own.
// Where that is not possible it ends the sandbox, and says that it has not
// survived.
func (r *run) kill(ctx context.Context) (survived bool) {
	fresh := context.WithoutCancel(ctx)
	err := r.control(fresh, "kill")
	if err == nil {
		return true
	}
	if plugin.KindOf(err) == plugin.KindNotFound {
		return false
	}
	r.driver.config.Logger.Warn("the sandbox is terminated because its command cannot be killed", "sandbox", r.handle.ModalID, "error", err)
	ending, cancel := context.WithTimeout(fresh, killLimit)
	defer cancel()
	if _, err := r.sandbox.Terminate(ending, nil); err != nil && !isGone(err) {
		r.driver.config.Logger.Error("the sandbox cannot be terminated", "sandbox", r.handle.ModalID, "error", err)
		return true
	}
	r.driver.remember(r.handle.ModalID)
	return false
}
