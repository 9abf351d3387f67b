//go:build !linux

package sbxdouble

import (
	"errors"
	"net"
)

var errNoMachine = errors.New("sbxdouble: machines need Linux namespaces")

func (a *app) boot(*sandbox) (bool, error)              { return false, errNoMachine }
func (a *app) halt(string)                              {}
func (a *app) running(string) bool                      { return false }
func (a *app) dial(string) (net.Conn, error)            { return nil, errNoMachine }
func guestMain(string) int                              { return 70 }
func rawTerminal(*frames, *execRequest) (func(), error) { return nil, errNoMachine }
