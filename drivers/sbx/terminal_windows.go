package sbx

import (
	"context"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// terminalSupport is false: sbx wants a terminal of its own, which the driver cannot
// make on Windows.
const terminalSupport = false

func (d *Driver) onTerminal(context.Context, *program, *record, *plugin.ExecRequest, *plugin.ExecIO) (plugin.ExitStatus, error) {
	return plugin.ExitStatus{}, plugin.Refusedf("--tty", "sbx cannot be given a terminal on Windows").WithHint("Run `sbx exec -it` by hand.")
}
