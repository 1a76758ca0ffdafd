package ratelimit

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
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
	replaced  time.Time // when its connections were last replaced
}

func newNode(l *Limiter, name string) *node {
	n := &node{l: l, name: name}
	n.current.Store(n.begin())
	return n
}

// away is why the node does not answer. nil: it does.
func (n *node) away() error { return context.Cause(n.current.Load().ctx) }

// replace closes the connections, at most once a second, so that the next one finds the new primary.
func (n *node) replace(e *epoch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current.Load() == e && time.Since(n.replaced) > time.Second {
		n.replaced = time.Now()
		n.current.Store(n.begin())
		e.closeLater()
	}
}

// goAway says that the node gives no answers, and why.
func (e *epoch) goAway(err error, isSilent bool) error {
	n, outage := e.node, &OutageError{Node: e.node.name, Err: err}
	if !e.leave(outage, isSilent) {
		return cmp.Or(context.Cause(e.ctx), error(outage))
	}
	_ = e.client.Close()
	before := n.l.outages.Load()
	n.l.tell(OutageEvent{Away: true, Node: n.name, Err: err})
	n.l.background(func() {
		if answers := n.probe(); answers != nil {
			n.mu.Lock()
			n.back = time.Now()
			n.current.Store(answers)
			n.mu.Unlock()
		}
		n.l.tell(OutageEvent{Node: n.name, Err: err, Answered: n.l.outages.Load() - before})
	})
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
		if next, err := n.try(lastLook); err == nil {
			n.current.Store(next)
			e.closeLater()
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
		if n.l.servers.refresh(); n.forgotten.Load() {
			return nil
		}
		if answers, err := n.try(n.l.timeout); err == nil {
			return answers
		}
	}
}

// try asks on a new connection.
func (n *node) try(most time.Duration) (*epoch, error) {
	e := n.begin()
	err := e.client.Ping(bound(e.ctx, most)).Err()
	if isReply(err) && !isClosedDoor(err) {
		err = nil
	}
	if err != nil {
		e.end(err)
		_ = e.client.Close()
	}
	return e, err
}
