package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var background = context.Background()

func TestErrorsAnswerIsAndAs(t *testing.T) {
	_, err := FromURL("ftp://nowhere", Options{})
	if !errors.Is(err, ErrMisuse) {
		t.Error(err)
	}
	l := limiter(t, Options{})
	if _, err = l.Check(background, "", []string{"5/s"}); !errors.Is(err, ErrMisuse) || IsOutage(err) {
		t.Error(err)
	}
	var reply redis.Error
	if _, err = l.Check(background, "k", []string{"nonsense"}); !errors.As(err, &reply) || IsOutage(err) {
		t.Error(err)
	}
	away, err := FromURL("redis://"+dead(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	_, err = away.Check(background, "k", []string{"5/s"})
	var outage *OutageError
	if !errors.Is(err, ErrOutage) || !errors.As(err, &outage) || !strings.Contains(outage.Err.Error(), "refused") {
		t.Error(err)
	}
	if !away.Away() || away.Outages() != 1 {
		t.Error(away.Away(), away.Outages())
	}
	var denied *DeniedError
	if _, err = l.Hold(background, t.Name(), []string{"slots:0"}, time.Second); !errors.As(err, &denied) || IsOutage(err) {
		t.Error(err)
	}
	_ = l.Close()
	if _, err = l.Check(background, "k", []string{"5/s"}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestTheEndOfAContextIsItsOwnError(t *testing.T) {
	l := limiter(t, Options{Outage: OutageAllow})
	ended, cancel := context.WithCancel(background)
	cancel()
	if _, err := l.Check(ended, "k", []string{"5/s"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	silent := silence(t)
	slow, err := FromURL("redis://"+silent, Options{Outage: OutageAllow, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	short, cancel := context.WithTimeout(background, 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = slow.Check(short, "k", []string{"5/s"})
	if !errors.Is(err, context.DeadlineExceeded) || IsOutage(err) || slow.Away() || time.Since(began) > 5*time.Second {
		t.Error(err, slow.Away(), time.Since(began))
	}
}

func TestAContextsEndLeavesTheLineAndGivesTheHoldBack(t *testing.T) {
	l, key := limiter(t, Options{}), t.Name()
	if _, err := l.Check(background, key, []string{"1/30s"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(background)
	ended := make(chan error)
	go func() {
		_, err := l.Wait(ctx, key, []string{"1/30s"}, time.Minute, Flow("f", 2), Priority(3))
		ended <- err
	}()
	go func() {
		_, err := l.Hold(ctx, key, []string{"1/30s"}, time.Minute, WaitUpTo(time.Minute))
		ended <- err
	}()
	waiting := func() string { // how many wait
		info, _ := l.Call(background, key, "INFO", "ratelimit")
		_, after, _ := strings.Cut(info.(string), "ratelimit_waiting_clients:")
		return after[:1]
	}
	until(t, func() bool { return waiting() == "2" })
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	until(t, func() bool { return waiting() == "0" })

	// At its turn, which is a day away.
	turn := []string{"leaky:1/d"}
	if _, err := l.Check(background, key+":turn", turn); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(background, 100*time.Millisecond)
	defer cancel()
	if _, err := l.Hold(short, key+":turn", turn, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	left, err := l.Peek(background, key+":turn", turn)
	if err != nil || left.Remaining != 1 {
		t.Errorf("%+v, %v", left, err)
	}
}

func TestALimiterUsesAClientOfItsOwn(t *testing.T) {
	own := redis.NewClient(&redis.Options{Addr: address, ClientName: "app", MaxRetries: 7})
	l, err := New(own, Options{Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if own.Options().MaxRetries != 7 || l.servers.options.MaxRetries != -1 || l.servers.options.ClientName != "app" {
		t.Error(own.Options().MaxRetries, l.servers.options.MaxRetries, l.servers.options.ClientName)
	}
	_ = own.Close()
	if reply, err := l.Check(background, t.Name(), []string{"5/d"}); err != nil || reply.Remaining != 4 {
		t.Error(reply, err)
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": address}})
	defer ring.Close()
	if _, err := New(ring, Options{}); !errors.Is(err, ErrMisuse) || !strings.Contains(err.Error(), "redis.Ring") {
		t.Error(err)
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}, Password: "p", ReadOnly: true})
	defer cluster.Close()
	l, err = New(cluster, Options{})
	if err != nil || l.servers.options.Password != "p" || l.servers.seeds[0] != address {
		t.Error(err)
	}
	_ = l.Close()
}

func TestAnyDialerIsBounded(t *testing.T) {
	end := make(chan struct{})
	dialers := map[string]func(context.Context) error{
		"obeys":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"blocks": func(context.Context) error { <-end; return net.ErrClosed },
	}
	for name, dial := range dialers {
		own := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return nil, dial(ctx) }})
		l, err := New(own, Options{Timeout: 100 * time.Millisecond, OnOutage: func(OutageEvent) {}})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if _, err = l.Check(background, "k", []string{"5/s"}); !IsOutage(err) || !strings.Contains(err.Error(), "no connection within 100 ms") {
				t.Error(name, err)
			}
		}
		_, _ = l.Close(), own.Close()
	}
	close(end)
}

func TestWrongValuesChangeNoHoldAndStartNoPanic(t *testing.T) {
	l, err := InProcess(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hold, err := l.Hold(background, "k", []string{"slots:1"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Renew(background, "k", hold.ID, -time.Minute); !errors.Is(err, ErrMisuse) {
		t.Error(err)
	}
	if _, err := hold.SettleCost(background, CostRange(1, 2)); !errors.Is(err, ErrMisuse) {
		t.Error(err)
	}
	if lives, err := l.Renew(background, "k", hold.ID, time.Minute); err != nil || !lives {
		t.Error(lives, err)
	}
	if _, err := limiter(t, Options{Engine: Script}).Call(background, "k", "RL.CHECK"); !errors.Is(err, ErrMisuse) {
		t.Error(err)
	}
	for url, isCluster := range map[string]bool{"redis://:a+cluster@localhost": false, "rediss+cluster://localhost": true} {
		l, err := FromURL(url, Options{})
		if err != nil || l.servers.isCluster != isCluster || isCluster != (l.servers.seeds != nil) {
			t.Fatal(url, err)
		}
		_ = l.Close()
	}
}

func TestTheCallersLoggerGetsWhatNoHookDoes(t *testing.T) {
	var log lockedBuffer
	l, err := FromURL("redis://"+dead(t), Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Outage: OutageAllow})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 20 {
		if _, err := l.Check(background, "secret", []string{"5/s"}); err != nil {
			t.Error(err)
		}
	}
	if text := log.String(); strings.Count(text, "away=true") != 1 || strings.Contains(text, "secret") {
		t.Error(text)
	}
}
