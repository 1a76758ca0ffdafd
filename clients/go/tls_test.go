package ratelimit

import (
	"net"
	"testing"
	"time"
)

// go-redis cannot see through TLS that an idle connection has ended.
func TestIdleConnectionsOfTLSThatEndedAreNoOutage(t *testing.T) {
	_, port, _ := net.SplitHostPort(dead(t))
	process, plain := serve("redis-7.0", "--loadmodule", module(), "--tls-port", port, "--tls-auth-clients", "no",
		"--tls-cert-file", root("tests/fixtures/tls/cert.pem"), "--tls-key-file", root("tests/fixtures/tls/key.pem"),
		"--tls-ca-cert-file", root("tests/fixtures/tls/cert.pem"))
	defer stop(process)
	l, err := FromURL("rediss://localhost:"+port+"?skip_verify=true", Options{Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	own, err := FromURL("redis://"+plain, Options{Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for range 3 {
		for range 5 {
			if reply, err := l.Check(background, "k", []string{"100/d"}); err != nil || reply.Source != Server {
				t.Fatal(reply, err)
			}
		}
		if _, err := own.Call(background, "k", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
