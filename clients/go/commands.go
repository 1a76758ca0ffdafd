package ratelimit

import (
	"cmp"
	"context"
	"time"
)

// Settle ends a hold, on the server or in this process: as charged, at a real cost (Cost, Costs), or with Refund giving
// all back. false: there was none. RL.SETTLE.
func (l *Limiter) Settle(ctx context.Context, key, id string, options ...Option) (bool, error) {
	q, err := settlement(key, id, options)
	if err != nil {
		return false, err
	}
	return l.settle(ctx, key, id, q)
}

func settlement(key, id string, options []Option) (*question, error) {
	q := &question{limits: []Limit{{key, []string{"-"}}}}
	err := cmp.Or(q.with(options), testText("the id of the hold", id))
	if q.cost.kind == rangeCost {
		err = misuse("the real cost is a range, expected one number")
	}
	return q, err
}

func (l *Limiter) settle(ctx context.Context, key, id string, how *question) (bool, error) {
	words := how.cost.append(appendIf([]any{"RL.SETTLE", key, id}, how.refund, "REFUND"))
	local := func() bool { return l.estimate.settle(key, id, how) }
	return l.either(ctx, key, local, true, words)
}

// Renew moves a hold's end to ttl from now, wherever the hold was taken. false: there was none. RL.RENEW.
func (l *Limiter) Renew(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	if err := cmp.Or(testText("the key", key), testTime("the ttl", ttl, false)); err != nil {
		return false, err
	}
	local := func() bool { return l.estimate.renew(key, id, ttl) }
	return l.either(ctx, key, local, true, []any{"RL.RENEW", key, id, "PX", ms(ttl)})
}

// Refund gives units back to the states of these rules, or without rules to all. It returns the largest number that one
// state got back. RL.REFUND.
func (l *Limiter) Refund(ctx context.Context, key string, units int64, rules ...string) (int64, error) {
	if err := testUnits("the number of units", units); err != nil {
		return 0, err
	}
	if l.servers == nil {
		return l.estimate.refund(key, units, rules), testText("the key", key)
	}
	return l.number(ctx, key, mostUnits, appendTexts([]any{"RL.REFUND", key, units}, rules)...)
}

// Reset forgets what was consumed. Blocks, exemptions and the history stay. false: there was nothing. RL.RESET.
func (l *Limiter) Reset(ctx context.Context, key string) (bool, error) {
	had := l.estimate.reset(key)
	return l.flag(ctx, key, had, "RL.RESET", key)
}

// Pause denies every check of the key for this time. A pause that lasts longer stays. It returns the time that is left.
// Under OutageLocal this process keeps the pause if the server gives no answer. RL.PAUSE.
func (l *Limiter) Pause(ctx context.Context, key string, time time.Duration, reason string) (time.Duration, error) {
	if err := cmp.Or(testText("the key", key), testTime("the pause", time, false)); err != nil {
		return 0, err
	}
	local := l.estimate.pause(key, time)
	if l.servers == nil {
		return local, nil
	}
	words := appendIf([]any{"RL.PAUSE", key, "PX", ms(time)}, reason != "", "REASON", reason)
	sent, err := l.send(ctx, key, words, false)
	if IsOutage(err) && l.Outage == OutageLocal {
		return local, nil
	}
	var r reader
	left := r.time(sent)
	if err == nil && r.err != nil {
		err = unreadable(sent)
	}
	return left, err
}

// Resume ends a pause. false: there was none. RL.RESUME.
func (l *Limiter) Resume(ctx context.Context, key string) (bool, error) {
	was := l.estimate.resume(key)
	return l.flag(ctx, key, was, "RL.RESUME", key)
}

// Plan binds a policy to the key, for this time, or with 0 until Unplan: rules such as "@plan:free" then stand for that
// policy. RL.PLAN.
func (l *Limiter) Plan(ctx context.Context, key, policy string, time time.Duration) error {
	err := cmp.Or(testText("the key", key), testText("the policy", policy), testTime("the time of the plan", time, true))
	if err == nil {
		l.denials.forget(key)
		defer l.denials.forget(key)
		_, err = l.send(ctx, key, appendIf([]any{"RL.PLAN", key, policy}, time > 0, "PX", ms(time)), false)
	}
	return err
}

// Unplan forgets the plan of the key. false: there was none. RL.UNPLAN.
func (l *Limiter) Unplan(ctx context.Context, key string) (bool, error) {
	return l.flag(ctx, key, false, "RL.UNPLAN", key)
}

// Sync lowers the remaining units of a rule to this number, and never raises them. It returns the units consumed for
// that. RL.SYNC.
func (l *Limiter) Sync(ctx context.Context, key string, remaining int64, rule string) (int64, error) {
	if err := cmp.Or(testUnits("what remains", remaining), testText("the rule", rule)); err != nil {
		return 0, err
	}
	return l.number(ctx, key, mostUnits, "RL.SYNC", key, "REMAINING", remaining, rule)
}

// Call sends any other command, such as RL.INFO, to the node of this key.
func (l *Limiter) Call(ctx context.Context, key string, command string, words ...any) (any, error) {
	return l.send(ctx, key, append([]any{command}, words...), false)
}

// either asks where a hold was taken: this process, or else the server.
func (l *Limiter) either(ctx context.Context, key string, local func() bool, repeatable bool, words []any) (bool, error) {
	if found := local(); found || l.servers == nil {
		return found, nil
	}
	l.denials.forget(key)
	defer l.denials.forget(key)
	sent, err := l.send(ctx, key, words, repeatable)
	var found int64
	if err == nil {
		found, err = readNumber(sent, 1)
		l.tellWrong(err)
	}
	return found == 1, err
}

// flag sends a command that replies 1 or 0. Remembered denials of the key no longer hold. Replies to older checks may
// arrive in between.
func (l *Limiter) flag(ctx context.Context, key string, local bool, words ...any) (bool, error) {
	if l.servers == nil && words[0] != "RL.UNPLAN" {
		return local, testText("the key", key)
	}
	found, err := l.number(ctx, key, 1, words...)
	return found == 1, err
}

func (l *Limiter) number(ctx context.Context, key string, most int64, words ...any) (int64, error) {
	if err := testText("the key", key); err != nil {
		return 0, err
	}
	l.denials.forget(key)
	defer l.denials.forget(key)
	sent, err := l.send(ctx, key, words, false)
	if err != nil {
		return 0, err
	}
	found, err := readNumber(sent, most)
	l.tellWrong(err)
	return found, err
}
