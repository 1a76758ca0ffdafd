package ratelimit

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// After a lease that lasts less than leaseShort, the next one asks for twice as many units, and for half as many after
// one that lasts more than leaseLong, or of which less than half was used.
const leaseShort, leaseLong = 50 * time.Millisecond, 200 * time.Millisecond

// LeaseOptions are those of a Lease. The zero value has the defaults.
type LeaseOptions struct {
	// TTL is how long the server keeps a lease that is not settled: 2 s by default.
	TTL time.Duration
	// Most is how many units to lease at once: 1000 by default.
	Most int64
}

// Lease takes units of one hot key ahead, and hands them out in this process. Units count when they are leased, and may
// be used for half of the ttl after that. If the process dies, the units that it used of its last lease come back when
// the ttl is over. While the server is away, Options.Outage answers.
type Lease struct {
	l      *Limiter
	limits []Limit
	ttl    time.Duration
	most   int64
	asking chan struct{} // a place for the one who asks the server

	mu    sync.Mutex
	next  int64 // how many units to ask for
	open  *leased
	known denial
	least int64 // the cost that was denied
}

// leased are units of the server.
type leased struct {
	id            string
	granted, left int64
	since         time.Duration
	reply         Reply
	due           *time.Timer
}

// NewLease makes a lease of a key's units.
func (l *Limiter) NewLease(key string, rules []string, options LeaseOptions) (*Lease, error) {
	ttl, most := cmp.Or(options.TTL, 2*time.Second), cmp.Or(options.Most, 1000)
	err := cmp.Or(l.needModule("a lease"), testLimit(key, rules), testTime("the ttl", ttl, false), testUnits("Most", most))
	if err != nil {
		return nil, err
	}
	return &Lease{l: l, limits: []Limit{{key, rules}}, ttl: ttl, most: most, next: 1, asking: make(chan struct{}, 1)}, nil
}

// Take takes units, out of the lease if it has them.
func (e *Lease) Take(ctx context.Context, units int64) (Reply, error) {
	if err := testUnits("the number of units", units); err != nil {
		return Reply{}, err
	}
	since := clock()
	report, found := e.find(units)
	if !found {
		select {
		case e.asking <- struct{}{}:
		case <-ctx.Done():
			return Reply{}, ctx.Err()
		}
		defer func() { <-e.asking }()
		if report, found = e.find(units); !found { // nobody has asked meanwhile
			report, err := e.ask(context.WithoutCancel(ctx), units)
			return report.Reply(), err
		}
	}
	e.l.decided(&question{limits: e.limits}, report, since)
	return report.Reply(), nil
}

// Close gives back what is left. After an outage that is tried again in the background until the ttl is over.
func (e *Lease) Close() error { return unless(isUndecided, e.settle(e.end())) }

// find finds an answer without the server.
func (e *Lease) find(units int64) (Report, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := clock()
	if open := e.open; open != nil && now < open.since+e.ttl/2 && units <= open.left {
		open.left -= units
		reply := open.reply
		reply.Remaining, reply.Source, reply.Granted = open.left, Leased, None
		return Report{Source: Leased, short: &reply}, true
	}
	if units >= e.least && now < e.known.until {
		return e.known.report.later(now - e.known.since), true
	}
	return Report{}, false
}

// ask settles the lease and takes the next, in one round trip.
func (e *Lease) ask(ctx context.Context, units int64) (Report, error) {
	var settled sync.WaitGroup
	ended := e.end()
	settled.Go(func() { _ = e.settle(ended) })
	defer settled.Wait()
	q := &question{limits: e.limits, full: true, id: newID(), ttl: e.ttl, refund: true}
	since := clock()
	report, err := e.l.decide(ctx, q, []Option{CostRange(units, max(units, e.next, 1))})
	if err != nil || report.Source == NoServer {
		return report, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !report.Allowed() && report.Source == Server {
		e.known, e.least = denial{report, since, since + lasts(q, report), nil}, units
	} else if report.Allowed() && len(report.Rules) > 0 { // an exempt key has no rules, and no hold
		granted := max(report.Granted, units)
		due := time.AfterFunc(e.ttl/2, func() { e.l.background(func() { _ = e.settle(e.end()) }) })
		e.open = &leased{q.id, granted, granted - units, since, report.Reply(), due}
	}
	return report, nil
}

// end ends the lease, and adapts the size of the next.
func (e *Lease) end() *leased {
	e.mu.Lock()
	defer e.mu.Unlock()
	open := e.open
	if e.open = nil; open == nil {
		return nil
	}
	open.due.Stop()
	lasted, used := clock()-open.since, open.granted-open.left
	if lasted > leaseLong || used*2 < open.granted {
		e.next = max(1, open.granted/2)
	} else if lasted < leaseShort {
		e.next = min(e.most, open.granted*2)
	}
	return open
}

func (e *Lease) settle(ended *leased) error {
	if ended == nil {
		return nil
	}
	how := new(question)
	Cost(ended.granted - ended.left)(how)
	_, err := e.l.endHold(e.l.ctx, e.limits[0].Key, ended.id, e.ttl, how)
	return err
}
