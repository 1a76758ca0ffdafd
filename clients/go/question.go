package ratelimit

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of the server.
const mostUnits, longest = 1_000_000_000, 366 * 24 * time.Hour

func testLimit(key string, rules []string) error {
	if len(rules) == 0 || slices.Contains(rules, "") {
		return misuse("the rules are %q, expected one text or more, such as 5/15m", rules)
	}
	return testText("the key", key)
}

func testHold(key, id string) error {
	return cmp.Or(testText("the key", key), testText("the id of the hold", id))
}

func testText(what, text string) error {
	if text == "" {
		return misuse("%s is empty, expected a text", what)
	}
	return nil
}

func testUnits(what string, units int64) error {
	if units < 0 || units > mostUnits {
		return misuse("%s is %d, expected 0 to %d", what, units, mostUnits)
	}
	return nil
}

// testTime refuses a time below 0, or 0 where that means nothing.
func testTime(what string, given time.Duration, from0 bool) error {
	if given < 0 || given == 0 && !from0 || given > longest {
		return misuse("%s is %v, expected more than 0 and at most 366 days", what, given)
	}
	return nil
}

// ms is a time in whole milliseconds, rounded up.
func ms(t time.Duration) int64 { return int64((t + time.Millisecond - 1) / time.Millisecond) }

// Limit is a key, and the rules that apply to it.
type Limit struct {
	// Key is whom to count, such as "login:42".
	Key string
	// Rules are one text for each rule, such as "5/15m"; a policy, "@free"; or the policy of the key's plan, "@plan:free".
	Rules []string
}

// Option says more about one check, wait, hold or settlement.
type Option func(*question)

// Cost is what a request costs, 1 by default.
func Cost(units int64) Option {
	return func(q *question) { q.cost = cost{units, units, false, nil, []any{"COST", units}} }
}

// CostRange takes as much of a range as passes. The reply says what was granted.
func CostRange(least, most int64) Option {
	text := strconv.FormatInt(least, 10) + ".." + strconv.FormatInt(most, 10)
	return func(q *question) { q.cost = cost{least, most, true, nil, []any{"COST", text}} }
}

// Costs are units for the rules with these names. "" stands for all others.
func Costs(byName map[string]int64) Option {
	words := []any{}
	for name, units := range byName {
		words = append(words, "COST", strings.TrimPrefix(name+"="+strconv.FormatInt(units, 10), "="))
	}
	return func(q *question) { q.cost = cost{1, 1, false, byName, words} }
}

// Meta is a text for RL.LOG, such as who asks.
func Meta(text string) Option { return func(q *question) { q.meta = text } }

// Most lets [Limiter.CheckAny] take the key that has the most left afterwards.
func Most() Option { return func(q *question) { q.most = true } }

// HoldID is the id of a hold. A request that is sent again with the id of its first try is charged once.
func HoldID(id string) Option { return func(q *question) { q.id = id } }

// Refund gives all units of a hold back: those that Settle ends, and those that Hold takes if nobody settles them.
func Refund() Option { return func(q *question) { q.refund = true } }

// WaitUpTo lets [Limiter.Hold] wait in line.
func WaitUpTo(timeout time.Duration) Option {
	return func(q *question) { q.timeout, q.waits = timeout, true }
}

// Flow is the flow, such as a tenant, in which a wait stands in line, and its weight, 1 to 1000: flows take turns in
// proportion to their weights.
func Flow(name string, weight int) Option {
	return func(q *question) { q.line = append(q.line, "FLOW", name, "WEIGHT", weight) }
}

// Priority is that of a wait, 0 to 9: higher ones go first.
func Priority(priority int) Option {
	return func(q *question) { q.line = append(q.line, "PRIORITY", priority) }
}

// cost is what a request costs: 1 if there are no words for it.
type cost struct {
	least, most int64
	isRange     bool
	named       map[string]int64
	words       []any // of a command
}

func (c cost) test() (err error) {
	for name, units := range c.named {
		err = cmp.Or(err, testUnits("the cost of '"+name+"'", units))
	}
	if c.least > c.most {
		err = misuse("the cost is %d to %d, expected the least first", c.least, c.most)
	}
	return cmp.Or(err, testUnits("the cost", c.least), testUnits("the cost", c.most))
}

// of is the cost for one rule.
func (c cost) of(r *rule) int64 {
	if named, found := c.named[r.name]; found && r.name != "" {
		return named
	}
	others, found := c.named[""]
	switch {
	case r.cost >= 0:
		return r.cost
	case found:
		return others
	case c.words != nil:
		return c.least
	}
	return 1
}

// question is what a check asks the server, or what stands in for it: keys and rules, their cost, a text for the log;
// whether a report is wanted, nothing is consumed, and one key is enough, and that which has most left; the hold to take,
// and whether it ends with a refund; how long to wait in line, and where.
type question struct {
	limits                         []Limit
	cost                           cost
	meta, id                       string
	full, peeks, any, most, refund bool
	ttl, timeout                   time.Duration
	waits                          bool
	line                           []any
	wasAway                        bool // nobody asked the node before
}

func (q *question) key() string { return q.limits[0].Key }

// with applies options, and tests all values.
func (q *question) with(options []Option) (err error) {
	for _, option := range options {
		option(q)
	}
	if len(q.limits) == 0 {
		return misuse("there is no key, expected at least one")
	}
	for _, limit := range q.limits {
		err = cmp.Or(err, testLimit(limit.Key, limit.Rules))
	}
	if !q.waits && q.line != nil {
		err = misuse("only a wait takes a flow or a priority")
	}
	return cmp.Or(err, q.cost.test(), testTime("the time to wait", q.timeout, true), testTime("the ttl", q.ttl, true))
}

// words are the command.
func (q *question) words(full bool) []any {
	words := make([]any, 0, 8+len(q.limits[0].Rules))
	switch {
	case q.waits:
		words = append(append(words, "RL.WAIT", q.key(), ms(q.timeout)), q.line...)
	case q.peeks:
		words = append(words, "RL.PEEK", q.key())
	case len(q.limits) == 1 && !q.any:
		words = append(words, "RL.CHECK", q.key())
	default:
		words = append(words, "RL.MCHECK", len(q.limits))
		for _, limit := range q.limits {
			words = append(words, limit.Key)
		}
	}
	words = appendIf(appendIf(words, q.any, "ANY"), q.most, "MOST")
	words = appendIf(append(words, q.cost.words...), q.meta != "", "META", q.meta)
	if q.ttl > 0 {
		words = appendIf(append(words, "HOLD", q.id, "PX", ms(q.ttl)), q.refund, "REFUND")
	}
	words = appendIf(words, full, "FULL")
	for at, limit := range q.limits {
		words = appendTexts(appendIf(words, at > 0, "NEXT"), limit.Rules)
	}
	return words
}

func appendIf(words []any, wanted bool, more ...any) []any {
	if wanted {
		return append(words, more...)
	}
	return words
}

func appendTexts(words []any, texts []string) []any {
	for _, text := range texts {
		words = append(words, text)
	}
	return words
}

// hasRule tells whether a rule of any key is such.
func (q *question) hasRule(is func(text string) bool) bool {
	return slices.ContainsFunc(q.limits, func(limit Limit) bool { return slices.ContainsFunc(limit.Rules, is) })
}

func isSlots(text string) bool { return strings.HasPrefix(text, "slots:") }
