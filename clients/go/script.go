package ratelimit

import (
	"cmp"
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// The script of clients/script, which a test compares: a module of Go has no files of other folders.
//
//go:embed ratelimit.lua
var script string

var digest = sync.OnceValue(func() string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
})

// The commands that the script answers, with the same integers as the module. It stores its state under the key with
// ":script" appended.
var scripted = map[string]string{"RL.CHECK": "CHECK", "RL.PEEK": "PEEK", "RL.REFUND": "REFUND", "RL.RESET": "RESET"}

// beyond are words that the script does not know.
var beyond = regexp.MustCompile(`^(FULL|HOLD|META)$|^(@).|^(\d+\.\.)\d+$|^(slots):|,(ban|keep)=`)

// needModule refuses what the script cannot do.
func (l *Limiter) needModule(what string) error {
	if l.Engine == Module {
		return nil
	}
	return misuse("%s needs the module, but the engine is 'script'", what)
}

// sendScript sends the words that ask the script instead of the module.
func (l *Limiter) sendScript(ctx context.Context, words []any) (any, error) {
	command, known := scripted[strings.ToUpper(fmt.Sprint(words[0]))]
	if !known {
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
	if hasCode(err, "NOSCRIPT") {
		asked[0], asked[1] = "EVAL", script
		sent, err = l.sendTo(ctx, key, asked, command == "PEEK")
	}
	return sent, err
}

// knows refuses a rule or an option that the engine does not have.
func (l *Limiter) knows(word string) error {
	found := beyond.FindStringSubmatch(word)
	if found == nil {
		return nil
	}
	what := found[1]
	switch {
	case found[2] != "":
		what = "the policy '" + word + "'"
	case found[3] != "":
		what = "a range of costs"
	case found[1] == "":
		what = cmp.Or(found[4], found[5]) + " in the rule '" + word + "'"
	}
	return l.needModule(what)
}

// scriptReport is the report on the rule that decides. The five integers identify it only by its limit. If several rules
// share that limit, this takes the one with the shortest period that is not below the reset. Next is an upper bound.
func scriptReport(reply Reply, q *question) (Report, error) {
	report := Report{Verdict: reply.Verdict, Wait: reply.Wait, Key: q.key(), Granted: None}
	var decides *rule
	late := func(r *rule) bool { return r.period < reply.Reset }
	for _, text := range q.limits[0].Rules {
		one, err := readRule(text)
		if err != nil {
			return report, err
		}
		fits := !one.shadow && one.most == reply.Limit
		if fits && (decides == nil || late(decides) && !late(one) || late(decides) == late(one) && one.period < decides.period) {
			decides = one
		}
	}
	if decides == nil {
		return report, nil
	}
	told := RuleReport{
		Rule: decides.text, Name: decides.name, Key: q.key(), Cost: q.cost.of(decides), Denies: !reply.Allowed(),
		Limit: reply.Limit, Quota: decides.limit, Period: decides.period, Remaining: reply.Remaining,
		Next: reply.Reset, Reset: reply.Reset,
	}
	if told.Denies {
		told.Wait = reply.Wait
		if reply.Wait >= 0 {
			told.Next = reply.Wait
		}
	}
	report.Rules = []RuleReport{told}
	return report, nil
}

// charges are the rules that a check has charged, by their cost.
func charges(q *question) map[int64][]string {
	found := make(map[int64][]string)
	for _, text := range q.limits[0].Rules {
		if one, err := readRule(text); err == nil && q.cost.of(one) > 0 {
			found[q.cost.of(one)] = append(found[q.cost.of(one)], text)
		}
	}
	return found
}
