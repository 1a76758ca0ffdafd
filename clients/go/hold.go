package ratelimit

import (
	"cmp"
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"
)

// Hold renews itself every third of its ttl until it is settled. Close it when the work is over:
//
//	hold, err := limiter.Hold(ctx, "export", []string{"slots:4"}, 30*time.Second)
//	if err != nil { ... }
//	defer hold.Close()
type Hold struct {
	// ID is what the server knows the hold by.
	ID string
	// Report is the answer of the check that took the hold.
	Report Report

	l    *Limiter
	q    *question
	lost chan struct{}
	left atomic.Bool
	ctx  context.Context // until it is settled
	stop context.CancelFunc
}

// Hold takes a hold, which ends after its ttl if this process dies. With WaitUpTo the caller waits in line, as by Wait.
// Under a leaky rule Hold returns at the caller's turn. If the context ends first, all is given back. A denial is a
// DeniedError.
func (l *Limiter) Hold(ctx context.Context, key string, rules []string, ttl time.Duration, options ...Option) (*Hold, error) {
	if err := cmp.Or(l.needModule("a hold"), testTime("the ttl", ttl, false)); err != nil {
		return nil, err
	}
	q := &question{limits: []Limit{{key, rules}}, full: true, ttl: ttl, id: newID()}
	since := clock()
	report, err := l.decide(ctx, q, options)
	if err != nil {
		return nil, err
	}
	if !report.Allowed() {
		return nil, &DeniedError{report}
	}
	if q.waits {
		since = clock()
	}
	h := &Hold{ID: q.id, Report: report, l: l, q: q, lost: make(chan struct{})}
	h.ctx, h.stop = context.WithCancel(l.ctx)
	if err := sleep(ctx, report.Wait); err != nil { // until the turn that a leaky rule gives
		_, _ = h.Refund(context.WithoutCancel(ctx))
		return nil, err
	}
	if h.isTaken() {
		l.background(func() { h.keep(since) })
	}
	return h, nil
}

// giveUp gives back the holds of a request that got no reply, if the server may have them or get them yet.
func (l *Limiter) giveUp(q *question, err error) {
	for _, limit := range q.limits {
		if q.ttl > 0 && !q.wasAway && (IsOutage(err) || isEnd(err)) {
			l.settler.add(settling{key: limit.Key, id: q.id, how: &question{refund: true}, until: clock() + q.ttl, isLate: true})
		}
	}
}

// isTaken tells whether there is a hold. A key that is exempt has none.
func (h *Hold) isTaken() bool { return h.Report.Source != NoServer && len(h.Report.Rules) > 0 }

// Lost is closed if the hold ends before it is settled, because somebody settled it, or because the server could not be
// reached for its ttl. Others may have its units then.
func (h *Hold) Lost() <-chan struct{} { return h.lost }

// Settle ends the hold. Its charges stand, its slots are free. false: it had ended before. After an outage the
// settlement is tried again in the background until the hold's ttl is over.
func (h *Hold) Settle(ctx context.Context) (bool, error) { return h.end(ctx) }

// SettleCost ends the hold, and corrects its charges to the real cost of the work: Cost or Costs.
func (h *Hold) SettleCost(ctx context.Context, cost Option) (bool, error) { return h.end(ctx, cost) }

// Refund ends the hold, and gives back all that it has consumed.
func (h *Hold) Refund(ctx context.Context) (bool, error) { return h.end(ctx, Refund()) }

// Close settles the hold unless that was done. An outage is no error: see Settle.
func (h *Hold) Close() error {
	_, err := h.Settle(context.Background())
	return unless(isUndecided, err)
}

func (h *Hold) end(ctx context.Context, options ...Option) (bool, error) {
	how, err := settlement(options)
	if err != nil || !h.left.CompareAndSwap(false, true) {
		return false, err
	}
	if h.stop(); !h.isTaken() {
		return true, nil
	}
	return h.l.endHold(ctx, h.q.key(), h.ID, h.q.ttl, how)
}

// endHold settles a hold. If nobody answers, the settlement is tried again until the hold's ttl is over.
func (l *Limiter) endHold(ctx context.Context, key, id string, ttl time.Duration, how *question) (bool, error) {
	settled, err := l.settle(ctx, key, id, how)
	if isUndecided(err) || isEnd(err) {
		l.settler.add(settling{key: key, id: id, how: how, until: clock() + ttl})
	}
	return settled, err
}

// keep renews the hold until it is settled or lost.
func (h *Hold) keep(since time.Duration) {
	for ends := since + h.q.ttl; clock() < ends; {
		if sleep(h.ctx, min(h.q.ttl/3, ends-clock())) != nil {
			return
		}
		asked := clock()
		lives, err := h.l.Renew(h.ctx, h.q.key(), h.ID, h.q.ttl)
		if lives {
			ends = asked + h.q.ttl
		} else if err == nil {
			break
		}
	}
	if h.ctx.Err() == nil && h.Report.Deciding() != nil {
		close(h.lost)
	}
}

// newID is an id that no other request has.
func newID() string { return rand.Text() }

// The most settlements to try again. The oldest is given up first.
const mostSettling = 1000

// A command that takes a hold may reach the server this much later than the settlement of the hold.
const afterwards = time.Second

// settler tries again what an outage kept from being settled, until it is done or the hold's ttl is over.
type settler struct {
	l       *Limiter
	dropped atomic.Uint64

	mu      sync.Mutex
	waiting []settling
	runs    bool
}

// settling is a settlement that was not made.
type settling struct {
	key, id      string
	how          *question
	isLate       bool // the server may get the hold's own command after this
	until, after time.Duration
}

func (s *settler) add(one settling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.l.ctx.Err() != nil {
		s.drop(one)
		return
	}
	s.waiting = append(s.waiting, one)
	if len(s.waiting) > mostSettling {
		s.drop(s.waiting[0])
		s.waiting = append(s.waiting[:0], s.waiting[1:]...)
	}
	if !s.runs {
		s.runs = true
		s.l.background(s.run)
	}
}

// close gives up what waits. What comes later is given up at once.
func (s *settler) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.waiting {
		s.drop(one)
	}
	s.waiting = nil
}

func (s *settler) drop(one settling) {
	s.dropped.Add(1)
	s.l.o.Logger.Warn("a hold is not settled: it ends after its time", "hold", one.id)
}

func (s *settler) run() {
	for pause := 50 * time.Millisecond; sleep(s.l.ctx, pause) == nil; pause = min(2*pause, afterwards) {
		s.mu.Lock()
		round := s.waiting
		s.waiting, s.runs = nil, len(round) > 0
		s.mu.Unlock()
		if len(round) == 0 {
			return
		}
		for _, one := range round {
			s.try(one)
		}
	}
}

func (s *settler) try(one settling) {
	if now := clock(); now < one.after {
		s.add(one)
		return
	} else if now > one.until {
		s.drop(one)
		return
	}
	settled, err := s.l.settle(s.l.ctx, one.key, one.id, one.how)
	switch {
	case err == nil && !settled && one.isLate:
		one.isLate, one.after = false, clock()+afterwards
		s.add(one)
	case isUndecided(err):
		s.add(one)
	case err != nil:
		s.drop(one)
	}
}

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
			return report.Reply, err
		}
	}
	e.l.decided(&question{limits: e.limits}, report, since)
	return report.Reply, nil
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
		return Report{Reply: reply}, true
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
		e.open = &leased{q.id, granted, granted - units, since, report.Reply, due}
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
