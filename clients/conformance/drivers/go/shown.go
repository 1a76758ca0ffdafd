package main

import (
	"time"

	ratelimit "github.com/redis-ratelimit/redis-ratelimit/clients/go"
)

func ms(t time.Duration) int64 {
	if t < 0 {
		return -1
	}
	return int64((t + time.Millisecond - 1) / time.Millisecond)
}

func reply(r ratelimit.Reply, err error) (any, error) {
	line := map[string]any{
		"verdict": r.Verdict.String(), "limit": r.Limit, "remaining": r.Remaining, "wait_ms": ms(r.Wait),
		"reset_ms": ms(r.Reset), "source": r.Source.String(),
	}
	if r.Granted >= 0 {
		line["granted"] = r.Granted
	}
	return line, err
}

func reported(r ratelimit.Report, err error) (any, error) { return report(r), err }

func report(r ratelimit.Report) map[string]any {
	rules := []any{}
	for _, one := range r.Rules {
		line := map[string]any{
			"rule": one.Rule, "name": nil, "key": one.Key, "cost": one.Cost, "denies": one.Denies, "shadow": one.Shadow,
			"limit": one.Limit, "quota": one.Quota, "period_ms": ms(one.Period), "remaining": one.Remaining,
			"wait_ms": ms(one.Wait), "next_ms": ms(one.Next), "reset_ms": ms(one.Reset),
		}
		if one.Name != "" {
			line["name"] = one.Name
		}
		rules = append(rules, line)
	}
	line := map[string]any{
		"verdict": r.Verdict.String(), "wait_ms": ms(r.Wait), "key": r.Key, "rules": rules, "source": r.Source.String(),
	}
	if r.Granted >= 0 {
		line["granted"] = r.Granted
	}
	return line
}
