// Package local is the driver for sandboxes on this machine: gVisor, whose runsc is
// part of the driver's own binary. It needs no daemon, no root and nothing installed.
//
// A sandbox is a directory in the driver's state directory and the processes of one
// runsc sandbox. Its root is made of the host's /usr and an /etc of its own, or is an
// image that package images keeps; all writes go to a layer that ends with the sandbox.
package local
