package ratelimit

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// The most redirections of one request in a cluster.
	mostMoves = 3
	// The reply to a wait comes at most this much later than its deadline.
	waitLate = time.Second
	// While a caller waits, this often a request asks whether the server still answers. If it is late, the node goes
	// away, and the wait ends.
	waitAsks = 5 * time.Second
)

// send sends a command to the node of a key, and returns its reply.
func (l *Limiter) send(ctx context.Context, key string, words []any, repeatable bool) (any, error) {
	if l.servers == nil {
		return nil, misuse("%v needs a server, but the limiter is in the process", words[0])
	}
	if l.Engine == Script {
		return l.sendScript(ctx, words)
	}
	return l.sendTo(ctx, key, words, repeatable)
}

func (l *Limiter) sendTo(ctx context.Context, key string, words []any, repeatable bool) (any, error) {
	return l.route(ctx, key, func(e *epoch, asks bool) (any, error) {
		if err := l.place(ctx, e); err != nil {
			return nil, err
		}
		defer func() { <-l.places }()
		if asks {
			return e.alone(ctx, l.timeout, []any{"ASKING"}, words)
		}
		cmd := redis.NewCmd(ctx, words...)
		err := e.send(ctx, cmd, repeatable)
		return cmd.Val(), err
	})
}

// route sends something to the node of a key, and follows the redirections of a cluster.
func (l *Limiter) route(ctx context.Context, key string, send func(e *epoch, asks bool) (any, error)) (sent any, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n, err := l.servers.find(ctx, key)
	asks := false
	for range mostMoves {
		if err != nil {
			break
		}
		sent, err = send(n.current.Load(), asks)
		if !l.servers.isCluster || !hasCode(err, "MOVED", "ASK") {
			break
		}
		asks = hasCode(err, "ASK")
		n, err = l.servers.follow(ctx, n, err)
	}
	l.tellWrong(err)
	return sent, err
}

// place waits until less than Concurrency requests are under way.
func (l *Limiter) place(ctx context.Context, e *epoch) error {
	if err := context.Cause(e.ctx); err != nil {
		return unsent(err)
	}
	select {
	case l.places <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(l.QueueTimeout)
	defer timer.Stop()
	select {
	case l.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.ctx.Done():
		return unsent(context.Cause(e.ctx))
	case <-timer.C:
		return ErrSaturated
	}
}

// inLine sends RL.WAIT. A client whose wait the server ends goes back into the line, for the time that is left.
func (l *Limiter) inLine(ctx context.Context, q *question, full bool) (any, error) {
	until, again := clock()+q.timeout, *q
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for sleep(watching, waitAsks) == nil {
			_, _ = l.sendTo(watching, q.key(), []any{"RL.PEEK", q.key(), "1/s"}, true)
		}
	}()
	for {
		again.timeout = max(0, until-clock())
		sent, err := l.route(ctx, q.key(), func(e *epoch, _ bool) (any, error) {
			return e.alone(ctx, again.timeout+waitLate, []any{"PING"}, again.words(full))
		})
		if !hasCode(err, "UNBLOCKED") || clock() >= until {
			return sent, err
		}
	}
}

// alone sends two commands on a connection for one caller. The first one is bounded as all are, with connecting, the
// second one by `most`. The connection ends with the context, and when the node goes away.
func (e *epoch) alone(ctx context.Context, most time.Duration, first, second []any) (sent any, err error) {
	if err := context.Cause(e.ctx); err != nil {
		return nil, unsent(err)
	}
	client, done := e.single(ctx)
	defer done()
	for _, part := range []struct {
		words []any
		most  time.Duration
	}{{first, e.node.l.timeout}, {second, most}} {
		within := bound(ctx, part.most)
		if sent, err = client.Do(within, part.words...).Result(); err != nil && !errors.Is(err, redis.Nil) {
			failure, _ := e.judge(within, err)
			return nil, failure
		}
	}
	return sent, nil
}
