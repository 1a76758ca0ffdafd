package ratelimit

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The most keys of the estimate, and what rounding may add to units.
const mostEstimated, rounding = 10_000, 1e-6

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
	keys *recent[*counted]
}

// counted is what a key has.
type counted struct {
	paused   time.Duration // until then
	counters map[string]*counter
	holds    map[string]*held
}

// counter has the units that count under a rule. They count since the window began, or fall since they were last read.
type counter struct {
	*rule
	of    *counted
	key   string
	used  float64
	since time.Duration
}

// held is what a hold has taken.
type held struct {
	until   time.Duration
	how     *question // how it ends by itself
	charges []charge
}

type charge struct {
	*counter
	units int64
	began time.Duration // when the counter's window began
}

func newEstimate(processes int, policies map[string][]string) (e *estimate, wrong error) {
	for name, texts := range policies {
		wrong = cmp.Or(wrong, testLimit(name, texts))
		for _, text := range texts {
			_, err := readRule(text)
			wrong = cmp.Or(wrong, err)
		}
	}
	return &estimate{processes: int64(processes), policies: policies, keys: newRecent[*counted](mostEstimated)}, wrong
}

// decide decides over all rules of all keys: all consume, or none.
func (e *estimate) decide(q *question) (Report, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := clock()
	report := Report{Reply: Reply{Granted: None, Source: Local}, Key: q.key()}
	var counters []*counter
	for at, limit := range q.limits {
		if q.any && at > 0 {
			break
		}
		of := e.of(limit.Key, now, true)
		if of.paused > now {
			report.Verdict, report.Wait, report.Key = Limited, of.paused-now, limit.Key
			return report.whole(), nil
		}
		if q.ttl > 0 && of.holds[q.id] != nil { // the request is sent again
			return report.whole(), nil
		}
		for _, text := range e.texts(limit.Rules) {
			one, err := readRule(text)
			if err == nil && one.kind == "slots" && q.ttl == 0 && !q.peeks {
				err = misuse("the rule '%s': slots are held, ask for them with Hold", text)
			}
			if err != nil {
				return report, err
			}
			counters = append(counters, of.counter(limit.Key, one))
		}
	}
	cost := q.cost
	if cost.isRange { // as much as passes
		for _, c := range counters {
			if c.cost < 0 && !c.shadow {
				cost.most = min(cost.most, e.look(c, 0, now).Remaining)
			}
		}
		cost.least = max(cost.least, cost.most)
		report.Granted = cost.least
	}
	for _, c := range counters {
		told := e.look(c, cost.of(c.rule), now)
		if told.Denies && !told.Shadow && length(told.Wait) > length(report.Wait) {
			report.Verdict, report.Wait, report.Key, report.Granted = Limited, told.Wait, c.key, min(0, report.Granted)
		}
		report.Rules = append(report.Rules, told)
	}
	for at, c := range counters {
		if report.Allowed() && !q.peeks {
			c.take(q, cost.of(c.rule), now)
			after, told := e.look(c, 0, now), &report.Rules[at]
			told.Remaining, told.Next, told.Reset = after.Remaining, after.Next, after.Reset
		}
	}
	return report.whole(), nil
}

// look says what a rule decides.
func (e *estimate) look(c *counter, units int64, now time.Duration) RuleReport {
	limit, most := e.share(c.limit), e.share(c.most)
	if c.kind == "leaky" {
		most = min(limit, most)
	}
	e.age(c, now)
	frees := func(units int64) time.Duration { // when this many units are free
		missing := c.used + float64(units-most)
		switch {
		case units == 0 || missing <= rounding:
			return 0
		case units > most:
			return Never
		case c.isBucket():
			return time.Duration(math.Ceil(missing * float64(c.period) / float64(limit)))
		case c.kind == "slots":
			return c.of.firstEnd() - now
		}
		return c.since + c.period - now
	}
	told := RuleReport{Rule: c.text, Name: c.name, Key: c.key, Cost: units, Shadow: c.shadow, Limit: most, Quota: limit,
		Period: c.period, Remaining: max(0, int64(float64(most)-c.used+rounding)), Wait: frees(units)}
	told.Denies = told.Wait != 0
	if c.used > rounding {
		told.Next, told.Reset = frees(told.Remaining+1), frees(most)
	}
	return told
}

func (e *estimate) share(limit int64) int64 { return max(min(limit, 1), limit/e.processes) }

func (r *rule) isBucket() bool { return r.kind == "bucket" || r.kind == "leaky" }

// age lets units fall that no longer count.
func (e *estimate) age(c *counter, now time.Duration) {
	if c.isBucket() {
		c.used = max(0, c.used-float64(now-c.since)*float64(e.share(c.limit))/float64(c.period))
		c.since = now
	} else if c.kind != "slots" && now >= c.since+c.period {
		c.used = 0
	}
}

func (c *counter) take(q *question, units int64, now time.Duration) {
	if c.used == 0 {
		c.since = now
	}
	c.used += float64(units)
	if q.ttl > 0 {
		hold := cmp.Or(c.of.holds[q.id], &held{until: now + q.ttl, how: &question{refund: q.refund}})
		hold.charges = append(hold.charges, charge{c, units, c.since})
		c.of.holds[q.id] = hold
	}
}

// of is what a key has now, without the holds that have ended.
func (e *estimate) of(key string, now time.Duration, adds bool) *counted {
	found, known := e.keys.get(key)
	if !known {
		found = &counted{counters: make(map[string]*counter), holds: make(map[string]*held)}
	}
	if !known && adds {
		e.keys.put(key, found)
	}
	for id, hold := range found.holds {
		if hold.until <= now {
			e.end(found, id, hold.how, now)
		}
	}
	return found
}

func (c *counted) counter(key string, r *rule) *counter {
	identity := cmp.Or(r.name, r.text)
	c.counters[identity] = cmp.Or(c.counters[identity], &counter{of: c, key: key})
	c.counters[identity].rule = r
	return c.counters[identity]
}

func (c *counted) firstEnd() time.Duration {
	first := time.Duration(math.MaxInt64)
	for _, hold := range c.holds {
		first = min(first, hold.until)
	}
	return first
}

// texts are rules, where a policy stands for its rules.
func (e *estimate) texts(rules []string) (found []string) {
	for _, text := range rules {
		texts := []string{text}
		if policy, named := strings.CutPrefix(text, "@"); named {
			texts = e.policies[strings.TrimPrefix(policy, "plan:")]
		}
		found = append(found, texts...)
	}
	return found
}

// end ends a hold. It gives back what the hold has charged too much, as far as that still counts, and its slots.
func (e *estimate) end(of *counted, id string, how *question, now time.Duration) {
	for _, taken := range of.holds[id].charges {
		c, real := taken.counter, taken.units
		if how.refund || c.kind == "slots" {
			real = 0
		} else if how.cost.words != nil {
			real = how.cost.of(c.rule)
		}
		if e.age(c, now); c.isBucket() || c.since == taken.began || c.kind == "slots" {
			c.used = max(0, c.used+float64(real-taken.units))
		}
	}
	delete(of.holds, id)
}

// change changes something of a key.
func (e *estimate) change(key string, adds bool, work func(of *counted, now time.Duration) bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := clock()
	return work(e.of(key, now, adds), now)
}

// onHold changes a hold. false: there is none.
func (e *estimate) onHold(key, id string, work func(of *counted, now time.Duration)) bool {
	return e.change(key, false, func(of *counted, now time.Duration) bool {
		found := of.holds[id] != nil
		if found {
			work(of, now)
		}
		return found
	})
}

// settle ends a hold, at the real cost of its work.
func (e *estimate) settle(key, id string, how *question) bool {
	return e.onHold(key, id, func(of *counted, now time.Duration) { e.end(of, id, how, now) })
}

func (e *estimate) renew(key, id string, ttl time.Duration) bool {
	return e.onHold(key, id, func(of *counted, now time.Duration) { of.holds[id].until = now + ttl })
}

// refund gives units back to these rules, or without rules to all.
func (e *estimate) refund(key string, units int64, rules []string) (most int64) {
	e.change(key, false, func(of *counted, now time.Duration) bool {
		for _, c := range of.counters {
			if e.age(c, now); len(rules) == 0 || slices.Contains(rules, c.text) {
				given := min(float64(units), c.used)
				c.used, most = c.used-given, max(most, int64(math.Ceil(given)))
			}
		}
		return true
	})
	return most
}

// pause denies every check of a key until its end. A longer pause stays.
func (e *estimate) pause(key string, most time.Duration) (left time.Duration) {
	e.change(key, true, func(of *counted, now time.Duration) bool {
		of.paused = max(of.paused, now+most)
		left = of.paused - now
		return true
	})
	return left
}

// forget ends a pause, or forgets what was counted. false: there was nothing.
func (e *estimate) forget(key string, isPause bool) bool {
	return e.change(key, false, func(of *counted, now time.Duration) bool {
		if isPause {
			defer func() { of.paused = 0 }()
			return of.paused > now
		}
		defer clear(of.counters)
		return len(of.counters) > 0
	})
}

// rule is one that was read. The server has the last word on rules; this is for the estimate and the script.
type rule struct {
	text, kind, name  string
	limit, most, cost int64 // in a period; at once; -1: the cost is that of the request
	period            time.Duration
	shadow            bool
}

var (
	rulePattern = regexp.MustCompile(`^(?:(log|window|fixed|bucket|leaky|slots):)?(\d{1,10})(?:/(\d{0,10})([a-z]+))?((?:,[^,]+)*)$`)
	day         = 24 * time.Hour
	unitTimes   = map[string]time.Duration{
		"ms": time.Millisecond, "s": time.Second, "sec": time.Second, "second": time.Second,
		"m": time.Minute, "min": time.Minute, "minute": time.Minute, "h": time.Hour, "hour": time.Hour,
		"d": day, "day": day, "w": 7 * day, "week": 7 * day, "month": 31 * day,
	}
)

func readRule(text string) (*rule, error) {
	parts := rulePattern.FindStringSubmatch(text)
	if parts == nil {
		return nil, misuse("the rule '%s' cannot be read, expected [algorithm:]limit/period[,option...]", text)
	}
	r := &rule{text: text, kind: cmp.Or(parts[1], "log"), name: nameIn(text), cost: -1}
	number := func(digits string) int64 {
		found, _ := strconv.ParseInt(digits, 10, 64) // at most ten digits
		return found
	}
	r.limit = number(parts[2])
	r.most = r.limit
	if r.kind == "leaky" {
		r.most += min(1, r.limit)
	}
	for option := range strings.SplitSeq(parts[5], ",") {
		name, value, _ := strings.Cut(option, "=")
		switch {
		case name == "shadow":
			r.shadow = true
		case name == "cost":
			r.cost = number(value)
		case name == "burst" && r.limit > 0:
			r.most = number(value)
		case name == "queue" && r.limit > 0:
			r.most = number(value) + 1
		}
	}
	unit := cmp.Or(unitTimes[parts[4]], unitTimes[strings.TrimSuffix(parts[4], "s")])
	count := max(1, number(parts[3]))
	if (r.kind == "slots") != (unit == 0) || unit > 0 && count > int64(longest/unit) {
		return nil, misuse("the rule '%s' has no period up to 366 days", text)
	}
	r.period = unit * time.Duration(count)
	return r, nil
}

// nameIn is what name= gives in a rule's text.
func nameIn(text string) string {
	_, after, _ := strings.Cut(text, ",name=")
	name, _, _ := strings.Cut(after, ",")
	return name
}

// brief is how long to remember a denial that may end at any time: a block, a pause, an endless wait, or one under a
// plan, which the customer may change.
const brief = time.Second

// denials are those that the limiter remembers until their wait is over.
type denials struct {
	most  int
	mu    sync.Mutex
	found *recent[denial]
	keys  *recent[*int] // a denial holds while its key has the token that it had then
}

type denial struct {
	report       Report
	since, until time.Duration
	token        *int
}

func newDenials(most int) *denials {
	return &denials{most: most, found: newRecent[denial](most), keys: newRecent[*int](most)}
}

// what is asked. "": nothing that can be remembered, since it may repeat a hold.
func (d *denials) what(q *question) string {
	if d.most == 0 || q.ttl > 0 || q.peeks || q.waits || q.any {
		return ""
	}
	var text strings.Builder
	for _, limit := range q.limits {
		fmt.Fprintf(&text, "%q%q", limit.Key, limit.Rules)
	}
	fmt.Fprint(&text, q.full, q.cost)
	return text.String()
}

func (d *denials) find(what string) (Report, bool) {
	if what == "" {
		return Report{}, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known, found := d.found.get(what)
	token, _ := d.keys.get(known.report.Key)
	return known.report.later(clock() - known.since), found && token == known.token && clock() < known.until
}

// keep remembers a denial. `since` is when the server was asked: no denial is remembered too long.
func (d *denials) keep(what string, q *question, report Report, since time.Duration) {
	if what == "" || report.Allowed() || report.Source != Server || endsEarly(q, report) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	token, _ := d.keys.get(report.Key)
	token = cmp.Or(token, new(int))
	d.keys.put(report.Key, token)
	d.found.put(what, denial{report, since, since + lasts(q, report), token})
}

// forget forgets the denials of a key that something frees.
func (d *denials) forget(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys.drop(key)
}

// lasts is for how long a denial is remembered.
func lasts(q *question, report Report) time.Duration {
	byRate := len(report.Rules) == 0 && report.Limit > 0 ||
		slices.ContainsFunc(report.Rules, func(rule RuleReport) bool { return rule.Denies && rule.Wait == report.Wait })
	isPlan := func(rule string) bool { return strings.HasPrefix(rule, "@plan:") }
	if report.Wait >= 0 && (report.Wait < brief || report.Verdict == Limited && byRate && !q.hasRule(isPlan)) {
		return report.Wait
	}
	return brief
}

// endsEarly tells whether a denial may end before its wait is over, or starts anew by being asked for. A report about
// one key shows the rules of policies; any other reply does not show all.
func endsEarly(q *question, report Report) bool {
	early := func(rule string) bool {
		return isSlots(rule) || strings.HasPrefix(rule, "@") || strings.Contains(rule, "count=all") || strings.Contains(rule, "ban=")
	}
	isWhole := len(report.Rules) > 0 && len(q.limits) == 1
	return !isWhole && q.hasRule(early) ||
		slices.ContainsFunc(report.Rules, func(rule RuleReport) bool { return early(rule.Rule) })
}

// recent keeps at most a number of values: those of the older half, least recently used, go at once. It is not safe for
// concurrent use.
type recent[V any] struct {
	half       int
	young, old map[string]V
}

func newRecent[V any](most int) *recent[V] {
	return &recent[V]{max(1, most/2), make(map[string]V), make(map[string]V)}
}

func (r *recent[V]) get(key string) (V, bool) {
	value, found := r.young[key]
	if old, isOld := r.old[key]; isOld && !found {
		value, found = old, true
		r.put(key, old)
	}
	return value, found
}

func (r *recent[V]) put(key string, value V) {
	if _, isYoung := r.young[key]; !isYoung && len(r.young) >= r.half {
		r.young, r.old = make(map[string]V), r.young
	}
	r.young[key] = value
}

func (r *recent[V]) drop(key string) {
	delete(r.young, key)
	delete(r.old, key)
}
