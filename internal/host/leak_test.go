//go:build unix

package host

import (
	"runtime"
	"testing"
	"time"
)

// Each goroutine of a driver ends with it, go-plugin's included.
func TestCloseLeavesNoGoroutines(t *testing.T) {
	h := newHost(t, nil, "good", "noise")
	before := runtime.NumGoroutine()
	for range 3 {
		driver := start(t, h, "good")
		driver.Close()
		if _, err := h.Start(t.Context(), "noise"); err == nil {
			t.Fatal("noise started")
		}
	}
	// gRPC's own end a moment after their connection.
	for deadline := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			buffer := make([]byte, 64<<10)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buffer[:runtime.Stack(buffer, true)])
		}
	}
}
