package ratelimit

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// watched starts a primary, its replica, and a sentinel that promotes the replica half a second after the primary is lost.
func watched(t *testing.T) (lose func(syscall.Signal), replica, sentinel string) {
	start := func(name string, arguments ...string) (*os.Process, string) {
		process, at := serve(name, arguments...)
		t.Cleanup(func() { stop(process) })
		return process.Process, at
	}
	primary, at := start("valkey-9.1", "--loadmodule", module(), "--repl-diskless-sync-delay", "0")
	_, port, _ := net.SplitHostPort(at)
	_, replica = start("valkey-9.1", "--loadmodule", module(), "--replicaof", "127.0.0.1 "+port)
	copied := redis.NewClient(&redis.Options{Addr: replica})
	defer copied.Close()
	until(t, func() bool {
		return strings.Contains(copied.Info(background, "replication").Val(), "master_link_status:up")
	})
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := "sentinel monitor m 127.0.0.1 " + port + " 1\nsentinel down-after-milliseconds m 500\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, sentinel = start("valkey-9.1", config, "--sentinel")
	return func(signal syscall.Signal) { _ = primary.Signal(signal) }, replica, sentinel
}

func TestTheNewPrimaryGoesOnWithTheCountsOfTheOldOne(t *testing.T) {
	for _, loss := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(loss.String(), func(t *testing.T) {
			lose, replica, at := watched(t)
			own := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{at}})
			defer own.Close()
			var aways, backs atomic.Int64
			l, err := New(own, Options{Outage: OutageLocal, Timeout: time.Second, OnOutage: func(event OutageEvent) {
				if event.Away {
					aways.Add(1)
				} else {
					backs.Add(1)
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			key, rules := "k", []string{"9/h"}
			check := func(from Source, left int64) {
				t.Helper()
				began := time.Now()
				reply, err := l.Check(background, key, rules)
				if err != nil || reply.Source != from || reply.Remaining != left || time.Since(began) > 1500*time.Millisecond {
					t.Fatal(reply, err, time.Since(began))
				}
			}
			check(Server, 8)
			copied := redis.NewClient(&redis.Options{Addr: replica})
			defer copied.Close()
			until(t, func() bool {
				return copied.Do(background, "RL.PEEK", key, rules[0]).Val().([]any)[2] == int64(8)
			})

			lose(loss)
			check(Local, 8)
			check(Local, 7)
			sentinel := redis.NewSentinelClient(&redis.Options{Addr: at})
			defer sentinel.Close()
			until(t, func() bool {
				return strings.Join(sentinel.GetMasterAddrByName(background, "m").Val(), ":") == replica
			})
			named := time.Now()
			until(t, func() bool {
				reply, err := l.Check(background, "other", rules)
				return err == nil && reply.Source == Server
			})
			if late := time.Since(named); late > 1600*time.Millisecond {
				t.Error("the first decision comes", late, "after the sentinel names the new primary")
			}
			check(Server, 7)
			if reply, err := l.Wait(background, key, rules, time.Second); err != nil || reply.Remaining != 6 {
				t.Error(reply, err)
			}
			if l.Away() || aways.Load() != 1 || backs.Load() != 1 {
				t.Error(l.Away(), aways.Load(), backs.Load())
			}
		})
	}
}
