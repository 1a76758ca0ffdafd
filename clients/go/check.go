package ratelimit

import (
	"cmp"
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// mostKeys are those of one command. About more, CheckAll asks key by key.
const mostKeys = 64

// Check decides, and consumes from every rule if all of them let the request pass: RL.CHECK.
func (l *Limiter) Check(ctx context.Context, key string, rules []string, options ...Option) (Reply, error) {
	report, err := l.decide(ctx, &question{limits: []Limit{{key, rules}}}, options)
	return report.Reply, err
}

// Peek decides without consuming: RL.PEEK.
func (l *Limiter) Peek(ctx context.Context, key string, rules []string, options ...Option) (Reply, error) {
	report, err := l.decide(ctx, &question{limits: []Limit{{key, rules}}, peeks: true}, options)
	return report.Reply, err
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
	q := &question{limits: []Limit{{key, rules}}, waits: true, timeout: timeout}
	report, err := l.decide(ctx, q, options)
	return report.Reply, err
}

func (l *Limiter) decide(ctx context.Context, q *question, options []Option) (report Report, err error) {
	if err = q.with(options); err != nil {
		return report, err
	}
	since := clock()
	if q.ttl > 0 && l.servers != nil {
		n, err := l.servers.find(ctx, q.key())
		q.wasAway = err != nil || n.away() != nil
	}
	what := l.denials.what(q)
	report, known := l.denials.find(what)
	if !known {
		if report, err = l.ask(ctx, q); err != nil {
			l.giveUp(q, err)
			if report, err = l.without(q, err); err != nil {
				return report, err
			}
		}
		l.denials.keep(what, q, report, since)
	}
	l.decided(q, report, since)
	return report, nil
}

// ask asks the server, or the estimate of a limiter in the process.
func (l *Limiter) ask(ctx context.Context, q *question) (Report, error) {
	isApart := l.o.Separately || l.o.Engine == Script || len(q.limits) > mostKeys
	switch {
	case l.servers == nil:
		return l.estimate.decide(q)
	case isApart && len(q.limits) > 1 && !q.any:
		return l.apart(ctx, q)
	}
	return l.askOnce(ctx, q)
}

func (l *Limiter) askOnce(ctx context.Context, q *question) (report Report, err error) {
	full, read, sent := q.full && l.o.Engine == Module, readShort, any(nil)
	if full {
		read = readFull
	}
	if q.waits && l.o.Engine == Module {
		sent, err = l.inLine(ctx, q, full)
	} else {
		sent, err = l.send(ctx, q.key(), q.words(full), q.peeks || q.ttl > 0)
	}
	if err != nil {
		return report, err
	}
	report, err = read(sent, q)
	if err == nil && q.full && !full {
		report = scriptReport(report.Reply, q)
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
	report := Report{Reply: Reply{Granted: None, Source: NoServer}, Key: q.key()}
	if q.cost.isRange {
		report.Granted = q.cost.most
	}
	switch l.o.Outage {
	case OutageRaise:
		return Report{}, err
	case OutageLocal:
		return l.estimate.decide(q)
	case OutageDeny:
		report.Verdict, report.Wait, report.Granted = Limited, time.Second, min(0, report.Granted)
	}
	return report.whole(), nil
}

// The most redirections of one request in a cluster.
const mostMoves = 3

// The reply to a wait comes at most waitLate later than its deadline. While a caller waits, every waitAsks a request asks
// whether the server still answers. If it is late, the node goes away, and the wait ends.
const waitLate, waitAsks = time.Second, 5 * time.Second

// send sends a command to the node of a key, and returns its reply.
func (l *Limiter) send(ctx context.Context, key string, words []any, repeatable bool) (any, error) {
	if l.servers == nil {
		return nil, misuse("%v needs a server, but the limiter is in the process", words[0])
	}
	if l.o.Engine == Script {
		return l.sendScript(ctx, words)
	}
	return l.sendTo(ctx, key, words, repeatable)
}

func (l *Limiter) sendTo(ctx context.Context, key string, words []any, repeatable bool) (any, error) {
	return l.route(ctx, key, func(e *epoch, asks bool) (any, error) {
		if err := l.place(ctx, e); err != nil {
			return nil, err
		}
		defer l.places.Release(1)
		if asks {
			return e.alone(ctx, l.o.Timeout, []any{"ASKING"}, words)
		}
		cmd := redis.NewCmd(ctx, words...)
		err := e.send(ctx, cmd, repeatable)
		return cmd.Val(), err
	})
}

// route sends something to the node of a key, and follows the redirections of a cluster.
func (l *Limiter) route(ctx context.Context, key string, send func(e *epoch, asks bool) (any, error)) (sent any, err error) {
	n, err := l.servers.find(ctx, key)
	if err == nil {
		sent, err = send(n.current.Load(), false)
	}
	for moves := 0; moves < mostMoves && l.servers.isCluster && says(err, "MOVED ", "ASK "); moves++ {
		n = l.servers.follow(ctx, n, err)
		sent, err = send(n.current.Load(), says(err, "ASK "))
	}
	l.tellWrong(err)
	return sent, err
}

// place waits until less than Concurrency requests are under way.
func (l *Limiter) place(ctx context.Context, e *epoch) error {
	if l.places.TryAcquire(1) {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, l.o.QueueTimeout)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	if l.places.Acquire(within, 1) == nil {
		return nil
	}
	return cmp.Or(context.Cause(e.ctx), ctx.Err(), ErrSaturated)
}

// inLine sends RL.WAIT. A client whose wait the server ends goes back into the line, for the time that is left.
func (l *Limiter) inLine(ctx context.Context, q *question, full bool) (any, error) {
	until, again := clock()+q.timeout, *q
	watching, stop := context.WithCancel(ctx)
	defer stop()
	l.background(func() {
		for sleep(watching, waitAsks) == nil {
			_, _ = l.sendTo(watching, q.key(), []any{"RL.PEEK", q.key(), "1/s"}, true)
		}
	})
	for {
		again.timeout = max(0, until-clock())
		sent, err := l.route(ctx, q.key(), func(e *epoch, _ bool) (any, error) {
			return e.alone(ctx, again.timeout+waitLate, []any{"PING"}, again.words(full))
		})
		if !says(err, "UNBLOCKED ") || clock() >= until {
			return sent, err
		}
	}
}

// alone sends two commands on a connection for one caller. The first one is bounded as all are, with connecting, the
// second one by `most`. The connection ends with the context, and when the node goes away.
func (e *epoch) alone(ctx context.Context, most time.Duration, first, second []any) (sent any, err error) {
	if err := context.Cause(e.ctx); err != nil {
		return nil, err
	}
	client, done := e.single(ctx)
	defer done()
	within := bound(ctx, e.node.l.o.Timeout)
	if err = client.Do(within, first...).Err(); err == nil {
		within = bound(ctx, most)
		sent, err = client.Do(within, second...).Result()
	}
	_, err = e.judge(within, err, false)
	return sent, err
}
