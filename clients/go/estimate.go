package ratelimit

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// The most keys of the estimate. The least recently used goes first.
const mostEstimated = 10_000

// What rounding may add to units.
const rounding = 1e-6

// estimate decides in this process while the server does not. It promises three things for the keys that it still
// keeps: never more than limit/processes at once (at least 1), never more than twice that in any period, and a wait
// after which the request passes if nobody else asks.
//
// Each rule of a key has a counter: a window that begins with its first request for log, window and fixed; a token
// bucket for bucket and leaky; the holds in force for slots.
type estimate struct {
	processes int64
	policies  map[string][]string

	mu   sync.Mutex
	keys *lru[*counted]
}

// counted is what a key has.
type counted struct {
	paused   time.Duration // until then
	counters map[string]*counter
	holds    map[string]*held
}

// counter has the units that count under a rule. They count since the window began, or fall since they were last read.
type counter struct {
	rule  *rule
	key   string
	used  float64
	since time.Duration
}

// held is what a hold has taken.
type held struct {
	until   time.Duration
	refund  bool
	charges []charge
}

type charge struct {
	counter *counter
	units   int64
	since   time.Duration // of the counter then
}

func newEstimate(processes int, policies map[string][]string) (*estimate, error) {
	for _, texts := range policies {
		if err := testRules(texts); err != nil {
			return nil, err
		}
		for _, text := range texts {
			if _, err := readRule(text); err != nil {
				return nil, err
			}
		}
	}
	return &estimate{processes: int64(processes), policies: policies, keys: newLRU(mostEstimated, func(*counted) {})}, nil
}

// decide decides over all rules of all keys: all consume, or none.
func (e *estimate) decide(q *question) (Report, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := clock()
	report := Report{Key: q.key(), Granted: None, Source: Local}
	var counters []*counter
	for _, limit := range q.limits {
		of, _ := e.of(limit.Key, now, true)
		if of.paused > now {
			return Report{Verdict: Limited, Wait: of.paused - now, Key: limit.Key, Granted: None, Source: Local}, nil
		}
		if q.ttl > 0 && of.holds[q.id] != nil { // the request is sent again
			return report, nil
		}
		for _, text := range e.texts(limit.Rules) {
			one, err := readRule(text)
			if err == nil && one.kind == "slots" && q.ttl == 0 && !q.peeks {
				err = misuse("the rule '%s': slots are held, ask for them with Hold", text)
			}
			if err != nil {
				return Report{}, err
			}
			counters = append(counters, of.counter(limit.Key, one))
		}
	}
	cost := q.cost
	if cost.kind == rangeCost {
		cost.least = e.fit(cost, counters, now)
		report.Granted = cost.least
	}
	for _, c := range counters {
		told := e.look(c, cost.of(c.rule), now)
		if told.Denies && !told.Shadow && length(told.Wait) > length(report.Wait) {
			report.Verdict, report.Wait, report.Key, report.Granted = Limited, told.Wait, c.key, min(0, report.Granted)
		}
		report.Rules = append(report.Rules, told)
	}
	if report.Allowed() && !q.peeks {
		for at, c := range counters {
			e.take(c, q, cost.of(c.rule), now)
			told := e.look(c, 0, now)
			of := &report.Rules[at]
			of.Remaining, of.Next, of.Reset = told.Remaining, told.Next, told.Reset
		}
	}
	return report, nil
}

// fit is the most of a range that passes.
func (e *estimate) fit(cost cost, counters []*counter, now time.Duration) int64 {
	granted := cost.most
	for _, c := range counters {
		if c.rule.cost < 0 && !c.rule.shadow {
			granted = min(granted, e.look(c, 0, now).Remaining)
		}
	}
	return max(granted, cost.least)
}

// look says what a rule decides.
func (e *estimate) look(c *counter, units int64, now time.Duration) RuleReport {
	r := c.rule
	limit, most := e.share(r.limit), e.share(r.most)
	if r.kind == "leaky" {
		most = min(limit, most)
	}
	told := RuleReport{Rule: r.text, Name: r.name, Key: c.key, Cost: units, Shadow: r.shadow, Limit: most, Quota: limit, Period: r.period}
	e.age(c, now)
	told.Remaining = max(0, int64(float64(most)-c.used+rounding))
	frees := func(units int64) time.Duration { // when this many units are free
		switch missing := c.used + float64(units-most); {
		case units == 0 || missing <= rounding:
			return 0
		case units > most:
			return Never
		case c.isBucket():
			return time.Duration(math.Ceil(missing * float64(r.period) / float64(limit)))
		case r.kind == "slots":
			return e.firstEnd(c, now)
		}
		return c.since + r.period - now
	}
	told.Wait = frees(units)
	told.Denies = told.Wait != 0
	if c.used > rounding {
		told.Next, told.Reset = frees(told.Remaining+1), frees(most)
	}
	return told
}

func (e *estimate) share(limit int64) int64 { return max(min(limit, 1), limit/e.processes) }

func (c *counter) isBucket() bool { return c.rule.kind == "bucket" || c.rule.kind == "leaky" }

// age lets units fall that no longer count.
func (e *estimate) age(c *counter, now time.Duration) {
	if c.isBucket() {
		c.used = max(0, c.used-float64(now-c.since)*float64(e.share(c.rule.limit))/float64(c.rule.period))
		c.since = now
	} else if c.rule.kind != "slots" && now >= c.since+c.rule.period {
		c.used = 0
	}
}

func (e *estimate) take(c *counter, q *question, units int64, now time.Duration) {
	if c.used == 0 {
		c.since = now
	}
	c.used += float64(units)
	if of, _ := e.of(c.key, now, false); q.ttl > 0 {
		if of.holds[q.id] == nil {
			of.holds[q.id] = &held{until: now + q.ttl, refund: q.refund}
		}
		of.holds[q.id].charges = append(of.holds[q.id].charges, charge{c, units, c.since})
	}
}

// of is what a key has now, without the holds that have ended.
func (e *estimate) of(key string, now time.Duration, adds bool) (*counted, bool) {
	found, known := e.keys.get(key)
	if !known {
		found = &counted{counters: make(map[string]*counter), holds: make(map[string]*held)}
		if adds {
			e.keys.put(key, found)
		}
	}
	for id, hold := range found.holds {
		if hold.until <= now {
			delete(found.holds, id)
			e.end(hold, &question{refund: hold.refund}, now)
		}
	}
	return found, known
}

func (c *counted) counter(key string, r *rule) *counter {
	identity := r.text
	if r.name != "" {
		identity = "=" + r.name
	}
	if c.counters[identity] == nil {
		c.counters[identity] = &counter{key: key}
	}
	c.counters[identity].rule = r
	return c.counters[identity]
}

func (e *estimate) firstEnd(c *counter, now time.Duration) time.Duration {
	first := Never
	of, _ := e.of(c.key, now, false)
	for _, hold := range of.holds {
		if first < 0 || hold.until-now < first {
			first = hold.until - now
		}
	}
	return first
}

// texts are rules, where a policy stands for its rules.
func (e *estimate) texts(rules []string) (found []string) {
	for _, text := range rules {
		if policy, named := strings.CutPrefix(text, "@"); named {
			found = append(found, e.policies[strings.TrimPrefix(policy, "plan:")]...)
		} else {
			found = append(found, text)
		}
	}
	return found
}

// end gives back what a hold has charged too much, as far as it still counts, and its slots.
func (e *estimate) end(hold *held, how *question, now time.Duration) {
	for _, taken := range hold.charges {
		c, real := taken.counter, taken.units
		if how.refund || c.rule.kind == "slots" {
			real = 0
		} else if how.cost.kind != noCost {
			real = how.cost.of(c.rule)
		}
		e.age(c, now)
		if c.isBucket() || c.since == taken.since || c.rule.kind == "slots" {
			c.used = max(0, c.used+float64(real-taken.units))
		}
	}
}

// settle ends a hold, at the real cost of its work. false: there was none.
func (e *estimate) settle(key, id string, how *question) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	of, _ := e.of(key, clock(), false)
	hold := of.holds[id]
	if hold != nil {
		delete(of.holds, id)
		e.end(hold, how, clock())
	}
	return hold != nil
}

func (e *estimate) renew(key, id string, ttl time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	of, _ := e.of(key, clock(), false)
	if of.holds[id] != nil {
		of.holds[id].until = clock() + ttl
	}
	return of.holds[id] != nil
}

// refund gives units back to these rules, or without rules to all.
func (e *estimate) refund(key string, units int64, rules []string) (most int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	of, _ := e.of(key, clock(), false)
	for _, c := range of.counters {
		if len(rules) == 0 || slices.Contains(rules, c.rule.text) {
			e.age(c, clock())
			given := min(float64(units), c.used)
			c.used -= given
			most = max(most, int64(math.Ceil(given)))
		}
	}
	return most
}

// pause denies every check of a key until its end. A longer pause stays.
func (e *estimate) pause(key string, time time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	of, _ := e.of(key, clock(), true)
	of.paused = max(of.paused, clock()+time)
	return of.paused - clock()
}

func (e *estimate) resume(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	of, _ := e.of(key, clock(), false)
	was := of.paused > clock()
	of.paused = 0
	return was
}

func (e *estimate) reset(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	of, _ := e.of(key, clock(), false)
	had := len(of.counters) > 0
	clear(of.counters)
	return had
}
