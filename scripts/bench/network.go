//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	// serverAddress is in another network namespace, joined by a veth pair.
	serverAddress = "198.51.100.2"
	hostAddress   = "198.51.100.1"
	serverPort    = "5201"
	// trafficSeconds is how long one connection is measured.
	trafficSeconds = "2"
	// leastNetwork is a gigabit a second, in MB/s.
	leastNetwork = 125
)

// internet is a server in a namespace of its own.
type internet struct {
	lab       *lab
	namespace string
	server    *exec.Cmd
}

// measureNetwork sends and receives over one connection: from a sandbox with an open
// network, from a container on docker's bridge, through slirp4netns, and directly.
func measureNetwork(ctx context.Context, l *lab) (result []row, err error) {
	if os.Geteuid() != 0 {
		return []row{{what: "network", note: "needs root, for the server's namespace"}}, nil
	}
	net, err := l.newInternet(ctx)
	defer func() { err = errors.Join(err, net.close()) }()
	if err != nil {
		return nil, err
	}
	local, err := l.local(ctx)
	if err != nil {
		return nil, err
	}
	const sandbox = "networked"
	if err := local.run(ctx, "create", "--driver", "local", "--name", sandbox, "--network", "open"); err != nil {
		return nil, err
	}
	if err := local.run(ctx, "cp", l.path("traffic"), sandbox+":/traffic"); err != nil {
		return nil, err
	}
	engine, err := l.docker(ctx)
	if err != nil {
		return nil, err
	}
	slirp, err := l.slirp(ctx)
	defer slirp.close()
	if err != nil {
		return nil, err
	}
	variants := []variant{
		l.traffic("local driver, open network", func(ctx context.Context, argv ...string) *exec.Cmd {
			return local.command(ctx, append([]string{"exec", sandbox, "--", "/traffic"}, argv...)...)
		}),
		l.traffic("docker's bridge", func(ctx context.Context, argv ...string) *exec.Cmd {
			arguments := []string{"run", "--rm", "--volume", l.path("traffic") + ":/traffic:ro", engine.image, "/traffic"}
			return exec.CommandContext(ctx, "docker", append(arguments, argv...)...)
		}),
		l.traffic("slirp4netns", slirp.command),
		l.traffic("no sandbox", func(ctx context.Context, argv ...string) *exec.Cmd {
			return exec.CommandContext(ctx, l.path("traffic"), argv...)
		}),
	}
	variants[1].absent, variants[2].absent = engine.absent, slirp.absent
	measured, err := interleave(ctx, l.transfers, variants)
	if err != nil {
		return nil, err
	}
	for quantity, what := range []string{"one TCP connection, sending", "one TCP connection, receiving"} {
		these := rows(what, unitThroughput, variants, measured, quantity)
		these[0].budget = atLeast(leastNetwork, unitThroughput, these[0].values)
		result = append(result, these...)
	}
	return result, nil
}

// traffic measures both directions with the command that runs the traffic program.
func (l *lab) traffic(name string, command func(ctx context.Context, argv ...string) *exec.Cmd) variant {
	return variant{name: name, run: func(ctx context.Context) ([]float64, error) {
		var rates []float64
		for _, direction := range []string{"send", "receive"} {
			cmd := command(ctx, direction, serverAddress+":"+serverPort, trafficSeconds)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err != nil {
				return nil, fmt.Errorf("%w: %s", err, stderr.String())
			}
			rate, err := strconv.ParseFloat(strings.TrimSpace(stdout.String()), 64)
			if err != nil {
				return nil, err
			}
			rates = append(rates, rate)
		}
		return rates, nil
	}}
}

func (l *lab) newInternet(ctx context.Context) (*internet, error) {
	// Names of interfaces have 15 characters at most.
	suffix := strconv.Itoa(os.Getpid())
	net := &internet{lab: l, namespace: "bench" + suffix}
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", l.path("traffic"), "./scripts/bench/traffic")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return net, fmt.Errorf("building the traffic program: %w: %s", err, output)
	}
	ours, theirs := "bn"+suffix, "bs"+suffix
	for _, command := range []string{
		"netns add " + net.namespace,
		"link add " + ours + " type veth peer name " + theirs + " netns " + net.namespace,
		"address add " + hostAddress + "/30 dev " + ours,
		"link set " + ours + " up",
		"-n " + net.namespace + " address add " + serverAddress + "/30 dev " + theirs,
		"-n " + net.namespace + " link set " + theirs + " up",
		"-n " + net.namespace + " link set lo up",
		"-n " + net.namespace + " route add default via " + hostAddress,
	} {
		if _, err := l.timed(exec.CommandContext(ctx, "ip", strings.Fields(command)...)); err != nil {
			return net, err
		}
	}
	net.server = exec.CommandContext(ctx, "ip", "netns", "exec", net.namespace, l.path("traffic"), "serve", ":"+serverPort)
	return net, startUntil(net.server, "ready")
}

// startUntil starts a program and waits for what its first line begins with.
func startUntil(cmd *exec.Cmd, line string) error {
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	said, err := bufio.NewReader(stdout).ReadString('\n')
	if !strings.HasPrefix(said, line) {
		return fmt.Errorf("%s says %q: %w", cmd, said, err)
	}
	return nil
}

func end(cmd *exec.Cmd) {
	if cmd != nil && cmd.Process != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func (n *internet) close() error {
	end(n.server)
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	_, err := n.lab.timed(exec.CommandContext(ctx, "ip", "netns", "delete", n.namespace))
	return err
}

// slirp is a namespace whose network is slirp4netns's.
type slirp struct {
	absent       string
	traffic      string
	holder, slip *exec.Cmd
}

func (l *lab) slirp(ctx context.Context) (*slirp, error) {
	s := &slirp{traffic: l.path("traffic")}
	if _, err := exec.LookPath("slirp4netns"); err != nil {
		s.absent = notInstalled
		return s, nil
	}
	s.holder = exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", "echo ready; exec sleep 3600")
	if err := startUntil(s.holder, "ready"); err != nil {
		return s, err
	}
	ready, write, err := os.Pipe()
	if err != nil {
		return s, err
	}
	defer ready.Close()
	s.slip = exec.CommandContext(ctx, "slirp4netns", "--configure", "--mtu=65520", "--ready-fd=3", strconv.Itoa(s.holder.Process.Pid), "tap0")
	s.slip.ExtraFiles = []*os.File{write}
	err = s.slip.Start()
	_ = write.Close()
	if err != nil {
		return s, err
	}
	_ = ready.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		return s, fmt.Errorf("slirp4netns does not get ready: %w", err)
	}
	return s, nil
}

func (s *slirp) command(ctx context.Context, argv ...string) *exec.Cmd {
	arguments := []string{"--target", strconv.Itoa(s.holder.Process.Pid), "--net", s.traffic}
	return exec.CommandContext(ctx, "nsenter", append(arguments, argv...)...)
}

func (s *slirp) close() {
	end(s.slip)
	end(s.holder)
}
