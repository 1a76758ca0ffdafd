package ratelimit

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Headers are the fields that tell a client its limits, beside Retry-After.
type Headers uint8

// The choices of fields.
const (
	HeadersDraft11 Headers = iota // RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11
	HeadersLegacy                 // X-RateLimit-Limit, -Remaining and -Reset, in seconds from now
	HeadersNone
)

// Field is a header field.
type Field struct{ Name, Value string }

// Fields are those of a report, and Retry-After if the request was denied and may come again.
func (h Headers) Fields(report Report) (found []Field) {
	switch h {
	case HeadersDraft11:
		var policies, limits []string
		for _, rule := range report.Rules {
			if !rule.Shadow { // a rule on trial limits nobody
				policies, limits = append(policies, policyField(rule)), append(limits, limitField(rule))
			}
		}
		if len(policies) > 0 {
			found = []Field{
				{"RateLimit-Policy", strings.Join(policies, ", ")}, {"RateLimit", strings.Join(limits, ", ")},
			}
		}
	case HeadersLegacy:
		if rule := report.Deciding(); rule != nil {
			found = []Field{
				{"X-RateLimit-Limit", strconv.FormatInt(rule.Limit, 10)},
				{"X-RateLimit-Remaining", strconv.FormatInt(rule.Remaining, 10)},
			}
			if rule.Reset >= 0 {
				found = append(found, Field{"X-RateLimit-Reset", wholeSeconds(rule.Reset)})
			}
		}
	}
	if !report.Allowed() && report.Wait >= 0 {
		found = append(found, Field{"Retry-After", wholeSeconds(report.Wait)})
	}
	return found
}

func policyField(rule RuleReport) string {
	text := fmt.Sprintf("%s;q=%d", quoted(rule.Label()), rule.Quota)
	if rule.Period == 0 {
		return text + `;qu="concurrent-requests"`
	}
	if rule.Period%time.Second == 0 {
		return text + fmt.Sprintf(";w=%d", rule.Period/time.Second)
	}
	return text
}

// limitField has the time until more units remain, unless nothing is consumed or no wait helps.
func limitField(rule RuleReport) string {
	until := rule.Next
	if rule.Denies {
		until = rule.Wait
	}
	text := fmt.Sprintf("%s;r=%d", quoted(rule.Label()), rule.Remaining)
	if until > 0 {
		return text + ";t=" + wholeSeconds(until)
	}
	return text
}

// wholeSeconds are rounded up: a client that waits that long is not too early.
func wholeSeconds(t time.Duration) string {
	return strconv.FormatInt(int64((t+time.Second-1)/time.Second), 10)
}

// quoted is a string of a structured field, which is also a string of JSON.
func quoted(name string) string {
	var text strings.Builder
	for _, char := range name {
		if char == '"' || char == '\\' {
			text.WriteByte('\\')
		}
		if char >= ' ' && char <= '~' {
			text.WriteRune(char)
		}
	}
	return `"` + text.String() + `"`
}
