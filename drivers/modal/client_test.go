package modal

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// Some calls the SDK makes on a context of its own, which has no deadline.
func TestEveryCallHasADeadline(t *testing.T) {
	called := false
	err := limitCall(context.Background(), "/x", nil, nil, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		_, called = ctx.Deadline()
		return nil
	})
	if err != nil || !called {
		t.Errorf("called with a deadline: %v, %v", called, err)
	}
}

// A proxy's address can hold a password, which the host must cut out of logs.
func TestProxyIsASecret(t *testing.T) {
	for _, variable := range New().Info().Env {
		if variable.Name == "HTTPS_PROXY" && !variable.Secret {
			t.Errorf("%+v", variable)
		}
	}
}

// An image's ID belongs to a workspace, and the profile in force says to which.
func TestImagesOfAnotherProfileAreNotRemembered(t *testing.T) {
	config := filepath.Join(t.TempDir(), "modal.toml")
	for name, value := range map[string]string{"MODAL_CONFIG_PATH": config, "MODAL_PROFILE": "", "MODAL_TOKEN_ID": ""} {
		t.Setenv(name, value)
	}
	files := make(map[string]bool)
	for _, profile := range []string{"[a]\nactive = true\ntoken_id = 'ak-1'\n", "[a]\nactive = true\ntoken_id = 'ak-2'\n"} {
		if err := os.WriteFile(config, []byte(profile), 0o600); err != nil {
			t.Fatal(err)
		}
		files[New().imageFile("python:3.12-slim")] = true
	}
	if len(files) != 2 {
		t.Errorf("two workspaces share %v", files)
	}
}

func TestImagesAreRememberedForADay(t *testing.T) {
	d := New()
	d.config.StateDir = t.TempDir()
	d.rememberImage("debian", "im-1")
	for age, want := range map[time.Duration]string{time.Hour: "im-1", 25 * time.Hour: "", -time.Hour: ""} {
		when := time.Now().Add(-age)
		if err := os.Chtimes(d.imageFile("debian"), when, when); err != nil {
			t.Fatal(err)
		}
		if got := d.rememberedImage("debian"); got != want {
			t.Errorf("at the age of %s: %q, want %q", age, got, want)
		}
	}
}
