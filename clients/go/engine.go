package ratelimit

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The script of clients/script, which a test compares: a module of Go has no files of other folders.
//
//go:embed ratelimit.lua
var script string

var digest = sync.OnceValue(func() string { return redis.NewScript(script).Hash() })

// The commands that the script answers, with the same integers as the module. It stores its state under the key with
// ":script" appended.
var scripted = map[string]string{"RL.CHECK": "CHECK", "RL.PEEK": "PEEK", "RL.REFUND": "REFUND", "RL.RESET": "RESET"}

// beyond are words that the script does not know, by what they ask for.
var beyond = map[string]*regexp.Regexp{
	"$0":                    regexp.MustCompile(`^(?:FULL|HOLD|META)$`),
	"the policy '$0'":       regexp.MustCompile(`^@.+`),
	"a range of costs":      regexp.MustCompile(`^\d+\.\.\d+$`),
	"$1$2 in the rule '$0'": regexp.MustCompile(`^(?:(slots):|[^@]*?,(ban|keep)=).*`),
}

// needModule refuses what the script cannot do.
func (l *Limiter) needModule(what string) error {
	if l.o.Engine == Module {
		return nil
	}
	return misuse("%s needs the module, but the engine is 'script'", what)
}

// sendScript sends the words that ask the script instead of the module.
func (l *Limiter) sendScript(ctx context.Context, words []any) (any, error) {
	command, known := scripted[strings.ToUpper(fmt.Sprint(words[0]))]
	if !known || len(words) == 1 {
		return nil, l.needModule(fmt.Sprint(words[0]))
	}
	key := fmt.Sprint(words[1], ":script")
	asked := append([]any{"EVALSHA", digest(), 1, key, command}, words[2:]...)
	for _, word := range words[2:] {
		if err := l.knows(fmt.Sprint(word)); err != nil {
			return nil, err
		}
	}
	sent, err := l.sendTo(ctx, key, asked, command == "PEEK")
	if says(err, "NOSCRIPT ") {
		asked[0], asked[1] = "EVAL", script
		sent, err = l.sendTo(ctx, key, asked, command == "PEEK")
	}
	return sent, err
}

// knows refuses a rule or an option that the engine does not have.
func (l *Limiter) knows(word string) error {
	for what, pattern := range beyond {
		if pattern.MatchString(word) {
			return l.needModule(pattern.ReplaceAllString(word, what))
		}
	}
	return nil
}

// scriptReport is the report on the rule that decides. The five integers identify it only by its limit. If several rules
// share that limit, this takes the one with the shortest period that is not below the reset. Next is an upper bound.
func scriptReport(reply Reply, q *question) Report {
	report := Report{Reply: reply, Key: q.key()}
	var found *rule
	late := func(r *rule) bool { return r.period < reply.Reset }
	for _, one := range q.rules() {
		fits := !one.shadow && one.most == reply.Limit
		if fits && (found == nil || late(found) && !late(one) || late(found) == late(one) && one.period < found.period) {
			found = one
		}
	}
	if found == nil {
		return report
	}
	told := RuleReport{
		Rule: found.text, Name: found.name, Key: q.key(), Cost: q.cost.of(found), Denies: !reply.Allowed(), Limit: reply.Limit,
		Quota: found.limit, Period: found.period, Remaining: reply.Remaining, Next: reply.Reset, Reset: reply.Reset,
	}
	if told.Denies {
		told.Wait, told.Next = reply.Wait, cmp.Or(max(0, reply.Wait), reply.Reset)
	}
	report.Rules = []RuleReport{told}
	return report
}

// rules are those of the first key, as the script has accepted them.
func (q *question) rules() (found []*rule) {
	for _, text := range q.limits[0].Rules {
		if one, err := readRule(text); err == nil {
			found = append(found, one)
		}
	}
	return found
}

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
	isGiven, id, all := q.ttl > 0, newID(), Report{Reply: Reply{Granted: None}}
	for at, one := range each {
		if !isGiven && at < len(each)-1 && l.o.Engine == Module && !one.hasRule(isSlots) {
			one.id, one.ttl = id, separateTTL
		}
		report, err := l.askOnce(ctx, one)
		if err == nil && !isGiven {
			err = report.testCount(CountAll)
		}
		all.Rules = append(all.Rules, report.Rules...)
		if err != nil { // a silent server delays no answer
			l.giveUp(one, err)
			l.background(func() { l.takeBack(each[:at]) })
			return report, err
		}
		if !report.Allowed() {
			l.takeBack(each[:at])
			report.Rules = all.Rules
			return report, err
		}
		if report.Wait >= all.Wait {
			all.Wait, all.Key = report.Wait, one.key()
		}
	}
	return all.whole(), nil
}

// takeBack gives back what the keys that let the request pass have consumed. A refund is sent only once: a second one
// could give back twice.
func (l *Limiter) takeBack(passed []*question) {
	for _, one := range passed {
		var err error
		if one.ttl > 0 {
			_, err = l.endHold(l.ctx, one.key(), one.id, one.ttl, &question{refund: true})
		}
		for _, rule := range one.rules() {
			if units := one.cost.of(rule); units > 0 && one.ttl == 0 {
				_, failed := l.Refund(l.ctx, one.key(), units, rule.text)
				err = cmp.Or(err, failed)
			}
		}
		if err != nil && !isUndecided(err) {
			l.o.Logger.Error("a request that was denied stays charged", "error", err)
		}
	}
}

// each is the question about each key by itself. The server refuses a cost whose name no rule of the key has, so a key
// gets only the costs that name its rules. A key with a policy gets all: only the server knows the policy's rules. A
// cost that fits no key goes to all, and the server refuses it.
func (q *question) each() (found []*question, err error) {
	if q.cost.isRange {
		return nil, misuse("a range of costs needs one decision over all keys, not Separately")
	}
	keys := make(map[string]bool)
	for _, limit := range q.limits {
		keys[limit.Key] = true
		one := *q
		one.limits, one.cost.named = []Limit{limit}, make(map[string]int64)
		for name, units := range q.cost.named {
			takes := func(text string) bool { return strings.HasPrefix(text, "@") || nameIn(text) == name }
			if name == "" || one.hasRule(takes) || !q.hasRule(takes) {
				one.cost.named[name] = units
			}
		}
		if q.cost.named != nil {
			Costs(one.cost.named)(&one)
		}
		found = append(found, &one)
	}
	if len(keys) < len(q.limits) {
		return nil, misuse("a key is given twice, expected each key once")
	}
	return found, nil
}
