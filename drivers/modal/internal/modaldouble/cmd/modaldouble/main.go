//go:build linux

// Command modaldouble serves the double until its standard input closes or it
// is told to stop, for clients that are not Go tests. It prints the environment
// a client needs, one assignment a line, and then an empty line.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sandboxctl/sandboxctl/drivers/modal/internal/modaldouble"
)

func main() {
	secure := flag.String("tls-ca", "", "serve TLS and write the private CA's certificate to this `file`")
	bandwidth := flag.Int("bandwidth", 0, "carry at most this many `bytes` of output a second in each stream")
	flag.Parse()
	if err := run(*secure, *bandwidth); err != nil {
		fmt.Fprintln(os.Stderr, "modaldouble:", err)
		os.Exit(1)
	}
}

func run(caFile string, bandwidth int) error {
	if err := modaldouble.BecomeRoot(); err != nil {
		return err
	}
	var opts modaldouble.Options
	if caFile != "" {
		authority, err := modaldouble.NewAuthority()
		if err != nil {
			return err
		}
		if err := os.WriteFile(caFile, authority.PEM, 0o644); err != nil {
			return err
		}
		opts.TLS = authority.Server
	}
	server, err := modaldouble.Start(opts)
	if err != nil {
		return err
	}
	defer server.Close()
	server.Configure(func(b *modaldouble.Behaviour) { b.Bandwidth = bandwidth })
	fmt.Println(strings.Join(server.Env(), "\n") + "\n")

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	select {
	case <-stop:
	case <-closed:
	}
	return nil
}
