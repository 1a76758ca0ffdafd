package ratelimit

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// silence is an address that accepts connections and says nothing.
func silence(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String() // the backlog accepts
}

func stop(process *exec.Cmd) {
	_ = process.Process.Kill()
	_ = process.Wait()
}

// startSentinel starts one that watches the server at this port.
func startSentinel(t testing.TB, port string) (*exec.Cmd, string) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := "sentinel monitor m 127.0.0.1 " + port + " 1\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := dead(t)
	_, own, _ := net.SplitHostPort(at)
	process := exec.Command(root(".cache/servers/redis-8.2/server"), config, "--sentinel", "--port", own, "--bind", "127.0.0.1")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		connection, err := net.Dial("tcp", at)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	})
	return process, at
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
