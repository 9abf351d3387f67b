package cli

import (
	"os"

	"golang.org/x/term"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// attachTerminal makes our terminal the command's: raw, so that keys reach it as they
// are, and with its size passed on. The returned function gives the terminal back as it
// was; it is safe to call without a terminal.
func (a *App) attachTerminal(request *plugin.ExecRequest, stdio *plugin.ExecIO) (restore func(), err error) {
	if !request.TTY {
		return func() {}, nil
	}
	stdout, ok := a.Stdout.(*os.File)
	if !ok {
		return nil, usagef("--tty needs a terminal")
	}
	request.Size = terminalSize(stdout)
	sizes, stopSizes := watchSize(stdout)
	stdio.Resize = sizes
	stdin, ok := a.Stdin.(*os.File)
	if !request.Stdin || !ok {
		return stopSizes, nil
	}
	saved, err := term.MakeRaw(int(stdin.Fd()))
	if err != nil {
		stopSizes()
		return nil, usagef("--tty: the terminal cannot be made raw: %w", err)
	}
	return func() {
		stopSizes()
		_ = term.Restore(int(stdin.Fd()), saved)
	}, nil
}

func terminalSize(terminal *os.File) plugin.TerminalSize {
	cols, rows, err := term.GetSize(int(terminal.Fd()))
	if err != nil {
		return plugin.TerminalSize{Rows: 24, Cols: 80}
	}
	return plugin.TerminalSize{Rows: uint32(rows), Cols: uint32(cols)}
}
