// Command traffic measures one TCP connection. `traffic serve ADDRESS` is the other end;
// `traffic send ADDRESS SECONDS` and `traffic receive ADDRESS SECONDS` print what went
// through, in MB/s of 1,000,000 bytes.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"
)

// What a client's first byte asks of the server.
const (
	takeBytes = 's'
	giveBytes = 'r'
)

const chunk = 256 << 10

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "traffic:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) == 3 && (args[0] == "send" || args[0] == "receive"):
		seconds, err := strconv.ParseFloat(args[2], 64)
		if err != nil {
			return err
		}
		rate, err := measure(args[0] == "send", args[1], time.Duration(seconds*float64(time.Second)))
		if err == nil {
			fmt.Printf("%.1f\n", rate)
		}
		return err
	}
	return errors.New("usage: traffic serve ADDRESS | traffic send|receive ADDRESS SECONDS")
}

func serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go answer(connection)
	}
}

func answer(connection net.Conn) {
	defer connection.Close()
	wanted := make([]byte, 1)
	if _, err := io.ReadFull(connection, wanted); err != nil {
		return
	}
	buffer := make([]byte, chunk)
	if wanted[0] == takeBytes {
		for {
			if _, err := connection.Read(buffer); err != nil {
				// All has arrived: the client stops its clock.
				_, _ = connection.Write([]byte{takeBytes})
				return
			}
		}
	}
	for {
		if _, err := connection.Write(buffer); err != nil {
			return
		}
	}
}

func measure(sending bool, address string, duration time.Duration) (rate float64, err error) {
	connection, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	buffer := make([]byte, chunk)
	move, first := connection.Read, byte(giveBytes)
	if sending {
		move, first = connection.Write, takeBytes
	}
	if _, err := connection.Write([]byte{first}); err != nil {
		return 0, err
	}
	var total int
	began := time.Now()
	for time.Since(began) < duration {
		n, err := move(buffer)
		total += n
		if err != nil {
			return 0, err
		}
	}
	if sending {
		if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(connection, make([]byte, 1)); err != nil {
			return 0, err
		}
	}
	return float64(total) / 1e6 / time.Since(began).Seconds(), nil
}
