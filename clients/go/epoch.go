package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// epoch is a client of go-redis from when a node answers to when it goes away.
type epoch struct {
	node   *node
	client *redis.Client
	ctx    context.Context
	end    context.CancelCauseFunc
}

func (n *node) begin() *epoch {
	e := &epoch{node: n}
	e.ctx, e.end = context.WithCancelCause(n.l.ctx)
	e.client = e.connect(n.l.Concurrency)
	return e
}

// connect makes a client, which connects when it is first used.
func (e *epoch) connect(most int) *redis.Client {
	options := *e.node.l.servers.options
	options.PoolSize = most
	if e.node.l.servers.isCluster {
		options.Addr = e.node.name
	}
	dial := options.Dialer
	if dial == nil {
		dial = redis.NewDialer(&options)
	}
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		return e.dial(ctx, func(ctx context.Context) (net.Conn, error) { return dial(ctx, network, address) })
	}
	return redis.NewClient(&options)
}

// single makes a client for one caller, which ends with the context, and when the node goes away.
func (e *epoch) single(ctx context.Context) (*redis.Client, func()) {
	client := e.connect(1)
	end := func() { _ = client.Close() }
	left, gone := context.AfterFunc(ctx, end), context.AfterFunc(e.ctx, end)
	return client, func() {
		left()
		gone()
		end()
	}
}

// dial bounds a dialer by the time-out, whether or not it obeys its context.
func (e *epoch) dial(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	late := fmt.Errorf("no connection within %d ms", e.node.l.timeout.Milliseconds())
	ctx, cancel := context.WithTimeoutCause(ctx, e.node.l.timeout, late)
	defer context.AfterFunc(e.ctx, cancel)()
	var made net.Conn
	var err error
	dialed := make(chan struct{})
	go func() {
		defer close(dialed)
		made, err = dial(ctx)
	}()
	select {
	case <-dialed:
		cancel()
		if err != nil {
			return nil, &connError{err: err, isNew: true}
		}
		return &conn{Conn: made, heard: &e.node.heard, used: clock()}, nil
	case <-ctx.Done():
		go func() {
			if <-dialed; made != nil {
				_ = made.Close()
			}
		}()
		return nil, &connError{err: context.Cause(ctx), isNew: true}
	}
}

// closeLater closes the client when the requests under way are over.
func (e *epoch) closeLater() {
	time.AfterFunc(e.node.l.timeout, func() { _ = e.client.Close() })
}

// bounded is the context of one request. It has a deadline, which go-redis sets on the connection, but no timer.
type bounded struct {
	context.Context
	since time.Duration
	until time.Time
	isOwn bool // the deadline is the caller's
}

func (b bounded) Deadline() (time.Time, bool) { return b.until, true }

func bound(ctx context.Context, most time.Duration) bounded {
	now := time.Now()
	until, isOwn := ctx.Deadline()
	if isOwn = isOwn && until.Before(now.Add(most)); !isOwn {
		until = now.Add(most)
	}
	return bounded{ctx, now.Sub(start), until, isOwn}
}

// send sends a command once. It sends it once more, on a connection opened afterwards, if nothing of it was written, or
// if it may be repeated.
func (e *epoch) send(ctx context.Context, cmd redis.Cmder, repeatable bool) error {
	within := bound(ctx, e.node.l.timeout)
	err := e.client.Process(within, cmd)
	if err == nil || errors.Is(err, redis.Nil) {
		return nil
	}
	failure, wrote := e.judge(within, err)
	if wrote == nothing || wrote == all && repeatable {
		single, done := e.single(ctx)
		defer done()
		if err = single.Process(within, cmd); err == nil || errors.Is(err, redis.Nil) {
			return nil
		}
		failure, _ = e.judge(within, err)
	}
	return failure
}

// written is what was written of a request that failed because its connection ended.
type written uint8

const (
	none written = iota // it failed for another reason
	nothing
	all
)

// judge says what a failure of go-redis means for its request and for the node.
func (e *epoch) judge(ctx bounded, err error) (error, written) {
	var failed *connError
	late := fmt.Errorf("no reply within %d ms: time-out", e.node.l.timeout.Milliseconds())
	isLate := errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, context.DeadlineExceeded)
	if errors.As(err, &failed) {
		isLate = isLate || errors.Is(failed.err, os.ErrDeadlineExceeded)
	}
	cause := context.Cause(e.ctx)
	switch {
	case isReply(err):
		return e.judgeReply(err), none
	case cause != nil:
		return cause, none
	case ctx.Err() != nil:
		return ctx.Err(), none
	case isLate && ctx.isOwn:
		return context.DeadlineExceeded, none
	case isLate && e.node.heard.Load() < int64(ctx.since):
		return e.goAway(late, true), none
	case isLate:
		return &OutageError{Node: e.node.name, Err: late}, none
	case errors.Is(err, redis.ErrClosed): // its connections were being replaced
		return &OutageError{Node: e.node.name, Err: err}, nothing
	case failed == nil:
		return &OutageError{Node: e.node.name, Err: shapeError(err), Advice: adviceShape}, none
	case failed.isNew:
		return e.goAway(failed.err, false), none
	case failed.wrote:
		return &OutageError{Node: e.node.name, Err: fmt.Errorf("the connection ended before the reply: %w", failed.err)}, all
	}
	return &OutageError{Node: e.node.name, Err: failed.err}, nothing
}

func (e *epoch) judgeReply(reply error) error {
	if isClosedDoor(reply) {
		_ = e.goAway(reply, false)
	}
	if hasCode(reply, "READONLY", "MASTERDOWN") {
		e.node.replace(e)
	}
	if hasCode(reply, "MOVED", "ASK") && e.node.l.servers.isCluster {
		return reply
	}
	return judged(e.node.name, reply)
}

// isReply tells whether an error is a reply of the server.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// isClosedDoor tells whether a reply says that the server lets this client not in.
func isClosedDoor(reply error) bool {
	return hasCode(reply, "WRONGPASS") || strings.HasPrefix(reply.Error(), "ERR "+maxClients)
}
