package testnet

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// place is a thread that lives in namespaces of its own, which end with it.
type place struct {
	err   error
	netns int
	calls chan func()
	ended chan struct{}
}

func newPlace() *place {
	p := &place{calls: make(chan func()), ended: make(chan struct{})}
	ready := make(chan struct{})
	go p.live(ready)
	<-ready
	return p
}

func (p *place) live(ready chan<- struct{}) {
	defer close(p.ended)
	// It is never unlocked, so the thread ends with this goroutine.
	runtime.LockOSThread()
	p.err = p.separate()
	close(ready)
	for call := range p.calls {
		call()
	}
	if p.netns > 0 {
		_ = unix.Close(p.netns)
	}
}

func (p *place) separate() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return err
	}
	var err error
	p.netns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return err
}

func (p *place) do(call func()) {
	done := make(chan any)
	p.calls <- func() {
		defer func() { done <- recover() }()
		call()
	}
	if panicked := <-done; panicked != nil {
		panic(panicked)
	}
}

func (p *place) end() {
	close(p.calls)
	<-p.ended
}
