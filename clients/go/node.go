package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// The pauses between the beginnings of probes of a node that is away, each with up to a quarter of jitter. If it goes
// away again within relapse, they go on where they were.
var pauses = [...]time.Duration{0, 50e6, 100e6, 200e6, 400e6, 800e6}

const relapse = 10 * time.Second

// A node that was silent is asked once more, for this long, before it goes away: only its connections may be dead.
const lastLook = 20 * time.Millisecond

// node is what a request goes to: the server, or in a cluster the primary of the key's slot. It is answering or away.
// It goes away when a connection cannot be made, or fails before its first reply, or when a request is late and no
// reply came in time since the request was sent. Then nothing asks it but one probe at a time.
type node struct {
	l       *Limiter
	name    string
	heard   atomic.Int64 // when a reply last came in time
	current atomic.Pointer[epoch]

	mu        sync.Mutex  // of what follows, and of changes of `current`
	forgotten atomic.Bool // it has left the map of the cluster
	step      int         // of `pauses`
	back      time.Time
	renewed   time.Time
}

// away is why the node does not answer. nil: it does.
func (n *node) away() error { return context.Cause(n.current.Load().ctx) }

// renew closes the connections, at most once a second, so that the next one finds the new primary.
func (n *node) renew(e *epoch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current.Load() == e && time.Since(n.renewed) > time.Second {
		n.renewed = time.Now()
		n.replace(e, n.begin())
	}
}

// replace lets requests go to another client. The old one closes when those under way are over.
func (n *node) replace(e, next *epoch) {
	n.current.Store(next)
	e.closeLater()
}

// goAway says that the node gives no answers, and why.
func (e *epoch) goAway(err error, isSilent bool) error {
	n, outage := e.node, &OutageError{Node: e.node.name, Err: err}
	if !e.leave(outage, isSilent) {
		return cmp.Or(context.Cause(e.ctx), error(outage))
	}
	before, told := n.l.outages.Load(), make(chan struct{})
	n.l.background(func() { // no listener delays it
		answers := n.probe()
		if answers == nil && !n.forgotten.Load() { // the limiter is closed
			return
		}
		n.mu.Lock()
		n.back = time.Now()
		n.current.Store(cmp.Or(answers, e))
		n.mu.Unlock()
		select {
		case <-told:
			tell(n.l, n.l.o.OnOutage, OutageEvent{Node: n.name, Err: err, Answered: n.l.outages.Load() - before})
		case <-n.l.ctx.Done():
		}
	})
	defer close(told)
	tell(n.l, n.l.o.OnOutage, OutageEvent{Away: true, Node: n.name, Err: err})
	return outage
}

// leave tells whether the node answered until now, and does not any more.
func (e *epoch) leave(outage error, isSilent bool) bool {
	n := e.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.ctx.Err() != nil || n.current.Load() != e {
		return false
	}
	if isSilent {
		if next := n.try(lastLook); next != nil {
			n.replace(e, next)
			return false
		}
	}
	e.end(outage)
	if time.Since(n.back) > relapse {
		n.step = 0
	}
	return true
}

// probe asks a node that is away until it answers, or has left the map of the cluster.
func (n *node) probe() *epoch {
	for last := time.Now(); ; {
		pause := pauses[min(n.step, len(pauses)-1)]
		pause += time.Duration(rand.Float64() * float64(pause) / 4)
		n.step++
		if sleep(n.l.ctx, pause-time.Since(last)) != nil {
			return nil
		}
		last = time.Now()
		if n.l.servers.isCluster {
			_ = n.l.servers.read(n.l.ctx, n.l.servers.at.Load())
		}
		if n.forgotten.Load() {
			return nil
		}
		if answers := n.try(n.l.o.Timeout); answers != nil {
			return answers
		}
	}
}

// try asks on a new connection. nil: there is no answer.
func (n *node) try(most time.Duration) *epoch {
	e := n.begin()
	err := e.client.Ping(bound(e.ctx, most)).Err()
	if err == nil || isReply(err) && !isClosedDoor(err) {
		return e
	}
	e.end(err)
	return nil
}

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
	e.client = e.connect(n.l.o.Concurrency)
	context.AfterFunc(e.ctx, func() { _ = e.client.Close() })
	return e
}

// connect makes a client, which connects when it is first used.
func (e *epoch) connect(most int) *redis.Client {
	options := *e.node.l.servers.options
	options.PoolSize, options.Dialer = most, e.dial
	if e.node.l.servers.isCluster {
		options.Addr = e.node.name
	}
	return redis.NewClient(&options)
}

// single makes a client for one caller, which ends with the context, and when the node goes away.
func (e *epoch) single(ctx context.Context) (*redis.Client, func()) {
	client := e.connect(1)
	end := func() { _ = client.Close() }
	left, gone := context.AfterFunc(ctx, end), context.AfterFunc(e.ctx, end)
	return client, func() { _, _ = left(), gone(); end() }
}

// dial bounds a dialer by the time-out, whether or not it obeys its context. A connection that cannot be made fails when
// it is used: go-redis would log that itself, and go on dialing.
func (e *epoch) dial(ctx context.Context, network, address string) (net.Conn, error) {
	late := fmt.Errorf("no connection within %d ms", e.node.l.o.Timeout.Milliseconds())
	ctx, cancel := context.WithTimeoutCause(ctx, e.node.l.o.Timeout, late)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	dialed := make(chan *conn)
	go func() {
		made, err := e.node.l.servers.options.Dialer(ctx, network, address)
		if err != nil {
			made, _ = net.Pipe()
			err = cmp.Or(context.Cause(ctx), err)
		}
		select {
		case dialed <- &conn{Conn: made, heard: &e.node.heard, refused: err}:
		case <-ctx.Done():
			_ = made.Close()
		}
	}()
	select {
	case made := <-dialed:
		return made, nil
	case <-ctx.Done():
		unmade, _ := net.Pipe()
		return &conn{Conn: unmade, refused: context.Cause(ctx)}, nil
	}
}

// closeLater closes the client when the requests under way are over.
func (e *epoch) closeLater() {
	time.AfterFunc(e.node.l.o.Timeout, func() { e.end(ErrClosed) })
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
	if away := context.Cause(e.ctx); away != nil {
		return away
	}
	within := bound(ctx, e.node.l.o.Timeout)
	again, failure := e.judge(within, e.client.Process(within, cmd), repeatable)
	if again {
		single, done := e.single(ctx)
		defer done()
		_, failure = e.judge(within, single.Process(within, cmd), false)
	}
	return failure
}

// judge says what a failure of go-redis means for its request and for the node, and whether to send the request again.
func (e *epoch) judge(ctx bounded, err error, repeatable bool) (again bool, failure error) {
	if err == nil || errors.Is(err, redis.Nil) {
		return false, nil
	}
	late := fmt.Errorf("no reply within %d ms: time-out", e.node.l.o.Timeout.Milliseconds())
	outage, failed := &OutageError{Node: e.node.name, Err: err}, new(connError)
	isOfConn := errors.As(err, &failed)
	isLate := errors.Is(cmp.Or(failed.err, err), os.ErrDeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout) || isEnd(err)
	cause := cmp.Or(context.Cause(e.ctx), ctx.Err())
	switch {
	case isReply(err):
		return false, e.judgeReply(err)
	case cause != nil:
		return false, cause
	case isLate && ctx.isOwn:
		return false, context.DeadlineExceeded
	case isLate && e.node.heard.Load() < int64(ctx.since):
		return false, e.goAway(late, true)
	case isLate:
		outage.Err = late
		return false, outage
	case !isOfConn && !errors.Is(err, redis.ErrClosed): // which says that the connections were being replaced
		return false, unreadable(err)
	case failed.isNew:
		return false, e.goAway(failed.err, false)
	case failed.wrote:
		outage.Err = fmt.Errorf("the connection ended before the reply: %w", failed.err)
		return repeatable, outage
	}
	return true, outage
}

func (e *epoch) judgeReply(reply error) error {
	if isClosedDoor(reply) {
		_ = e.goAway(reply, false)
	}
	if says(reply, "READONLY ", "MASTERDOWN ") {
		e.node.renew(e)
	}
	if says(reply, "MOVED ", "ASK ") && e.node.l.servers.isCluster {
		return reply
	}
	return judged(e.node.name, reply)
}

// A connection that has been idle for idleMost is replaced. A reply that came while this process stood still is read
// although its time is over, by grace.
const idleMost, grace = time.Minute, 2 * time.Millisecond

var start = time.Now()

// clock is a time that only goes forward.
func clock() time.Duration { return time.Since(start) }

// conn is a connection that remembers what go-redis does not say: whether a request was written, and whether a reply has
// ever come. It tells its node when a reply comes.
type conn struct {
	net.Conn
	heard   *atomic.Int64 // of the node
	replies int
	refused error // why it was not made; or the first reply, if it was an error: it may be the last one, too
	pending int   // bytes written since the last reply
}

// connError is an error of a connection. It has no Unwrap, because go-redis would unwrap it.
type connError struct {
	err   error
	isNew bool // it could not be made, or no reply had come, or only a refusal
	wrote bool // of the request
}

func (e *connError) Error() string { return e.err.Error() }

func (c *conn) failed(err error) error {
	return &connError{cmp.Or(c.refused, err), c.replies == 0 || c.refused != nil, c.pending > 0}
}

func (c *conn) Write(sent []byte) (int, error) {
	if c.replies == 0 && c.refused != nil {
		return 0, c.failed(nil)
	}
	n, err := c.Conn.Write(sent)
	c.pending += n
	if err != nil {
		err = c.failed(err)
	}
	return n, err
}

func (c *conn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.SetReadDeadline(time.Now().Add(grace)) == nil {
		n, err = c.Conn.Read(into)
	}
	if n == 0 {
		return 0, c.failed(err)
	}
	if c.refused = nil; c.replies == 0 && into[0] == '-' {
		c.refused = errors.New(string(into[1:min(n, 100)]))
	}
	c.replies++
	c.pending = 0
	c.heard.Store(int64(clock()))
	return n, nil
}

// SyscallConn is called by go-redis before it uses an idle connection, to see whether anything has come, such as the end.
// By itself it does not look beneath TLS, since the server may send something at any time by RESP3; by RESP2 it does not.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	beneath := c.Conn
	if tls, ok := beneath.(interface{ NetConn() net.Conn }); ok {
		beneath = tls.NetConn()
	}
	if raw, ok := beneath.(syscall.Conn); ok {
		return raw.SyscallConn()
	}
	return unseen{}, nil
}

// unseen is a connection that hides what comes.
type unseen struct{}

func (unseen) Control(func(uintptr)) error    { return nil }
func (unseen) Read(func(uintptr) bool) error  { return nil }
func (unseen) Write(func(uintptr) bool) error { return nil }
