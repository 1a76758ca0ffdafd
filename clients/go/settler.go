package ratelimit

import (
	"sync"
	"sync/atomic"
	"time"
)

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
	key, id string
	how     *question
	until   time.Duration
	isLate  bool          // the server may get the hold's own command after this
	after   time.Duration // not before
}

func (s *settler) add(one settling) {
	s.mu.Lock()
	defer s.mu.Unlock()
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

func (s *settler) drop(one settling) {
	s.dropped.Add(1)
	s.l.log().Warn("a hold is not settled: it ends after its time", "hold", one.id)
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
	case err != nil && s.l.ctx.Err() == nil:
		s.drop(one)
	}
}
