//go:build linux

// Command osbdouble runs the OpenSandbox stand-in by hand, for the vendor's own clients to talk to.
//
//	osbdouble serve ADDRESS   a whole installation; prints its address on stdout once it answers
//	osbdouble execd           only the in-sandbox daemon, on execd's port
//	osbdouble egress          only the sidecar's policy interface, on its port
//
// Called by the name "execd" or "egress" it does the like, so that one binary can be both images of a real server.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble"
	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/egress"
	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/execd"
	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/guest"
)

func main() {
	guest.RunIfChild()
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "osbdouble:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	verb := filepath.Base(args[0])
	if verb != "execd" && verb != "egress" {
		if len(args) < 2 {
			return fmt.Errorf("want serve, execd or egress")
		}
		verb = args[1]
	}
	switch verb {
	case "serve":
		addr := "127.0.0.1:0"
		if len(args) > 2 {
			addr = args[2]
		}
		return serve(addr)
	case "execd":
		handler, err := execd.New(execd.Options{})
		if err != nil {
			return err
		}
		return listen(execd.Port, handler)
	case "egress":
		return serveEgress()
	}
	return fmt.Errorf("unknown verb %q: want serve, execd or egress", verb)
}

// serveEgress takes its settings from the environment that the real server gives the sidecar.
func serveEgress() error {
	var policy egress.Policy
	if raw := os.Getenv("OPENSANDBOX_EGRESS_RULES"); raw != "" {
		if err := json.Unmarshal([]byte(raw), &policy); err != nil {
			return fmt.Errorf("read OPENSANDBOX_EGRESS_RULES: %w", err)
		}
	}
	mode := cmp.Or(os.Getenv("OPENSANDBOX_EGRESS_MODE"), egress.ModeDNS)
	return listen(egress.Port, egress.New(policy, os.Getenv("OPENSANDBOX_EGRESS_TOKEN"), mode))
}

func listen(port int, handler http.Handler) error {
	srv := &http.Server{Addr: ":" + strconv.Itoa(port), Handler: handler, ReadHeaderTimeout: time.Minute}
	return srv.ListenAndServe()
}

func serve(addr string) error {
	d, err := osbdouble.StartAt(addr, osbdouble.Knobs{
		APIKey: os.Getenv("OPENSANDBOX_SERVER_API_KEY"), Enforcement: egress.ModeDNSNFT,
		Execd: execd.Options{Lines: execd.LinesKept},
	})
	if err != nil {
		return err
	}
	defer d.Close()
	fmt.Println(d.Addr())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
	return nil
}
