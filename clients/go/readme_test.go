package ratelimit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// programs are the Go blocks of the README: whole ones, or functions to compile.
func programs(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for at, block := range strings.Split(string(text), "```go\n") {
		if at > 0 {
			code, _, _ := strings.Cut(block, "```")
			found = append(found, strings.ReplaceAll(code, "localhost:6379", address))
		}
	}
	return found
}

// build compiles a program beside the package.
func build(t *testing.T, code string) string {
	t.Helper()
	if !strings.HasPrefix(code, "package") {
		code = "package main\n\nimport (\n\t\"context\"\n\t\"errors\"\n\t\"time\"\n\n\tratelimit \"github.com/redis-ratelimit/redis-ratelimit/clients/go\"\n)\n\n" +
			code + "\nfunc work() chan int { return nil }\n\nfunc main() { _, _, _ = export, complete, errors.New }\n"
	}
	folder := filepath.Join("testdata", strings.ReplaceAll(t.Name(), "/", "-"))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll("testdata") })
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "program")
	if text, err := exec.Command("go", "build", "-o", binary, "./"+folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return binary
}

func TestTheProgramsOfTheReadme(t *testing.T) {
	all := programs(t)
	if len(all) != 3 {
		t.Fatal(len(all))
	}
	t.Run("first", func(t *testing.T) {
		readme, _ := os.ReadFile("README.md")
		_, after, _ := strings.Cut(string(readme), "```sh\n")
		commands, _, _ := strings.Cut(after, "```")
		folder := filepath.Join(t.TempDir(), "app")
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(all[0]), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(root(), filepath.Join(folder, "../redis-ratelimit")); err != nil {
			t.Fatal(err)
		}
		process := exec.Command("sh", "-ec", commands)
		process.Dir = folder
		told, err := process.Output()
		if err != nil || string(told) != "allowed 4 0s <nil>\n" || !strings.Contains(all[0], "// "+strings.TrimSpace(string(told))) {
			t.Errorf("%s, %v", told, err)
		}
	})
	t.Run("middleware", func(t *testing.T) {
		port := dead(t)
		process := exec.Command(build(t, strings.ReplaceAll(all[1], "127.0.0.1:3000", port)))
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		defer stop(process)
		codes := map[int]int{}
		client := &http.Client{Timeout: 5 * time.Second}
		defer client.CloseIdleConnections()
		until(t, func() bool {
			answer, err := client.Get("http://" + port)
			if err == nil {
				_ = answer.Body.Close()
				codes[answer.StatusCode]++
			}
			return codes[200] > 0 && codes[429] > 0
		})
	})
	t.Run("holds", func(t *testing.T) { build(t, all[2]) })
}

// The names of names.json in Go's spelling.
func TestTheNamesOfAllClients(t *testing.T) {
	var lists map[string]any
	cases(t, "../conformance/names.json", &lists)
	documented, err := exec.Command("go", "doc", "-all", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	renamed := map[string]string{"Id": "ID", "Ttl": "TTL", "Error": "Err", "Ms": "Took"}
	for _, list := range lists {
		names, _ := list.([]any) // or the text about them
		for _, name := range names {
			spelled := ""
			for _, word := range strings.Split(strings.TrimSuffix(name.(string), "_ms"), "_") {
				spelled += strings.ToUpper(word[:1]) + word[1:]
			}
			if !strings.Contains(string(documented), cmp.Or(renamed[spelled], spelled)) {
				t.Errorf("%s is missing: %s", name, spelled)
			}
		}
	}
}

// waits counts the connections and the waits that a client of go-redis begins.
type waits struct{ connections, sent atomic.Int64 }

type countedConn struct {
	net.Conn
	*waits
}

func (c countedConn) Write(text []byte) (int, error) {
	c.sent.Add(int64(bytes.Count(text, []byte("RL.WAIT"))))
	return c.Conn.Write(text)
}

// docs/guide/clients.md says of go-redis alone what happens if its time-out is shorter than a wait.
func TestTheTimeOutsThatTheGuideStates(t *testing.T) {
	text, err := os.ReadFile(root("docs/guide/clients.md"))
	row := "| go-redis 9 | 5 s | closes and sends again 3 times | `client.WithTimeout(65 * time.Second)`: the same connections |"
	if err != nil || !strings.Contains(string(text), row) {
		t.Error("the row has changed", err)
	}
	var made waits
	client := redis.NewClient(&redis.Options{Addr: address, Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
		made.connections.Add(1)
		connection, err := new(net.Dialer).DialContext(ctx, network, address)
		return countedConn{connection, &made}, err
	}})
	defer client.Close()
	if o := client.Options(); o.ReadTimeout != 5*time.Second || o.MaxRetries != 3 {
		t.Error(o.ReadTimeout, o.MaxRetries)
	}
	short := client.WithTimeout(100 * time.Millisecond)
	client.Do(background, "RL.CHECK", t.Name(), "1/30s")
	if err := short.Do(background, "RL.WAIT", t.Name(), 60_000, "1/30s").Err(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if made.sent.Load() != 4 || made.connections.Load() != 4 {
		t.Error(made.sent.Load(), made.connections.Load(), "waits and connections, expected one and three more")
	}
	until(t, func() bool {
		return strings.Contains(client.Info(background, "ratelimit").Val(), "ratelimit_waiting_clients:0")
	})
	client.Do(background, "RL.CHECK", t.Name(), "1/s,name=soon")
	long := short.WithTimeout(time.Minute)
	if reply, err := long.Do(background, "RL.WAIT", t.Name(), 60_000, "1/s,name=soon").Slice(); err != nil || reply[0] != int64(0) {
		t.Error(reply, err)
	}
	if made.connections.Load() != 5 {
		t.Error(made.connections.Load(), "connections, expected those of the client")
	}
}
