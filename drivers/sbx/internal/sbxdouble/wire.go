package sbxdouble

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"sync"
)

// Frames between the client and the machine: one byte of kind, four of length, the payload.
const (
	frameStart    = 's' // JSON execRequest
	frameStdin    = 'i'
	frameStdinEOF = 'e'
	frameResize   = 'w' // JSON [rows, cols]
	frameStdout   = 'o'
	frameStderr   = 'r'
	frameExit     = 'x' // JSON int
)

const frameLimit = 64 << 10

type execRequest struct {
	Args []string  `json:"args"`
	Env  []string  `json:"env"`
	Dir  string    `json:"dir"`
	User string    `json:"user"`
	TTY  bool      `json:"tty"`
	Size [2]uint16 `json:"size"`
	Copy bool      `json:"copy"` // part of a cp, whose stream always ends
}

// frames writes frames from several goroutines to one connection.
type frames struct {
	mu  sync.Mutex
	out io.Writer
}

func (f *frames) write(kind byte, payload []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	message := make([]byte, 5, 5+len(payload))
	message[0] = kind
	binary.BigEndian.PutUint32(message[1:], uint32(len(payload)))
	_, err := f.out.Write(append(message, payload...))
	return err
}

func (f *frames) writeJSON(kind byte, value any) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return f.write(kind, payload)
}

// pump copies r into frames of one kind until r ends.
func (f *frames) pump(kind byte, r io.Reader) error {
	buffer := make([]byte, frameLimit)
	for {
		n, err := r.Read(buffer)
		if n > 0 {
			if err := f.write(kind, buffer[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

func readFrame(r io.Reader) (byte, []byte, error) {
	var header [5]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	payload := make([]byte, binary.BigEndian.Uint32(header[1:]))
	_, err := io.ReadFull(r, payload)
	return header[0], payload, err
}
