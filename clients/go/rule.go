package ratelimit

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// rule is one that was read. The server has the last word on rules; this is for the estimate and the script.
type rule struct {
	text   string
	kind   string
	name   string
	limit  int64 // in a period
	most   int64 // at once
	period time.Duration
	cost   int64 // -1: that of the request
	shadow bool
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
		return nil, unreadableRule(text)
	}
	r := &rule{text: text, kind: cmp.Or(parts[1], "log"), name: nameIn(text), cost: -1}
	number := func(digits string) int64 {
		found, _ := strconv.ParseInt(digits, 10, 64) // at most ten digits
		return found
	}
	r.limit = number(parts[2])
	r.most = r.limit
	if r.kind == "leaky" && r.limit > 0 {
		r.most = r.limit + 1
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
		return nil, unreadableRule(text)
	}
	r.period = unit * time.Duration(count)
	return r, nil
}

func unreadableRule(text string) error {
	return misuse("the rule '%s' cannot be read, expected [algorithm:]limit/period[,option...]", text)
}

// nameIn is what name= gives in a rule's text.
func nameIn(text string) string {
	_, after, _ := strings.Cut(text, ",name=")
	name, _, _ := strings.Cut(after, ",")
	return name
}
