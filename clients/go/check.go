package ratelimit

import (
	"context"
	"time"
)

// denied is the wait that OutageDeny answers.
const denied = time.Second

// mostKeys are those of one command. About more, CheckAll asks key by key.
const mostKeys = 64

// Check decides, and consumes from every rule if all of them let the request pass: RL.CHECK.
func (l *Limiter) Check(ctx context.Context, key string, rules []string, options ...Option) (Reply, error) {
	report, err := l.decide(ctx, &question{limits: []Limit{{key, rules}}}, options)
	return report.Reply(), err
}

// Peek decides without consuming: RL.PEEK.
func (l *Limiter) Peek(ctx context.Context, key string, rules []string, options ...Option) (Reply, error) {
	report, err := l.decide(ctx, &question{limits: []Limit{{key, rules}}, peeks: true}, options)
	return report.Reply(), err
}

// PeekAll reports on each rule of a key without consuming. The script reports on the one that decides.
func (l *Limiter) PeekAll(ctx context.Context, key string, rules []string, options ...Option) (Report, error) {
	return l.decide(ctx, &question{limits: []Limit{{key, rules}}, peeks: true, full: true}, options)
}

// CheckAll decides over one or several keys, consumes from all or from none, and reports on each rule: RL.MCHECK.
func (l *Limiter) CheckAll(ctx context.Context, limits []Limit, options ...Option) (Report, error) {
	return l.decide(ctx, &question{limits: limits, full: true}, options)
}

// CheckAny consumes from the first key that lets the request pass, or with Most from the one that has the most left
// afterwards, and from no other. The report has that key, or after a denial the key with the shortest wait. Without the
// server the first key decides.
func (l *Limiter) CheckAny(ctx context.Context, limits []Limit, options ...Option) (Report, error) {
	return l.decide(ctx, &question{limits: limits, any: true, full: true}, options)
}

// Wait waits in line until the request passes, for at most the time-out: RL.WAIT, on a connection for this call. The
// end of the context leaves the line. While the server is away nobody waits: the reply is that of Check.
func (l *Limiter) Wait(ctx context.Context, key string, rules []string, timeout time.Duration, options ...Option) (Reply, error) {
	if err := l.needModule("RL.WAIT"); err != nil {
		return Reply{}, err
	}
	q := &question{limits: []Limit{{key, rules}}, waits: true, timeout: timeout}
	report, err := l.decide(ctx, q, options)
	return report.Reply(), err
}

func (l *Limiter) decide(ctx context.Context, q *question, options []Option) (Report, error) {
	if err := q.with(options); err != nil {
		return Report{}, err
	}
	since := clock()
	what := l.denials.what(q)
	report, known := l.denials.find(what)
	if !known {
		var err error
		if report, err = l.ask(ctx, q); err != nil {
			l.giveUp(q, err)
			if report, err = l.without(q, err); err != nil {
				return Report{}, err
			}
		}
		l.denials.keep(what, q, report, since)
	}
	l.decided(q, report, since)
	return report, nil
}

// ask asks the server, or the estimate of a limiter in the process.
func (l *Limiter) ask(ctx context.Context, q *question) (Report, error) {
	several := len(q.limits) > 1 && !q.any
	if l.servers == nil {
		return l.inProcess(ctx, q)
	}
	if several && (l.Separately || l.Engine == Script || len(q.limits) > mostKeys) {
		return l.apart(ctx, q)
	}
	return l.askOnce(ctx, q)
}

func (l *Limiter) askOnce(ctx context.Context, q *question) (report Report, err error) {
	full := q.full && l.Engine == Module
	var sent any
	if q.waits {
		sent, err = l.inLine(ctx, q, full)
	} else {
		sent, err = l.send(ctx, q.key(), q.words(full), q.peeks || q.ttl > 0)
	}
	switch {
	case err != nil:
		return report, err
	case full:
		report, err = readFull(sent, q)
	default:
		report, err = readShort(sent, q)
	}
	if err == nil && q.full && !full {
		return scriptReport(report.Reply(), q)
	}
	l.tellWrong(err)
	return report, err
}

// without is the answer to a check that the server did not decide.
func (l *Limiter) without(q *question, err error) (Report, error) {
	if !IsOutage(err) {
		return Report{}, err
	}
	l.outages.Add(1)
	report := Report{Key: q.key(), Granted: None, Source: NoServer}
	if q.cost.kind == rangeCost {
		report.Granted = q.cost.most
	}
	switch l.Outage {
	case OutageLocal:
		return l.estimate.decide(q)
	case OutageDeny:
		report.Verdict, report.Wait, report.Granted = Limited, denied, min(0, report.Granted)
		return report, nil
	case OutageAllow:
		return report, nil
	}
	return Report{}, err
}

// inProcess asks the estimate, again after each wait that is short enough.
func (l *Limiter) inProcess(ctx context.Context, q *question) (Report, error) {
	until := clock() + q.timeout
	for {
		report, err := l.estimate.decide(q)
		isOver := !q.waits || report.Wait < 0 || clock()+report.Wait > until
		if err != nil || report.Allowed() || isOver {
			return report, err
		}
		if err := sleep(ctx, report.Wait); err != nil {
			return report, err
		}
	}
}
