package images

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"
)

// broken is a source that sends some bytes of a text and then fails, or nothing more.
type broken struct {
	text  *strings.Reader
	after int64
	err   error
	stop  chan struct{}
}

func (b *broken) Read(data []byte) (int, error) {
	sent := b.text.Size() - int64(b.text.Len())
	if sent >= b.after {
		if b.err == nil {
			<-b.stop
			return 0, errors.New("closed")
		}
		return 0, b.err
	}
	return b.text.Read(data[:min(int64(len(data)), b.after-sent)])
}

func (b *broken) Close() error {
	select {
	case <-b.stop:
	default:
		close(b.stop)
	}
	return nil
}

// TestSourcesThatBreakOff reads from sources that break off, and from those that stall.
func TestSourcesThatBreakOff(t *testing.T) {
	const text = "what is to be read"
	// attempts are how far each gets, and what it fails with: nil is for a stall.
	type end struct {
		after int64
		err   error
	}
	whole := end{int64(len(text)), io.EOF}
	wrong := errors.New("not what its digest says")
	for what, test := range map[string]struct {
		attempts []end
		want     error
	}{
		"at once":              {[]end{whole}, nil},
		"after a break":        {[]end{{5, io.ErrUnexpectedEOF}, whole}, nil},
		"after a stall":        {[]end{{5, nil}, {0, io.ErrUnexpectedEOF}, whole}, nil},
		"a shorter second one": {[]end{{9, io.ErrUnexpectedEOF}, {3, io.EOF}, whole}, nil},
		"never":                {[]end{{1, nil}, {2, nil}, {3, nil}, {4, nil}, whole}, errStalled},
		"something else":       {[]end{{5, wrong}, whole}, wrong},
		"no second one":        {[]end{{5, io.ErrUnexpectedEOF}}, fs.ErrNotExist},
	} {
		attempts, counted := test.attempts, 0
		source := &sourceReader{ctx: t.Context(), patience: 20 * time.Millisecond, pause: time.Millisecond, read: func(n int) { counted += n }}
		source.open = func(context.Context) (io.ReadCloser, error) {
			if len(attempts) == 0 {
				return nil, fs.ErrNotExist
			}
			next := attempts[0]
			attempts = attempts[1:]
			return &broken{strings.NewReader(text), next.after, next.err, make(chan struct{})}, nil
		}
		if err := source.begin(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(source)
		source.close()
		if !errors.Is(err, test.want) || test.want == nil && (string(got) != text || counted != len(text)) {
			t.Errorf("%s: %q, %d counted (%v), want %v", what, got, counted, err, test.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	source := &sourceReader{ctx: ctx, patience: time.Minute, read: func(int) { cancel() }}
	source.open = func(context.Context) (io.ReadCloser, error) {
		return &broken{strings.NewReader(text), 5, io.ErrUnexpectedEOF, make(chan struct{})}, nil
	}
	if err := source.begin(); err != nil {
		t.Fatal(err)
	}
	defer source.close()
	if _, err := io.ReadAll(source); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled one: %v", err)
	}
}
