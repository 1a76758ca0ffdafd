package ratelimit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
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

// Reply is what a check replies. Its numbers are those of the rule that decides, None without one.
type Reply struct {
	// Verdict says whether the request passes.
	Verdict Verdict
	// Source says who decided.
	Source Source
	// Limit is the most that passes at once, Remaining how many units would still pass now, and Granted how many a range of
	// costs was granted, else None.
	Limit, Remaining, Granted int64
	// Wait is when to ask again, or, if the request passes under a leaky rule, when to go on. At Reset nothing counts any
	// more.
	Wait, Reset time.Duration
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

// Report is a check's reply with the numbers of each rule. It has no rules if the key is blocked or exempt.
type Report struct {
	// Reply is that of the rule that decides.
	Reply
	// Key is the one that decides.
	Key string
	// Rules are those of all keys, in the order in which they were given.
	Rules []RuleReport
}

// RuleReport is what one rule decided.
type RuleReport struct {
	// Rule is its text, Name what name= gives, Key its key.
	Rule, Name, Key string
	// Denies tells whether the rule alone denies. A Shadow is on trial: the request passes all the same.
	Denies, Shadow bool
	// Cost is what the request costs it, Limit the most at once, Quota what it allows in a period, Remaining what is left.
	Cost, Limit, Quota, Remaining int64
	// Period is 0 for slots. After Wait the rule lets the request pass, after Next one more unit is left, after Reset
	// nothing counts any more.
	Period, Wait, Next, Reset time.Duration
}

// Label is the rule's name, or the text of a rule without one.
func (r RuleReport) Label() string { return cmp.Or(r.Name, r.Rule) }

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
func length(wait time.Duration) uint64 { return uint64(wait) }

// whole adds to the reply what the deciding rule says.
func (r Report) whole() Report {
	r.Reset = r.Wait
	if rule := r.Deciding(); rule != nil {
		r.Limit, r.Remaining, r.Reset = rule.Limit, rule.Remaining, rule.Reset
	} else if r.Allowed() {
		r.Limit, r.Remaining = None, None
	}
	return r
}

// later is a remembered denial after some time, if nothing has happened.
func (r Report) later(by time.Duration) Report {
	fall := func(wait time.Duration) time.Duration { return max(min(wait, 0), wait-by) }
	r.Source, r.Wait, r.Reset, r.Rules = Denial, fall(r.Wait), fall(r.Reset), slices.Clone(r.Rules)
	for at := range r.Rules {
		rule := &r.Rules[at]
		rule.Wait, rule.Next, rule.Reset = fall(rule.Wait), fall(rule.Next), fall(rule.Reset)
	}
	return r
}

// unreadable is the error about a reply of another shape.
func unreadable(sent any) error {
	return &OutageError{Err: fmt.Errorf("unreadable reply: %.100s", fmt.Sprint(sent)), Advice: adviceShape}
}

// reader reads the parts of a reply, and remembers whether any has another shape.
type reader struct{ isWrong bool }

// number reads an integer, or one as decimal text, of at least this.
func (r *reader) number(sent any, least int64) int64 {
	found, isNumber := sent.(int64)
	if text, isText := sent.(string); isText {
		number, err := strconv.ParseInt(text, 10, 64)
		found, isNumber = number, err == nil
	}
	if !isNumber || found < least {
		r.isWrong = true
	}
	return found
}

// time reads milliseconds. The server's -1 is Never.
func (r *reader) time(sent any) time.Duration { return milliseconds(r.number(sent, -1)) }

func milliseconds(number int64) time.Duration {
	return max(Never, time.Duration(min(number, math.MaxInt64/int64(time.Millisecond)))*time.Millisecond)
}

func (r *reader) verdict(sent any) Verdict {
	found := r.number(sent, 0)
	if found > int64(Blocked) {
		r.isWrong, found = true, 0
	}
	return Verdict(found)
}

func (r *reader) text(sent any, otherwise string) string {
	text, ok := sent.(string)
	if !ok && sent != nil {
		r.isWrong = true
	}
	return cmp.Or(text, otherwise)
}

// fields reads a map, which is sent as a list.
func (r *reader) fields(sent any) map[string]any {
	found := make(map[string]any)
	list, isList := sent.([]any)
	if !isList || len(list)%2 != 0 {
		r.isWrong = true
		return found
	}
	for pair := range slices.Chunk(list, 2) {
		found[fmt.Sprint(pair[0])] = pair[1]
	}
	return found
}

// readShort reads five integers, and a sixth if a range was asked for.
func readShort(sent any, q *question) (Report, error) {
	list, _ := sent.([]any)
	if len(list) < 5 || len(list) > 6 || (len(list) == 6) != q.cost.isRange {
		return Report{}, unreadable(sent)
	}
	var r reader
	reply := Reply{
		Verdict: r.verdict(list[0]), Limit: r.number(list[1], -1), Remaining: r.number(list[2], -1),
		Wait: r.time(list[3]), Reset: r.time(list[4]), Granted: None,
	}
	if len(list) == 6 {
		reply.Granted = r.number(list[5], 0)
	}
	if r.isWrong {
		return Report{}, unreadable(sent)
	}
	return Report{Reply: reply, Key: q.key()}, nil
}

// readFull reads the reply to FULL. A reply about one key does not name it.
func readFull(sent any, q *question) (Report, error) {
	var r reader
	all := r.fields(sent)
	reply := Reply{Verdict: r.verdict(all["verdict"]), Wait: r.time(all["wait_ms"]), Granted: None}
	report := Report{Reply: reply, Key: r.text(all["key"], q.key())}
	if granted, ranged := all["granted"]; ranged {
		report.Granted = r.number(granted, 0)
	}
	rules, isList := all["rules"].([]any)
	if !isList {
		r.isWrong = true
	}
	for _, one := range rules {
		rule := r.fields(one)
		report.Rules = append(report.Rules, RuleReport{
			Rule: r.text(rule["rule"], ""), Name: r.text(rule["name"], ""), Key: r.text(rule["key"], q.key()),
			Cost: r.number(rule["cost"], 0), Denies: r.number(rule["verdict"], 0) != 0, Shadow: r.number(rule["shadow"], 0) != 0,
			Limit: r.number(rule["limit"], 0), Quota: r.number(rule["quota"], 0), Remaining: r.number(rule["remaining"], 0),
			Period: r.time(rule["period_ms"]), Wait: r.time(rule["wait_ms"]), Next: r.time(rule["next_ms"]), Reset: r.time(rule["reset_ms"]),
		})
	}
	if r.isWrong {
		return Report{}, unreadable(sent)
	}
	return report.whole(), nil
}
