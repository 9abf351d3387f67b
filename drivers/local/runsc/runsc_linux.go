// Package runsc makes a program able to be gVisor's runsc, so that the local driver
// is one file with nothing to install beside it.
package runsc

import (
	"os"

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

// Name is how a program's name begins when it is started as runsc: by the driver, or
// by runsc itself, which starts its gofer and its sandbox from /proc/self/exe.
const Name = "runsc"

// Main runs the command in os.Args and does not return.
//
// Only what the driver uses is registered: maincli, which has every command, makes
// the binary more than twice as large.
func Main() {
	dieFirst()
	os.Args = tellMemory(os.Args)
	cli.Run(nil, map[util.SubCommand]string{
		new(cmd.Run):          "",
		new(cmd.Exec):         "",
		new(cmd.Kill):         "",
		new(cmd.Delete):       "",
		new(cmd.Gofer):        "internal",
		new(sentrycmd.Boot):   "internal",
		new(sentrycmd.Umount): "internal",
	}, nil)
}
