package ratelimit

import (
	"context"
	"slices"
	"strings"
	"time"
)

// separateTTL is how long the charge of one key can be given back: longer than the other keys take.
const separateTTL = 10 * time.Second

// apart asks key by key. Each key but the last is charged under a hold. If a later key denies or gets no decision,
// settling these holds gives everything back. If the request passes, they lapse, and the charges stand. The script
// knows no holds, so refunds give back the newest units.
func (l *Limiter) apart(ctx context.Context, q *question) (Report, error) {
	each, err := q.each()
	if err != nil {
		return Report{}, err
	}
	isGiven, id, all := q.ttl > 0, newID(), Report{Granted: None}
	for at, one := range each {
		if !isGiven && at < len(each)-1 && l.Engine == Module && !one.hasRule(isSlots) {
			one.id, one.ttl = id, separateTTL
		}
		report, err := l.askOnce(ctx, one)
		if err == nil && !isGiven {
			err = testCount(report.texts(), CountAll)
		}
		for at := range report.Rules {
			report.Rules[at].Key = one.key()
		}
		all.Rules = append(all.Rules, report.Rules...)
		if err != nil || !report.Allowed() {
			l.giveUp(one, err)
			l.takeBack(each[:at])
			report.Key, report.Rules = one.key(), all.Rules
			return report, err
		}
		if report.Wait >= all.Wait {
			all.Wait, all.Key = report.Wait, one.key()
		}
	}
	return all, nil
}

// takeBack gives back what the keys that let the request pass have consumed. A refund is sent only once: a second one
// could give back twice.
func (l *Limiter) takeBack(passed []*question) {
	for _, one := range passed {
		var err error
		if one.ttl > 0 {
			_, err = l.endHold(l.ctx, one.key(), one.id, one.ttl, &question{refund: true})
		} else {
			for units, rules := range charges(one) {
				_, err = l.Refund(l.ctx, one.key(), units, rules...)
			}
		}
		if err != nil && !isUndecided(err) {
			l.log().Error("a request that was denied stays charged", "error", err)
		}
	}
}

// each is the question about each key by itself. The server refuses a cost whose name no rule of the key has, so a key
// gets only the costs that name its rules. A key with a policy gets all: only the server knows the policy's rules. A
// cost that fits no key goes to all, and the server refuses it.
func (q *question) each() (found []*question, err error) {
	if q.cost.kind == rangeCost {
		return nil, misuse("a range of costs needs one decision over all keys, not Separately")
	}
	keys, takes := make(map[string]bool), func(limit Limit, name string) bool {
		return slices.ContainsFunc(limit.Rules, func(text string) bool {
			return strings.HasPrefix(text, "@") || nameIn(text) == name
		})
	}
	for _, limit := range q.limits {
		keys[limit.Key] = true
		one := *q
		one.limits, one.cost.named = []Limit{limit}, make(map[string]int64)
		for name, units := range q.cost.named {
			fits := slices.ContainsFunc(q.limits, func(other Limit) bool { return takes(other, name) })
			if name == "" || takes(limit, name) || !fits {
				one.cost.named[name] = units
			}
		}
		found = append(found, &one)
	}
	if len(keys) < len(q.limits) {
		return nil, misuse("a key is given twice, expected each key once")
	}
	return found, nil
}
