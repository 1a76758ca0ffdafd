package ratelimit

import (
	"context"
	"strings"
	"time"
)

// Count says which requests count. If not all count, each check takes a hold while the request is served, for an hour at
// most. A request that does not count then gets its cost back. If the process dies, its requests count.
type Count uint8

// Which requests count.
const (
	CountAll Count = iota
	CountFailed
	CountSuccessful
)

// longestRequest is how long a request may take to answer and still get back what it cost.
const longestRequest = time.Hour

// Charge is the check of a request that may count or not, by its outcome. Middlewares are made of it.
type Charge struct {
	Report Report

	l     *Limiter
	q     *question
	count Count
}

// testCount refuses rules that cannot be charged before it is known whether a request counts: slots, which a process
// that dies would keep; and a ban, which would outlast the charge that caused it.
func testCount(rules []string, count Count) error {
	for _, rule := range rules {
		if isSlots(rule) {
			return misuse("the rules have '%s', expected others: slots are held, ask for them with Hold", rule)
		}
		if count != CountAll && strings.Contains(rule, ",ban=") {
			return misuse("the rule '%s' bans, expected another: a request that does not count would still be banned", rule)
		}
	}
	return nil
}

// texts are those of the rules.
func (r Report) texts() (texts []string) {
	for _, rule := range r.Rules {
		texts = append(texts, rule.Rule)
	}
	return texts
}

// Charge checks a request. When its outcome is known, Done gives back what does not count.
func (l *Limiter) Charge(ctx context.Context, limits []Limit, count Count, options ...Option) (c *Charge, err error) {
	c = &Charge{l: l, q: &question{limits: limits, full: true}, count: count}
	if count != CountAll {
		if err := l.needModule("a count of failed or successful requests"); err != nil {
			return nil, err
		}
		c.q.id, c.q.ttl = newID(), longestRequest
	}
	c.Report, err = l.decide(ctx, c.q, options)
	if err != nil && strings.Contains(err.Error(), " in the key already (") {
		l.log().Warn("a key has too many holds, see max-holds: a request counts whatever its answer")
		c.q.ttl = 0
		c.Report, err = l.decide(ctx, c.q, options)
	}
	if err != nil {
		return nil, err
	}
	if err := testCount(c.Report.texts(), count); err != nil {
		c.Done(ctx, count == CountSuccessful)
		return nil, err
	}
	return c, nil
}

// Done says whether the request failed.
func (c *Charge) Done(ctx context.Context, failed bool) {
	if c.q.ttl == 0 || !c.Report.Allowed() || c.Report.Source == NoServer {
		return
	}
	how := &question{refund: failed != (c.count == CountFailed)}
	for _, limit := range c.q.limits {
		_, err := c.l.endHold(context.WithoutCancel(ctx), limit.Key, c.q.id, longestRequest, how)
		if unlessUndecided(err) != nil {
			c.l.log().Error("a request that does not count stays charged", "error", err)
		}
	}
}
