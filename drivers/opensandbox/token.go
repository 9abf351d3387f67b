package opensandbox

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// tokenSecret derives each sandbox's execd access token from one secret of this user's state and the sandbox's id:
// execd is open to everyone who reaches it otherwise, the server never tells a token again, and so none has to be
// stored. It keeps the network out, not the sandbox's own code, which can read the token.
type tokenSecret struct {
	load func() ([]byte, error)
}

const secretSize = 32

func newTokenSecret(stateDir string) *tokenSecret {
	path := filepath.Join(stateDir, "execd-secret")
	return &tokenSecret{load: sync.OnceValues(func() ([]byte, error) { return loadSecret(path) })}
}

// token is the access token of the sandbox with sandboxctl's id.
func (t *tokenSecret) token(id string) (string, error) {
	secret, err := t.load()
	if err != nil {
		return "", plugin.Errorf(plugin.KindInternal, "cannot keep the secret for access tokens: %w", err)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id))
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// loadSecret reads the secret or makes it. Two processes may do so at once: the file is linked into place whole, so
// that the first one wins and the other reads it.
func loadSecret(path string) ([]byte, error) {
	secret, err := os.ReadFile(path)
	if err == nil && len(secret) == secretSize {
		return secret, nil
	}
	if err == nil {
		return nil, errors.New(path + " is damaged; remove it, sandboxes made with it become unreachable")
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	fresh, err := os.CreateTemp(filepath.Dir(path), "execd-secret-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(fresh.Name())
	secret = make([]byte, secretSize)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	if _, err := fresh.Write(secret); err != nil {
		return nil, errors.Join(err, fresh.Close())
	}
	if err := errors.Join(fresh.Sync(), fresh.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(fresh.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(path)
}
