package ratelimit

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// brief is how long to remember a denial that may end at any time: a block, a pause, an endless wait, or one under a
// plan, which the customer may change.
const brief = time.Second

// denials are those that the limiter remembers until their wait is over. nil remembers nothing.
type denials struct {
	mu    sync.Mutex
	found *lru[denial]
	keys  *lru[*bool] // whether what a key has denied still holds
}

type denial struct {
	report       Report
	since, until time.Duration
	holds        *bool
}

func newDenials(most int) *denials {
	if most == 0 {
		return nil
	}
	return &denials{found: newLRU(most, func(denial) {}), keys: newLRU(most, func(holds *bool) { *holds = false })}
}

// what is asked. "": nothing that can be remembered, since it may repeat a hold.
func (d *denials) what(q *question) string {
	if d == nil || q.ttl > 0 || q.peeks || q.waits || q.any {
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
	now := clock()
	if !found || now >= known.until || !*known.holds {
		d.found.drop(what)
		return Report{}, false
	}
	return known.report.later(now - known.since), true
}

// keep remembers a denial. `since` is when the server was asked: no denial is remembered too long.
func (d *denials) keep(what string, q *question, report Report, since time.Duration) {
	if what == "" || report.Allowed() || report.Source != Server || endsEarly(q, report) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	holds, found := d.keys.get(report.Key)
	if !found {
		holds = new(bool)
		*holds = true
		d.keys.put(report.Key, holds)
	}
	d.found.put(what, denial{report, since, since + lasts(q, report), holds})
}

// forget forgets the denials of a key that something frees.
func (d *denials) forget(key string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if holds, found := d.keys.get(key); found {
		*holds = false
		d.keys.drop(key)
	}
}

// lasts is for how long a denial is remembered.
func lasts(q *question, report Report) time.Duration {
	byRate := slices.ContainsFunc(report.Rules, func(rule RuleReport) bool { return rule.Denies && rule.Wait == report.Wait })
	if report.short != nil {
		byRate = report.short.Limit > 0
	}
	switch {
	case report.Wait < 0:
		return brief
	case report.Verdict == Limited && byRate && !q.hasRule(isPlan):
		return report.Wait
	}
	return min(report.Wait, brief)
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
