package network

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// dialReason says why a server could not be reached, in words of our own.
func dialReason(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return "connection refused by the server"
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EADDRNOTAVAIL):
		return "this host has no route to the address"
	case errors.Is(err, unix.EHOSTUNREACH):
		return "the address is unreachable from this host"
	case errors.Is(err, unix.ECONNRESET):
		return "connection reset by the server"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return "this host's firewall prohibits the connection"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "too many files are open on this host"
	case errors.Is(err, context.Canceled):
		return "the sandbox's network ended"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, unix.ETIMEDOUT):
		return fmt.Sprintf("no answer within %s", dialTimeout)
	}
	return "the connection failed"
}

// isServerFault says that an error came from the server's side of a flow and not from
// the flow's being ended.
func isServerFault(err error) bool {
	var errno unix.Errno
	return errors.As(err, &errno)
}
