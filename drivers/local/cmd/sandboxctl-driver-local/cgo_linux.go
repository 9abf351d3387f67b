//go:build cgo

package main

// dynamic says that this program may need libraries to start. gVisor starts it again
// in an empty root, where there are none.
const dynamic = true
