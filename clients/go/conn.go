package ratelimit

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// A connection that has been idle for this long is looked at before it is used ...
	idleLook = time.Second
	// ... and one that has been idle for this long is replaced.
	idleMost = time.Minute
	// A reply that came while this process stood still is read although its time is over.
	grace = 2 * time.Millisecond
)

var start = time.Now()

// clock is a time that only goes forward.
func clock() time.Duration { return time.Since(start) }

// conn is a connection that remembers what go-redis does not say: whether a request was written, and whether a reply has
// ever come. It tells its node when a reply comes.
type conn struct {
	net.Conn
	heard   *atomic.Int64 // of the node
	replies int
	refused string // the first reply, if it was an error: it may be the last one, too
	pending int    // bytes written since the last reply
	used    time.Duration
}

// connError is an error of a connection. It has no Unwrap, because go-redis would unwrap it.
type connError struct {
	err   error
	isNew bool // it could not be made, or no reply had come, or only a refusal
	wrote bool // of the request
}

func (e *connError) Error() string { return e.err.Error() }

func (c *conn) failed(err error) error {
	if err == nil {
		return nil
	}
	isNew := c.replies == 0
	if c.replies == 1 && c.refused != "" {
		isNew, err = true, errors.New(c.refused)
	}
	return &connError{err, isNew, c.pending > 0}
}

func (c *conn) Write(sent []byte) (int, error) {
	n, err := c.Conn.Write(sent)
	c.pending += n
	return n, c.failed(err)
}

func (c *conn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.SetReadDeadline(time.Now().Add(grace)) == nil {
		n, err = c.Conn.Read(into)
	}
	if n == 0 {
		return 0, c.failed(err)
	}
	if c.replies == 0 && into[0] == '-' {
		c.refused = string(into[1:min(n, 100)])
	}
	c.replies++
	c.pending, c.used = 0, clock()
	c.heard.Store(int64(c.used))
	return n, nil
}

// SyscallConn is called by go-redis before it uses an idle connection, to see whether it has ended. It cannot see that
// through TLS, so this looks itself: whatever comes on an idle connection means its end.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if raw, ok := c.Conn.(syscall.Conn); ok {
		return raw.SyscallConn()
	}
	tls, ok := c.Conn.(interface{ NetConn() net.Conn })
	if !ok || clock()-c.used < idleLook {
		return unseen{}, nil
	}
	under := tls.NetConn()
	if err := under.SetReadDeadline(time.Now().Add(grace)); err != nil {
		return nil, err
	}
	if _, err := under.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, net.ErrClosed
	}
	return unseen{}, under.SetReadDeadline(time.Time{})
}

// unseen is a connection on which nothing has come.
type unseen struct{}

func (unseen) Control(func(uintptr)) error    { return nil }
func (unseen) Read(func(uintptr) bool) error  { return nil }
func (unseen) Write(func(uintptr) bool) error { return nil }
