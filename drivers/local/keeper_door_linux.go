package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/local/network"
)

// keeperSocket is the socket by which drivers talk to a sandbox's keeper: one question
// and one answer a connection, each a line of JSON.
const keeperSocket = "keeper.sock"

// keeperPatience bounds a conversation with a keeper.
const keeperPatience = 5 * time.Second

// What a keeper can be asked.
const (
	// askAccesses is for the network's access log.
	askAccesses = "accesses"
	// askLook makes the keeper look at the record, which has changed.
	askLook = "look"
)

// keeperAnswer is what a keeper says.
type keeperAnswer struct {
	Accesses []network.Access `json:"accesses,omitempty"`
	Error    string           `json:"error,omitempty"`
}

// keeperDoor is where a keeper is asked. Whoever reads visits answers them.
type keeperDoor struct {
	listener net.Listener
	visits   chan keeperVisit
	closed   chan struct{}
	serving  sync.WaitGroup
}

type keeperVisit struct {
	question string
	answer   func(keeperAnswer)
}

// openDoor makes the socket in the working directory, which is the sandbox's: the
// directory's path may be longer than a socket's can be.
func openDoor(s sandbox) (*keeperDoor, error) {
	if err := os.Remove(filepath.Join(s.dir, keeperSocket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the socket of an earlier keeper cannot be removed: %w", err)
	}
	listener, err := net.Listen("unix", keeperSocket)
	if err != nil {
		return nil, fmt.Errorf("the keeper's socket cannot be made: %w", err)
	}
	// The file goes with the sandbox's directory, and by then may be another keeper's.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	door := &keeperDoor{listener: listener, visits: make(chan keeperVisit), closed: make(chan struct{})}
	door.serving.Go(door.serve)
	return door, nil
}

func (d *keeperDoor) close() {
	close(d.closed)
	_ = d.listener.Close()
	d.serving.Wait()
}

func (d *keeperDoor) serve() {
	for {
		connection, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.serving.Go(func() { d.receive(connection) })
	}
}

func (d *keeperDoor) receive(connection net.Conn) {
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(keeperPatience))
	var question string
	if json.NewDecoder(connection).Decode(&question) != nil {
		// Who only wants to know whether somebody is there asks nothing.
		return
	}
	answered := make(chan keeperAnswer, 1)
	select {
	case d.visits <- keeperVisit{question, func(answer keeperAnswer) { answered <- answer }}:
		_ = json.NewEncoder(connection).Encode(<-answered)
	case <-d.closed:
	}
}

// knock connects to the sandbox's keeper.
func (s sandbox) knock(ctx context.Context) (net.Conn, error) {
	dir, err := os.Open(s.dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), keeperSocket))
}

// kept reports whether the sandbox has a keeper.
func (s sandbox) kept(ctx context.Context) bool {
	connection, err := s.knock(ctx)
	if err == nil {
		_ = connection.Close()
	}
	return err == nil
}

// ask puts a question to the sandbox's keeper.
func (s sandbox) ask(ctx context.Context, question string) (keeperAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, keeperPatience)
	defer cancel()
	connection, err := s.knock(ctx)
	if err != nil {
		return keeperAnswer{}, err
	}
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var answer keeperAnswer
	if err = json.NewEncoder(connection).Encode(question); err == nil {
		err = json.NewDecoder(connection).Decode(&answer)
	}
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return answer, err
}
