//go:build linux

package modaldouble_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sandboxctl/sandboxctl/drivers/modal/internal/modaldouble"
)

func TestThrottledCallIsRetriedByTheClient(t *testing.T) {
	server, client := start(t, modaldouble.Options{})
	server.Inject(modaldouble.Fault{Method: "SandboxCreateV2", Times: 2, Code: codes.ResourceExhausted, Message: "slow down", RetryAfter: 10 * time.Millisecond})
	create(t, client, nil)
	if calls := server.Calls("SandboxCreateV2"); calls != 3 {
		t.Errorf("SandboxCreateV2 was called %d times, want 3", calls)
	}
}

func TestLostAnswerDoesNotMakeASecondSandbox(t *testing.T) {
	server, client := start(t, modaldouble.Options{})
	server.Inject(modaldouble.Fault{Method: "SandboxCreateV2", Times: 1, LoseAnswer: true})
	create(t, client, nil)
	if n := len(server.Sandboxes()); n != 1 {
		t.Errorf("%d sandboxes, want 1", n)
	}
}

func TestCreateCompletesAfterTheClientLeft(t *testing.T) {
	server, client := start(t, modaldouble.Options{})
	server.Inject(modaldouble.Fault{Method: "SandboxCreateV2", Delay: 300 * time.Millisecond, IgnoreCancel: true})
	app, err := client.Apps.FromName(t.Context(), "app", &modal.AppFromNameParams{CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	image, err := client.Images.FromRegistry("debian", nil).Build(t.Context(), app, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		for server.Calls("SandboxCreateV2") == 0 && t.Context().Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		cancel()
	}()
	_, err = client.Sandboxes.Create(ctx, app, image, nil)
	<-left
	if status.Code(err) != codes.Canceled {
		t.Fatalf("create: %v", err)
	}
	for server.Running() == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the sandbox never came to be")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestRouterConnectionLossIsResumed(t *testing.T) {
	server, client := start(t, modaldouble.Options{})
	sb := create(t, client, nil)
	process, err := sb.Exec(t.Context(), []string{"sh", "-c", "echo one; read x; echo two"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 4)
	if _, err := io.ReadFull(process.Stdout, first); err != nil {
		t.Fatal(err)
	}
	server.DropRouterConnections()
	if _, err := process.Stdin.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(process.Stdout)
	if err != nil || string(first)+string(rest) != "one\ntwo\n" {
		t.Errorf("read %q and %q, %v", first, rest, err)
	}
}

func TestWrongCredentialsAreRefused(t *testing.T) {
	_, client := start(t, modaldouble.Options{TokenID: "ak-real", TokenSecret: "as-real"})
	t.Setenv("MODAL_TOKEN_SECRET", "as-wrong")
	wrong, err := modal.NewClientWithOptions(&modal.ClientParams{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	if _, err := wrong.Apps.FromName(t.Context(), "app", nil); status.Code(err) != codes.Unauthenticated {
		t.Errorf("wrong secret: %v", err)
	}
	create(t, client, nil)
}

func TestGPUSandboxesUseTheOtherBackend(t *testing.T) {
	_, client := start(t, modaldouble.Options{})
	sb := create(t, client, &modal.SandboxCreateParams{GPU: "T4", Env: map[string]string{"A": "b"}})
	if len(sb.SandboxID) != len("sb-")+22 {
		t.Errorf("sandbox ID %s is not of the V1 shape", sb.SandboxID)
	}
	if got := execute(t, sb, nil, "printenv", "A"); got.stdout != "b\n" {
		t.Errorf("got %+v", got)
	}
}

func TestRealTLS(t *testing.T) {
	authority, err := modaldouble.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(bundle, authority.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", bundle)
	_, client := start(t, modaldouble.Options{TLS: authority.Server})
	sb := create(t, client, nil)
	if got := execute(t, sb, nil, "echo", "secure"); got.stdout != "secure\n" {
		t.Errorf("got %+v", got)
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	dir := t.TempDir()
	server, client := start(t, modaldouble.Options{Dir: dir})
	sb := create(t, client, nil)
	if _, err := sb.Exec(t.Context(), []string{"sleep", "987654"}, nil); err != nil {
		t.Fatal(err)
	}
	server.Close()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Error("a mount is left")
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range processes {
		if cmdline, err := os.ReadFile(file); err == nil && strings.Contains(string(cmdline), "987654") {
			t.Errorf("%s is left", file)
		}
	}
}
