package ratelimit

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// address is that of a server with the module.
var address string

func TestMain(m *testing.M) {
	redis.SetLogger(sentinelsLog{})
	process, found := serve("valkey-9.1", "--loadmodule", module())
	address = found
	leaks := 0
	result := m.Run()
	_ = process.Process.Kill()
	_ = process.Wait()
	if result == 0 {
		if err := goleak.Find(goleak.IgnoreTopFunction("os/exec.(*Cmd).watchCtx")); err != nil {
			fmt.Println(err)
			leaks = 1
		}
	}
	os.Exit(max(result, leaks))
}

// sentinelsLog is the log of go-redis, in which only the caller's client of sentinels may write.
type sentinelsLog struct{}

func (sentinelsLog) Printf(_ context.Context, format string, given ...any) {
	if !strings.HasPrefix(format, "sentinel: ") {
		panic(fmt.Sprintf(format, given...))
	}
}

func root(parts ...string) string {
	path, _ := filepath.Abs(filepath.Join(append([]string{"..", ".."}, parts...)...))
	return path
}

func module() string {
	if given := os.Getenv("RATELIMIT_MODULE"); given != "" {
		return given
	}
	return root("target/faulty/libredis_ratelimit.so")
}

// serve starts a server, and returns its address when it answers.
func serve(name string, arguments ...string) (*exec.Cmd, string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(address)
	arguments = append(arguments, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", os.TempDir())
	process := exec.Command(root(".cache/servers", name, "server"), arguments...)
	if err := process.Start(); err != nil {
		panic(err)
	}
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	for range 1000 {
		if client.Ping(context.Background()).Err() == nil {
			return process, address
		}
		time.Sleep(10 * time.Millisecond)
	}
	panic("the server does not start: " + strings.Join(process.Args, " "))
}

// limiter has time enough on a busy machine.
func limiter(t testing.TB, options Options) *Limiter {
	t.Helper()
	if options.Timeout == 0 {
		options.Timeout = 5 * time.Second
	}
	l, err := FromURL("redis://"+address, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func until(t testing.TB, holds func() bool) {
	t.Helper()
	for range 1000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("it does not hold within 10 s")
}

// dead is an address at which nobody listens.
func dead(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
