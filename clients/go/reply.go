package ratelimit

import (
	"cmp"
	"math"
	"time"
)

// Verdict says whether a request may pass.
type Verdict uint8

// The verdicts.
const (
	Allowed Verdict = iota // it passes
	Limited                // a rule denies it
	Blocked                // an operator, or a rule's ban=, has blocked the key
)

// String is the verdict in lower case.
func (v Verdict) String() string { return [...]string{"allowed", "limited", "blocked"}[v] }

// Source says who decided.
type Source uint8

// The sources of decisions.
const (
	Server   Source = iota // the server
	Local                  // the estimate in this process
	NoServer               // nobody: OutageAllow or OutageDeny answers
	Denial                 // a denial that the limiter remembers
	Leased                 // units that a Lease had taken ahead
)

// String is the source in lower case.
func (s Source) String() string {
	return [...]string{"server", "local", "outage", "denial", "lease"}[s]
}

// Never stands for a wait that no time ends, and None for a number that no rule gives.
const (
	Never time.Duration = -1
	None  int64         = -1
)

// Reply is what a check replies.
type Reply struct {
	Verdict   Verdict
	Limit     int64         // the most that the deciding rule lets pass at once
	Remaining int64         // the units that the deciding rule would still allow now
	Wait      time.Duration // when to ask again, or, if the request passes under a leaky rule, when to go on
	Reset     time.Duration // when nothing counts any more under the deciding rule
	Granted   int64         // the units granted from a range of costs, else None
	Source    Source
}

// Allowed tells whether the request passes.
func (r Reply) Allowed() bool { return r.Verdict == Allowed }

// Crossed tells whether this check brought consumption from below a fraction of the limit to at least that:
// Crossed(0.8, 1) for a mail at 80 %. cost is what the check cost the deciding rule.
//
// Under one fixed rule this is true once a window. Under other rules units come back, or another rule decides: it may
// be true twice or never. It is true again if the check repeats a hold.
func (r Reply) Crossed(fraction float64, cost int64) (bool, error) {
	if !(fraction > 0 && fraction <= 1) {
		return false, misuse("the fraction is %v, expected more than 0 and at most 1", fraction)
	}
	used, limit := r.Limit-r.Remaining, float64(r.Limit)
	crosses := float64(max(0, used-cost))/limit < fraction && fraction <= float64(used)/limit
	return r.Allowed() && r.Limit > 0 && crosses, nil
}

// Report is a check's reply with the numbers of each rule.
type Report struct {
	Verdict Verdict
	Wait    time.Duration // when to ask again, or, if the request passes under a leaky rule, when to go on
	Key     string        // the key that decides
	Granted int64         // the units granted from a range of costs, else None
	Rules   []RuleReport  // empty if the key is blocked or exempt
	Source  Source

	short *Reply // of a short reply
}

// RuleReport is what one rule decided.
type RuleReport struct {
	Rule      string // its text
	Name      string // what name= gives
	Key       string
	Cost      int64
	Denies    bool
	Shadow    bool // on trial: it never denies
	Limit     int64
	Quota     int64         // what the rule allows in a period
	Period    time.Duration // 0 for slots, which limit what runs at once
	Remaining int64
	Wait      time.Duration // when the rule would let the request pass
	Next      time.Duration // when one more unit is left
	Reset     time.Duration // when nothing counts any more
}

// Label is the rule's name, or the text of a rule without one.
func (r RuleReport) Label() string { return cmp.Or(r.Name, r.Rule) }

// Allowed tells whether the request passes.
func (r Report) Allowed() bool { return r.Verdict == Allowed }

// Deciding is the rule that decides: if the check was denied, the one with the longest wait, else the one with the
// least left for its cost. nil: no rule decides.
func (r Report) Deciding() (found *RuleReport) {
	share := func(rule, other *RuleReport) float64 { return float64(rule.Remaining) * float64(other.Cost) }
	for at := range r.Rules {
		rule := &r.Rules[at]
		switch {
		case rule.Shadow || !r.Allowed() && !rule.Denies:
		case found == nil,
			!r.Allowed() && length(rule.Wait) > length(found.Wait),
			r.Allowed() && share(rule, found) < share(found, rule):
			found = rule
		}
	}
	return found
}

// violated are the labels of the rules that deny.
func (r Report) violated() (labels []string) {
	for _, rule := range r.Rules {
		if rule.Denies && !rule.Shadow {
			labels = append(labels, rule.Label())
		}
	}
	return labels
}

// length makes waits comparable: Never is the longest.
func length(wait time.Duration) time.Duration {
	if wait < 0 {
		return math.MaxInt64
	}
	return wait
}

// Reply is the short reply with the same decision.
func (r Report) Reply() Reply {
	if r.short != nil {
		return *r.short
	}
	reply := Reply{Verdict: r.Verdict, Wait: r.Wait, Reset: r.Wait, Granted: r.Granted, Source: r.Source}
	if rule := r.Deciding(); rule != nil {
		reply.Limit, reply.Remaining, reply.Reset = rule.Limit, rule.Remaining, rule.Reset
	} else if r.Allowed() {
		reply.Limit, reply.Remaining = None, None
	}
	return reply
}

// later is a remembered denial after some time, if nothing has happened.
func (r Report) later(by time.Duration) Report {
	fall := func(waits ...*time.Duration) {
		for _, wait := range waits {
			if *wait >= 0 {
				*wait = max(0, *wait-by)
			}
		}
	}
	r.Source = Denial
	fall(&r.Wait)
	if r.short != nil {
		short := *r.short
		r.short, short.Source = &short, Denial
		fall(&short.Wait, &short.Reset)
	}
	r.Rules = append([]RuleReport(nil), r.Rules...)
	for at := range r.Rules {
		fall(&r.Rules[at].Wait, &r.Rules[at].Next, &r.Rules[at].Reset)
	}
	return r
}
