package modal

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

const (
	// quiet is how long a stream may be silent after its command has ended
	// before it is given up: a background process can hold it open for ever.
	quiet = time.Second
	// stdinChunk is how much of stdin goes into one call. Each takes a round
	// trip; the SDK does not split what it is given.
	stdinChunk = 1 << 20
)

// streams carry a command's input and output.
type streams struct {
	outputs []*outputPump
	pumping sync.WaitGroup
	control sync.WaitGroup
	stop    context.CancelFunc
	// refused gets the error of a caller that takes no more output.
	refused chan error
}

// outputPump moves one stream to the caller: from the SDK into a backlog as fast
// as it comes, and from there as fast as it is taken.
type outputPump struct {
	from    io.ReadCloser
	backlog *backlog
	to      io.Writer
	read    chan struct{} // closed when from has ended
	taken   chan struct{} // closed when the caller has everything, or wants no more
	err     error         // of from or of the backlog, valid after read
	active  atomic.Int64  // when the last bytes came, in unix nanoseconds
	waiting atomic.Bool   // for room in the backlog
}

// carry starts moving bytes, sizes and signals.
func (r *run) carry(ctx context.Context) *streams {
	ctx, stop := context.WithCancel(ctx)
	s := &streams{refused: make(chan error, 2), stop: stop}
	s.addOutput(r.process.Stdout, r.driver.backlogDir(), r.stdio.Stdout)
	if !r.request.TTY {
		s.addOutput(r.process.Stderr, r.driver.backlogDir(), r.stdio.Stderr)
	}
	// Nobody waits for the input: the SDK's writes know no context. It ends when
	// Exec has returned, because its reader ends then, and because Modal refuses
	// what is written to a command that is over.
	go r.sendInput()
	s.control.Go(func() { r.sendControls(ctx) })
	return s
}

func (s *streams) addOutput(from io.ReadCloser, dir string, to io.Writer) {
	p := &outputPump{from: from, backlog: newBacklog(dir), to: to, read: make(chan struct{}), taken: make(chan struct{})}
	p.active.Store(time.Now().UnixNano())
	s.outputs = append(s.outputs, p)
	s.pumping.Go(func() {
		defer close(p.read)
		defer p.backlog.end()
		p.err = p.receive()
	})
	s.pumping.Go(func() {
		defer close(p.taken)
		if err := p.deliver(); err != nil {
			p.backlog.drop() // so that receiving ends, too
			s.refused <- err
		}
	})
}

// receive returns the error of the stream or of the backlog.
func (p *outputPump) receive() error {
	buffer := make([]byte, 64<<10)
	for {
		n, err := p.from.Read(buffer)
		if n > 0 {
			p.waiting.Store(true)
			_, broken := p.backlog.Write(buffer[:n])
			p.waiting.Store(false)
			p.active.Store(time.Now().UnixNano())
			if broken != nil {
				return broken
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// deliver returns the caller's error, or the disk's.
func (p *outputPump) deliver() error {
	buffer := make([]byte, 128<<10)
	for {
		n, err := p.backlog.Read(buffer)
		if n > 0 {
			if _, refused := p.to.Write(buffer[:n]); refused != nil {
				return refused
			}
		}
		switch {
		case err == nil:
		case err == io.EOF, err == io.ErrClosedPipe:
			return nil // the end, or nobody wants the rest
		default:
			return plugin.Errorf(plugin.KindIndeterminate, "output that was held on disk for a slow reader cannot be read again: %w", err)
		}
	}
}

// isQuiet says whether the stream has brought nothing since the moment given or
// for as long as quiet.
func (p *outputPump) isQuiet(since time.Time) bool {
	last := time.Unix(0, p.active.Load())
	if last.Before(since) {
		last = since
	}
	return !p.waiting.Load() && time.Since(last) >= quiet
}

// drain waits for the rest of the output of a command that has ended: to the
// end of each stream, or until it has been quiet for a while; and then until the
// caller has taken it. It returns the error of a stream that broke, or of a
// caller that takes no more.
func (s *streams) drain() error {
	s.release()
	since := time.Now()
	tick := time.NewTicker(quiet / 10)
	defer tick.Stop()
	for open := s.outputs; len(open) > 0; {
		select {
		case <-open[0].read:
			open = open[1:]
			continue
		case <-tick.C:
		}
		if open[0].isQuiet(since) {
			_ = open[0].from.Close()
			<-open[0].read
			open[0].err = nil // it is our Close
		}
	}
	s.pumping.Wait()
	defer s.closeBacklogs()
	select {
	case err := <-s.refused:
		return err
	default:
	}
	for _, p := range s.outputs {
		if p.err != nil {
			return p.err
		}
	}
	return nil
}

// drainFor is drain for a command whose output may be endless.
func (s *streams) drainFor(limit time.Duration) {
	timer := time.AfterFunc(limit, s.abandon)
	defer timer.Stop()
	_ = s.drain() // what did not arrive in time was not to be had
}

// abandon makes the pumps end. It does not wait for them.
func (s *streams) abandon() {
	for _, p := range s.outputs {
		// The SDK's Close only cancels the Read that may be under way.
		_ = p.from.Close()
		p.backlog.drop()
	}
}

// cut ends the streams at once.
func (s *streams) cut() {
	s.release()
	s.abandon()
	s.pumping.Wait()
	s.closeBacklogs()
}

func (s *streams) closeBacklogs() {
	for _, p := range s.outputs {
		p.backlog.close()
	}
}

// release ends what only makes sense while the command runs.
func (s *streams) release() {
	s.stop()
	s.control.Wait()
}

// sendInput passes stdin on and ends it. Without stdin it is ended at once,
// since a reader in the sandbox would wait for ever.
func (r *run) sendInput() {
	stdin := r.process.Stdin
	// Close sends the end of input; it fails when the command is over, and then
	// nobody is left to miss it.
	defer func() { _ = stdin.Close() }()
	if !r.request.Stdin || r.stdio.Stdin == nil {
		return
	}
	buffer := make([]byte, stdinChunk)
	for {
		n, err := r.stdio.Stdin.Read(buffer)
		if n > 0 {
			if _, broken := stdin.Write(buffer[:n]); broken != nil {
				return // as EPIPE: the command has ended or closed its stdin
			}
		}
		if err != nil {
			return
		}
	}
}

// sendControls forwards sizes and signals until ctx ends. Each is a command of
// its own, so they are slow, and one that fails is only noted.
func (r *run) sendControls(ctx context.Context) {
	resize, signals := r.stdio.Resize, r.stdio.Signals
	for resize != nil || signals != nil {
		var err error
		select {
		case <-ctx.Done():
			return
		case size, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			err = r.control(ctx, "resize", decimal(size.Rows), decimal(size.Cols))
		case name, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			err = r.control(ctx, "signal", name)
		}
		if err != nil && ctx.Err() == nil {
			r.driver.config.Logger.Warn("the command was not told", "error", err)
		}
	}
}
