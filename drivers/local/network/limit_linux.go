package network

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	maxTCPFlows = 2048
	maxUDPFlows = 1024
	// reservedFiles are the descriptors left for everything else: DNS, the process.
	reservedFiles = 128
)

// limit bounds how many there are of something.
type limit struct {
	most int64
	used atomic.Int64
}

func (l *limit) acquire() bool {
	if l.used.Add(1) > l.most {
		l.used.Add(-1)
		return false
	}
	return true
}

func (l *limit) release() { l.used.Add(-1) }

// flowLimits keeps the flows, each with a socket, within what this process may open.
func flowLimits() (tcp, udp *limit) {
	files := int64(maxTCPFlows + maxUDPFlows)
	var most unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &most) == nil && most.Cur < uint64(files+reservedFiles) {
		files = max(int64(most.Cur)-reservedFiles, 32)
	}
	return &limit{most: files * 2 / 3}, &limit{most: files / 3}
}
