package posix

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// discardTimeout is below the four seconds that the host waits for a cancelled call.
const discardTimeout = 3 * time.Second

// upload is a source's content followed by a trailer of trailerSize bytes, "TOKEN
// LENGTH". A source that fails ends without the trailer, so that the recipe, which
// only sees the end of its stdin, knows that something is missing.
type upload struct {
	r     io.Reader
	token string

	mu      sync.Mutex // an exec may return while a read is still under way
	length  int64
	trailer []byte
	ended   bool
	err     error
}

// newUpload draws the token, which also names the temporary file, at random: content
// cannot be mistaken for a trailer.
func newUpload(r io.Reader) *upload {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails, by its documentation
	return &upload{r: r, token: hex.EncodeToString(random[:])}
}

func (u *upload) Read(buffer []byte) (int, error) {
	if u.sourceEnded() {
		return u.readTrailer(buffer)
	}
	n, err := u.r.Read(buffer)
	u.note(n, err)
	return n, nil
}

func (u *upload) sourceEnded() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ended
}

func (u *upload) note(n int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.length += int64(n)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		u.ended = true
		u.trailer = fmt.Appendf(nil, "%s %016d", u.token, u.length)
	default:
		u.ended, u.err = true, err
	}
}

func (u *upload) readTrailer(buffer []byte) (int, error) {
	if len(u.trailer) == 0 {
		return 0, io.EOF
	}
	n := copy(buffer, u.trailer)
	u.trailer = u.trailer[n:]
	return n, nil
}

// failed is the source's own error.
func (u *upload) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}
