package main

import (
	"encoding/hex"
	"fmt"
	"math"
	"time"

	ratelimit "github.com/redis-ratelimit/redis-ratelimit/clients/go"
)

// call is a line of JSON.
type call map[string]any

func wrong(what string, given any) cannot { return cannot(fmt.Sprintf("%s, not %v", what, given)) }

func asText(given any) string {
	if bytes, ok := given.(map[string]any); ok && bytes["is"] == "bytes" {
		decoded, err := hex.DecodeString(bytes["hex"].(string))
		if err == nil {
			return string(decoded)
		}
	}
	text, ok := given.(string)
	if !ok {
		panic(wrong("a string", given))
	}
	return text
}

func asInt(given any) int64 {
	number, ok := given.(float64)
	if !ok || number != math.Trunc(number) {
		panic(wrong("an int64", given))
	}
	return int64(number)
}

func asTime(given any) time.Duration {
	number, ok := given.(float64)
	if !ok {
		panic(wrong("a time.Duration", given))
	}
	return time.Duration(number * float64(time.Millisecond))
}

func asTexts(given any) []string {
	list, ok := given.([]any)
	if !ok {
		panic(wrong("a []string", given))
	}
	texts := []string{}
	for _, one := range list {
		texts = append(texts, asText(one))
	}
	return texts
}

func asRules(given any) []string {
	if text, ok := given.(string); ok {
		return []string{text}
	}
	return asTexts(given)
}

func (c call) key() string                    { return asText(c["key"]) }
func (c call) text(name string) string        { return asText(c[name]) }
func (c call) units(name string) int64        { return asInt(c[name]) }
func (c call) time(name string) time.Duration { return asTime(c[name]) }
func (c call) rules() []string                { return asRules(c["rules"]) }

func (c call) texts(name string) map[string]string {
	texts := map[string]string{}
	given, _ := c[name].(map[string]any)
	for field, text := range given {
		texts[field] = asText(text)
	}
	return texts
}

func (c call) limits() (limits []ratelimit.Limit) {
	for _, pair := range c["limits"].([]any) {
		limits = append(limits, ratelimit.Limit{Key: asText(pair.([]any)[0]), Rules: asRules(pair.([]any)[1])})
	}
	return limits
}

func (c call) cost() ratelimit.Option {
	switch given := c["cost"].(type) {
	case []any:
		return ratelimit.CostRange(asInt(given[0]), asInt(given[1]))
	case map[string]any:
		if given["is"] != nil {
			panic(wrong("a cost", given))
		}
		costs := map[string]int64{}
		for name, units := range given {
			costs[name] = asInt(units)
		}
		return ratelimit.Costs(costs)
	}
	return ratelimit.Cost(asInt(c["cost"]))
}

func (c call) options() (options []ratelimit.Option) {
	if c["cost"] != nil {
		options = append(options, c.cost())
	}
	if c["meta"] != nil {
		options = append(options, ratelimit.Meta(c.text("meta")))
	}
	if c["own_id"] != nil {
		options = append(options, ratelimit.HoldID(c.text("own_id")))
	}
	if c["flow"] != nil {
		weight := int64(1)
		if c["weight"] != nil {
			weight = c.units("weight")
		}
		options = append(options, ratelimit.Flow(c.text("flow"), int(weight)))
	}
	if c["priority"] != nil {
		options = append(options, ratelimit.Priority(int(c.units("priority"))))
	}
	if c["most"] == true {
		options = append(options, ratelimit.Most())
	}
	if c["refund"] == true {
		options = append(options, ratelimit.Refund())
	}
	return options
}

// above0 is a number for which 0 is the default of an option.
func above0(given any) any {
	if given == float64(0) {
		panic(cannot("0 is the default"))
	}
	return given
}

func (c call) limiterOptions() (o ratelimit.Options) {
	given, _ := c["options"].(map[string]any)
	for name, value := range given {
		switch name {
		case "outage":
			modes := map[any]ratelimit.Outage{"raise": ratelimit.OutageRaise, "allow": ratelimit.OutageAllow, "deny": ratelimit.OutageDeny, "local": ratelimit.OutageLocal}
			mode, known := modes[value]
			if !known {
				panic(wrong("an Outage", value))
			}
			o.Outage = mode
		case "engine":
			if value != "module" && value != "script" {
				panic(wrong("an Engine", value))
			}
			if value == "script" {
				o.Engine = ratelimit.Script
			}
		case "timeout_ms":
			o.Timeout = asTime(above0(value))
		case "queue_timeout_ms":
			o.QueueTimeout = asTime(above0(value))
		case "concurrency":
			o.Concurrency = int(asInt(above0(value)))
		case "processes":
			o.Processes = int(asInt(above0(value)))
		case "remember_denials":
			o.RememberDenials = int(asInt(value))
		case "separately":
			o.Separately = value.(bool)
		case "policies":
			o.Policies = map[string][]string{}
			for policy, rules := range value.(map[string]any) {
				o.Policies[policy] = asRules(rules)
			}
		default:
			panic(cannot("there is no option " + name))
		}
	}
	tell := func(event string, line map[string]any) {
		line["event"], line["limiter"] = event, c["limiter"]
		write(line)
	}
	o.OnOutage = func(e ratelimit.OutageEvent) {
		tell("outage", map[string]any{"away": e.Away, "node": e.Node, "error": fmt.Sprint(e.Err), "answered": e.Answered})
	}
	o.OnMisconfigured = func(e ratelimit.MisconfiguredEvent) {
		tell("misconfigured", map[string]any{"error": fmt.Sprint(e.Err), "advice": e.Advice, "answered": e.Answered})
	}
	o.OnDecision = func(e ratelimit.DecisionEvent) {
		tell("decision", map[string]any{"source": e.Source.String(), "verdict": e.Verdict.String(), "rule": e.Rule, "ms": float64(e.Took) / 1e6})
	}
	return o
}
