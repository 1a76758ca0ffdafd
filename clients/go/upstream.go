package ratelimit

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The statuses by which an upstream asks its callers to come later. 403 does so only with Retry-After, or if it says
// that nothing remains.
var refusals = []int{http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable, 529}

// Follow does what the answer of an upstream, a service that others use too, says about its limits: a 429, 503 or 529
// pauses the key, and so does a 403 with Retry-After or with nothing left; and a field that says how many units remain
// lowers the rule to that number: fields has the rule of each such field. A pause lasts as long as Retry-After says, or
// until the reset of the limit that is used up, at most 366 days. Follow returns what is left of the pause, or 0. Fields
// that make no sense change nothing. An outage is no error: other processes learn the limits from their own answers.
func (l *Limiter) Follow(ctx context.Context, key string, answer *http.Response, fields map[string]string) (time.Duration, error) {
	if err := cmp.Or(l.needModule("follow"), testText("the key", key)); err != nil {
		return 0, err
	}
	var paused time.Duration
	if pause := pauseOf(answer.StatusCode, answer.Header, time.Now()); pause > 0 {
		var err error
		if paused, err = l.Pause(ctx, key, pause, strconv.Itoa(answer.StatusCode)); err != nil {
			return 0, unlessOutage(err)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		left, found := unitsLeft(joined(answer.Header, field))
		if !found {
			continue
		}
		rule := fields[field]
		known, err := l.PeekAll(ctx, key, []string{rule})
		if err == nil && slices.ContainsFunc(known.Rules, func(r RuleReport) bool { return r.Remaining > left }) {
			_, err = l.Sync(ctx, key, left, rule)
		}
		if err != nil {
			return paused, unlessOutage(err)
		}
	}
	return paused, nil
}

func unlessOutage(err error) error {
	if IsOutage(err) {
		return nil
	}
	return err
}

// joined are the fields of a name.
func joined(header http.Header, name string) string { return strings.Join(header.Values(name), ", ") }

// pauseOf is how long no caller should ask.
func pauseOf(status int, header http.Header, now time.Time) time.Duration {
	if !slices.Contains(refusals, status) {
		return 0
	}
	if date, err := readDate(joined(header, "Date")); err == nil {
		now = date
	}
	pause, found := retryAfter(joined(header, "Retry-After"), now)
	if !found && (status == http.StatusTooManyRequests || status == http.StatusForbidden) {
		pause = resetOf(header, now, status == http.StatusForbidden)
	}
	if pause > longest {
		return 0
	}
	return max(0, pause)
}

// retryAfter reads seconds, or a date.
func retryAfter(text string, now time.Time) (time.Duration, bool) {
	if seconds, found := readSeconds(text); found {
		return seconds, true
	}
	date, err := readDate(text)
	return date.Sub(now), err == nil
}

// resetOf is when the limits that are used up have units again.
func resetOf(header http.Header, now time.Time, needsNone bool) time.Duration {
	if limits := items(joined(header, "RateLimit")); len(limits) > 0 {
		var latest time.Duration
		for _, limit := range limits {
			if limit.remaining == 0 {
				latest = max(latest, limit.reset)
			}
		}
		return latest
	}
	for _, prefix := range []string{"RateLimit-", "X-RateLimit-"} {
		reset, found := readSeconds(joined(header, prefix+"Reset"))
		if !found {
			continue
		}
		remaining, said := whole(strings.TrimSpace(joined(header, prefix+"Remaining")))
		if said && remaining > 0 || !said && needsNone {
			return 0
		}
		if reset > longest { // a Unix time
			reset -= time.Duration(now.UnixNano())
		}
		return reset
	}
	return 0
}

// unitsLeft is what a field says remains: a number, or the least r= of a RateLimit.
func unitsLeft(text string) (least int64, found bool) {
	if number, isNumber := whole(strings.TrimSpace(text)); isNumber {
		return number, true
	}
	for _, item := range items(text) {
		if item.remaining >= 0 && (!found || item.remaining < least) {
			least, found = item.remaining, true
		}
	}
	return least, found
}

// item is one of `RateLimit: "name";r=12;t=30`: what remains, and the time until more does.
type item struct {
	remaining int64 // -1: not said
	reset     time.Duration
}

var quotes = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

func items(text string) (found []item) {
	for one := range strings.SplitSeq(quotes.ReplaceAllString(text, ""), ",") {
		read, said := item{remaining: -1}, false
		parameters := strings.Split(one, ";")[1:]
		for _, parameter := range parameters {
			name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
			number, isNumber := whole(value)
			if !isNumber {
				continue
			}
			switch name {
			case "r":
				read.remaining, said = number, true
			case "t":
				read.reset = time.Duration(min(number, int64(longest/time.Second)+1)) * time.Second
			}
		}
		if said {
			found = append(found, read)
		}
	}
	return found
}

var seconds = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]*)?$`)

// readSeconds reads seconds, perhaps with a fraction. They may be a Unix time.
func readSeconds(text string) (time.Duration, bool) {
	text = strings.TrimSpace(text)
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || !seconds.MatchString(text) || number > 9e9 {
		return 0, false
	}
	return time.Duration(number * float64(time.Second)), true
}

// whole reads a number of at most twelve digits.
func whole(text string) (int64, bool) {
	number, err := strconv.ParseInt(text, 10, 64)
	return number, err == nil && len(text) <= 12 && text[0] >= '0'
}

// readDate reads one of the three forms of RFC 9110, 5.6.7, or the first with an offset of zero.
func readDate(text string) (time.Time, error) {
	text = strings.TrimSpace(text)
	if start, found := strings.CutSuffix(text, "+0000"); found {
		text = start + "GMT"
	}
	return http.ParseTime(text)
}
