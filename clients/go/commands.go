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

// Settle ends a hold, on the server or in this process: as charged, at a real cost (Cost, Costs), or with Refund giving
// all back. false: there was none. RL.SETTLE.
func (l *Limiter) Settle(ctx context.Context, key, id string, options ...Option) (bool, error) {
	how, err := settlement(options)
	if err = cmp.Or(err, testHold(key, id)); err != nil {
		return false, err
	}
	return l.settle(ctx, key, id, how)
}

// settlement is how a hold ends.
func settlement(options []Option) (*question, error) {
	how := new(question)
	for _, option := range options {
		option(how)
	}
	if how.cost.isRange {
		return nil, misuse("the real cost is a range, expected one number")
	}
	return how, how.cost.test()
}

func (l *Limiter) settle(ctx context.Context, key, id string, how *question) (bool, error) {
	words := append(appendIf([]any{"RL.SETTLE", key, id}, how.refund, "REFUND"), how.cost.words...)
	return l.flag(ctx, l.estimate.settle(key, id, how), words...)
}

// Renew moves a hold's end to ttl from now, wherever the hold was taken. false: there was none. RL.RENEW.
func (l *Limiter) Renew(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	if err := cmp.Or(testHold(key, id), testTime("the ttl", ttl, false)); err != nil {
		return false, err
	}
	return l.flag(ctx, l.estimate.renew(key, id, ttl), "RL.RENEW", key, id, "PX", ms(ttl))
}

// Refund gives units back to the states of these rules, or without rules to all. It returns the largest number that one
// state got back. RL.REFUND.
func (l *Limiter) Refund(ctx context.Context, key string, units int64, rules ...string) (int64, error) {
	wrong := testUnits("the number of units", units)
	if l.servers == nil && wrong == nil {
		return l.estimate.refund(key, units, rules), testText("the key", key)
	}
	return l.number(ctx, wrong, mostUnits, appendTexts([]any{"RL.REFUND", key, units}, rules)...)
}

// Reset forgets what was consumed. Blocks, exemptions and the history stay. false: there was nothing. RL.RESET.
func (l *Limiter) Reset(ctx context.Context, key string) (bool, error) {
	had := l.estimate.forget(key, false)
	return l.flag(ctx, had && l.servers == nil, "RL.RESET", key)
}

// Pause denies every check of the key for this time. A pause that lasts longer stays. It returns the time that is left.
// Under OutageLocal this process keeps the pause if the server gives no answer. RL.PAUSE.
func (l *Limiter) Pause(ctx context.Context, key string, most time.Duration, reason string) (time.Duration, error) {
	if err := cmp.Or(testText("the key", key), testTime("the pause", most, false)); err != nil {
		return 0, err
	}
	local := l.estimate.pause(key, most)
	words := appendIf([]any{"RL.PAUSE", key, "PX", ms(most)}, reason != "", "REASON", reason)
	left, err := l.number(ctx, nil, int64(longest), words...)
	if l.servers == nil || IsOutage(err) && l.o.Outage == OutageLocal {
		return local, nil
	}
	return milliseconds(left), err
}

// Resume ends a pause. false: there was none. RL.RESUME.
func (l *Limiter) Resume(ctx context.Context, key string) (bool, error) {
	was := l.estimate.forget(key, true)
	return l.flag(ctx, was && l.servers == nil, "RL.RESUME", key)
}

// Plan binds a policy to the key, for this time, or with 0 until Unplan: rules such as "@plan:free" then stand for that
// policy. RL.PLAN.
func (l *Limiter) Plan(ctx context.Context, key, policy string, most time.Duration) error {
	wrong := cmp.Or(testText("the policy", policy), testTime("the time of the plan", most, true))
	_, err := l.freeing(ctx, wrong, appendIf([]any{"RL.PLAN", key, policy}, most > 0, "PX", ms(most)))
	return err
}

// Unplan forgets the plan of the key. false: there was none. RL.UNPLAN.
func (l *Limiter) Unplan(ctx context.Context, key string) (bool, error) {
	found, err := l.number(ctx, nil, 1, "RL.UNPLAN", key)
	return found == 1, err
}

// Sync lowers the remaining units of a rule to this number, and never raises them. It returns the units consumed for
// that. RL.SYNC.
func (l *Limiter) Sync(ctx context.Context, key string, remaining int64, rule string) (int64, error) {
	wrong := cmp.Or(testUnits("what remains", remaining), testText("the rule", rule))
	return l.number(ctx, wrong, mostUnits, "RL.SYNC", key, "REMAINING", remaining, rule)
}

// Call sends any other command, such as RL.INFO, to the node of this key. The reply is that of RESP2: a map is a list.
func (l *Limiter) Call(ctx context.Context, key string, command string, words ...any) (any, error) {
	return l.send(ctx, key, append([]any{command}, words...), false)
}

// flag sends a command that replies 1 or 0, unless this process has `done` it.
func (l *Limiter) flag(ctx context.Context, done bool, words ...any) (bool, error) {
	if done || l.servers == nil {
		return done, testText("the key", words[1].(string))
	}
	found, err := l.number(ctx, nil, 1, words...)
	return found == 1, err
}

// number sends a command that replies a number.
func (l *Limiter) number(ctx context.Context, wrong error, most int64, words ...any) (int64, error) {
	sent, err := l.freeing(ctx, wrong, words)
	if err != nil {
		return 0, err
	}
	var r reader
	found := r.number(sent, 0)
	if r.isWrong || found > most {
		err = unreadable(sent)
		l.tellWrong(err)
	}
	return found, err
}

// freeing sends a command about a key, its second word, unless a value is `wrong`. Remembered denials of the key no longer
// hold then. Replies to older checks may arrive in between.
func (l *Limiter) freeing(ctx context.Context, wrong error, words []any) (any, error) {
	key := words[1].(string)
	if err := cmp.Or(wrong, testText("the key", key)); err != nil {
		return nil, err
	}
	l.denials.forget(key)
	defer l.denials.forget(key)
	return l.send(ctx, key, words, words[0] == "RL.SETTLE" || words[0] == "RL.RENEW")
}

// Follow does what the answer of an upstream, a service that others use too, says about its limits: a 429, 503 or 529
// pauses the key, and so does a 403 with Retry-After or with nothing left; and a field that says how many units remain
// lowers the rule to that number: fields has the rule of each such field. A pause lasts as long as Retry-After says, or
// until the reset of the limit that is used up, at most 366 days. Follow returns what is left of the pause, or 0. Fields
// that make no sense change nothing. An outage is no error: other processes learn the limits from their own answers.
func (l *Limiter) Follow(ctx context.Context, key string, answer *http.Response, fields map[string]string) (paused time.Duration, err error) {
	if err := cmp.Or(l.needModule("follow"), testText("the key", key)); err != nil {
		return 0, err
	}
	if pause := pauseOf(answer.StatusCode, answer.Header, time.Now()); pause > 0 {
		paused, err = l.Pause(ctx, key, pause, strconv.Itoa(answer.StatusCode))
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if left, said := unitsLeft(joined(answer.Header, field)); said && err == nil {
			err = l.lower(ctx, key, left, fields[field])
		}
	}
	return paused, unless(IsOutage, err)
}

// lower lowers what remains of a rule, if more does.
func (l *Limiter) lower(ctx context.Context, key string, left int64, rule string) error {
	known, err := l.PeekAll(ctx, key, []string{rule})
	if err == nil && slices.ContainsFunc(known.Rules, func(r RuleReport) bool { return r.Remaining > left }) {
		_, err = l.Sync(ctx, key, left, rule)
	}
	return err
}

// joined are the fields of a name.
func joined(header http.Header, name string) string {
	return strings.TrimSpace(strings.Join(header.Values(name), ", "))
}

// pauseOf is how long no caller should ask.
func pauseOf(status int, header http.Header, now time.Time) time.Duration {
	isForbidden := status == http.StatusForbidden
	isRefused := isForbidden || status == http.StatusTooManyRequests
	if date, err := readDate(joined(header, "Date")); err == nil {
		now = date
	}
	text := joined(header, "Retry-After")
	pause, said := readSeconds(text)
	if date, err := readDate(text); err == nil {
		pause, said = date.Sub(now), true
	}
	if !said && isRefused {
		pause = resetOf(header, now, isForbidden)
	}
	if pause > longest || !isRefused && status != http.StatusServiceUnavailable && status != 529 {
		return 0
	}
	return max(0, pause)
}

// resetOf is when the limits that are used up have units again. needsNone: the answer must say that nothing remains.
func resetOf(header http.Header, now time.Time, needsNone bool) (latest time.Duration) {
	limits := items(joined(header, "RateLimit"))
	for _, limit := range limits {
		if limit["r"] == 0 {
			latest = max(latest, time.Duration(min(limit["t"], mostUnits))*time.Second)
		}
	}
	for _, prefix := range []string{"RateLimit-", "X-RateLimit-"} {
		reset, found := readSeconds(joined(header, prefix+"Reset"))
		remaining, said := whole(joined(header, prefix+"Remaining"))
		if len(limits) > 0 || !found || said && remaining > 0 || !said && needsNone {
			continue
		}
		if reset > longest { // a Unix time
			reset -= time.Duration(now.UnixNano())
		}
		return reset
	}
	return latest
}

// unitsLeft is what a field says remains: a number, or the least r= of a RateLimit.
func unitsLeft(text string) (least int64, said bool) {
	least, said = whole(text)
	for _, item := range items(text) {
		if !said || item["r"] < least {
			least, said = item["r"], true
		}
	}
	return least, said
}

var (
	quotes    = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	parameter = regexp.MustCompile(`;\s*([rt])=([0-9]{1,12})\s*(?:;|$)`)
	seconds   = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]*)?$`)
)

// items are those of `RateLimit: "name";r=12;t=30` that say what remains (r), and the seconds until more does (t).
func items(text string) (found []map[string]int64) {
	for one := range strings.SplitSeq(quotes.ReplaceAllString(text, ""), ",") {
		item := make(map[string]int64)
		for _, parts := range parameter.FindAllStringSubmatch(strings.ReplaceAll(one, ";", ";;"), -1) {
			item[parts[1]], _ = whole(parts[2])
		}
		if _, said := item["r"]; said {
			found = append(found, item)
		}
	}
	return found
}

// readSeconds reads seconds, perhaps with a fraction. They may be a Unix time.
func readSeconds(text string) (time.Duration, bool) {
	number, err := strconv.ParseFloat(text, 64)
	return time.Duration(min(number, 9e9) * float64(time.Second)), err == nil && seconds.MatchString(text)
}

// whole reads a number of at most twelve digits.
func whole(text string) (int64, bool) {
	number, err := strconv.ParseInt(text, 10, 64)
	return number, err == nil && len(text) <= 12 && text[0] >= '0'
}

// readDate reads one of the three forms of RFC 9110, 5.6.7, or the first with an offset of zero.
func readDate(text string) (time.Time, error) {
	if start, found := strings.CutSuffix(text, "+0000"); found {
		text = start + "GMT"
	}
	return http.ParseTime(text)
}
