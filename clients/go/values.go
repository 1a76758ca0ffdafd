package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Bounds of the server.
const (
	mostUnits = 1_000_000_000
	longest   = 366 * 24 * time.Hour
)

// ErrMisuse is in the chain of every error about a wrong value. Nothing was sent or counted.
var ErrMisuse = errors.New("misuse")

func misuse(format string, given ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMisuse}, given...)...)
}

func testRules(rules []string) error {
	if len(rules) == 0 || slices.Contains(rules, "") {
		return misuse("the rules are %q, expected one text or more, such as 5/15m", rules)
	}
	return nil
}

func testLimit(key string, rules []string) error {
	return cmp.Or(testText("the key", key), testRules(rules))
}

func testText(what, text string) error {
	if text == "" {
		return misuse("%s is empty, expected a text", what)
	}
	return nil
}

func testUnits(what string, units int64) error {
	if units < 0 || units > mostUnits {
		return misuse("%s is %d, expected 0 to %d", what, units, mostUnits)
	}
	return nil
}

// testTime refuses a time below 0, or 0 where that means nothing.
func testTime(what string, time time.Duration, from0 bool) error {
	if time < 0 || time == 0 && !from0 || time > longest {
		return misuse("%s is %v, expected more than 0 and at most 366 days", what, time)
	}
	return nil
}

// ms is a time in whole milliseconds, rounded up.
func ms(t time.Duration) int64 {
	return int64((t + time.Millisecond - 1) / time.Millisecond)
}
