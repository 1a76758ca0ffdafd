package ratelimit

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestNoListenerKeepsANodeAway(t *testing.T) {
	var dials atomic.Int64
	probed := make(chan struct{})
	own := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		switch dials.Add(1) {
		case 1:
			return nil, net.ErrClosed
		case 2:
			close(probed)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}})
	defer own.Close()
	var log lockedBuffer
	aways := make(chan bool, 2)
	l, err := New(own, Options{
		Timeout: 5 * time.Second,
		Logger:  slog.New(slog.NewTextHandler(&log, nil)),
		OnOutage: func(event OutageEvent) {
			select {
			case <-probed:
			case <-time.After(10 * time.Second):
				t.Error("the listener delays the probe")
			}
			aways <- event.Away
			panic("the listener of this test")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Check(background, t.Name(), []string{"5/d"}); !IsOutage(err) {
		t.Error(err)
	}
	if told := []bool{<-aways, <-aways}; !slices.Equal(told, []bool{true, false}) {
		t.Error(told)
	}
	if reply, err := l.Check(background, t.Name(), []string{"5/d"}); err != nil || reply.Source != Server {
		t.Error(reply, err)
	}
	until(t, func() bool { return strings.Count(log.String(), "the listener of this test") == 2 })
}
