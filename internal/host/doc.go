// Package host is the drivers as seen from the command line: it finds a driver's
// executable, starts it as a subprocess, calls it, says in one sentence what went
// wrong, and leaves no process and no socket behind.
//
// A command makes one [Host], calls [Host.Start] for the one driver that it needs
// and [Driver.Close] at its end; ls and gc, which ask several, use [Host.Each].
//
// A driver is trusted with its own credentials and with nothing else: it gets a
// short list of variables and those it declares, no stdin, and never the terminal.
// How it is run follows from what is known to go wrong with hashicorp/go-plugin
// 1.8: inherited stdin (its pull request 127), hosts that hang on a grandchild's
// stderr, orphans (issue 210), sockets left behind (119), environments that make
// the host panic, and error texts that hide the cause.
package host
