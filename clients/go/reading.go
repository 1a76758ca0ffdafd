package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

var errShape = errors.New("another shape")

// unreadable is the error about a reply of another shape.
func unreadable(sent any) error { return &OutageError{Err: shapeError(sent), Advice: adviceShape} }

func shapeError(sent any) error { return fmt.Errorf("unreadable reply: %.100s", fmt.Sprint(sent)) }

// reader reads the parts of a reply. It keeps the first error.
type reader struct{ err error }

// number reads an integer, or one as decimal text, of at least this.
func (r *reader) number(sent any, least int64) (found int64) {
	err := errShape
	switch sent := sent.(type) {
	case int64:
		found, err = sent, nil
	case string:
		found, err = strconv.ParseInt(sent, 10, 64)
	}
	if err != nil || found < least {
		r.err = errShape
	}
	return found
}

// time reads milliseconds. The server's -1 is Never.
func (r *reader) time(sent any) time.Duration {
	ms := r.number(sent, -1)
	if ms < 0 {
		return Never
	}
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

func (r *reader) verdict(sent any) Verdict {
	found := r.number(sent, 0)
	if found > int64(Blocked) {
		r.err, found = errShape, 0
	}
	return Verdict(found)
}

func (r *reader) text(sent any, otherwise string) string {
	if sent == nil {
		return otherwise
	}
	text, ok := sent.(string)
	if !ok {
		r.err = errShape
	}
	return text
}

// fields reads a map, which RESP2 sends as a list.
func (r *reader) fields(sent any) map[string]any {
	found := make(map[string]any)
	list, isList := sent.([]any)
	both, isMap := sent.(map[any]any)
	if !isList && !isMap || len(list)%2 != 0 {
		r.err = errShape
		return found
	}
	for name, value := range both {
		found[fmt.Sprint(name)] = value
	}
	for at := 0; at < len(list); at += 2 {
		found[fmt.Sprint(list[at])] = list[at+1]
	}
	return found
}

// readNumber reads the only number of a reply.
func readNumber(sent any, most int64) (int64, error) {
	var r reader
	found := r.number(sent, 0)
	if r.err != nil || found > most {
		return 0, unreadable(sent)
	}
	return found, nil
}

// readShort reads five integers, and a sixth if a range was asked for.
func readShort(sent any, q *question) (Report, error) {
	list, _ := sent.([]any)
	if len(list) != 5 && q.cost.kind != rangeCost || len(list) != 6 && q.cost.kind == rangeCost {
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
	if r.err != nil {
		return Report{}, unreadable(sent)
	}
	return Report{Verdict: reply.Verdict, Wait: reply.Wait, Key: q.key(), Granted: reply.Granted, short: &reply}, nil
}

// readFull reads the reply to FULL. A reply about one key does not name it.
func readFull(sent any, q *question) (Report, error) {
	var r reader
	all := r.fields(sent)
	report := Report{Verdict: r.verdict(all["verdict"]), Wait: r.time(all["wait_ms"]), Key: r.text(all["key"], q.key()), Granted: None}
	if granted, ranged := all["granted"]; ranged {
		report.Granted = r.number(granted, 0)
	}
	rules, isList := all["rules"].([]any)
	if !isList {
		r.err = errShape
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
	if r.err != nil {
		return Report{}, unreadable(sent)
	}
	return report, nil
}
