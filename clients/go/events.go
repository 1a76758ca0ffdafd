package ratelimit

import (
	"cmp"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// again is how often a misconfiguration is told while it lasts.
const again = time.Minute

// OutageEvent says that a node went away, so that nothing asks it, or that it is back.
type OutageEvent struct {
	Away     bool
	Node     string // its address
	Err      error  // what happened when it went away
	Answered uint64 // how many checks got no decision meanwhile
}

// MisconfiguredEvent says that the server answers but does not limit.
type MisconfiguredEvent struct {
	Err      error // its text may have keys and rules in it
	Advice   string
	Answered uint64 // how many checks got no decision because of this since the last event
}

// DecisionEvent says how a check was answered. It has neither its key nor its cost.
type DecisionEvent struct {
	Source  Source
	Verdict Verdict
	Rule    string // after a denial the rule that denies, or the only rule: its name, or else its text
	Took    time.Duration
}

// told is what was told of misconfigurations.
type told struct {
	mu     sync.Mutex
	at     map[string]time.Time // by the advice
	untold uint64
}

// count counts an answer, and says how many there were since the last event, if the next one is due.
func (t *told) count(advice string) (answered uint64, isDue bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, before := t.at[advice]
	answered, isDue = t.untold, !before || time.Since(last) >= again
	t.untold++
	if isDue {
		t.at[advice], t.untold = time.Now(), 1
	}
	return answered, isDue
}

func (l *Limiter) tell(event OutageEvent) {
	switch {
	case l.OnOutage != nil:
		l.OnOutage(event)
	case event.Away:
		l.log().Warn("the server is away: nothing asks it until it answers a probe", "node", event.Node, "error", event.Err)
	default:
		l.log().Warn("the server is back", "node", event.Node, "answered", event.Answered)
	}
}

func (l *Limiter) log() *slog.Logger { return cmp.Or(l.Logger, slog.Default()) }

// tellWrong reports an outage that lasts until somebody changes the configuration of the server or the client.
func (l *Limiter) tellWrong(err error) {
	var outage *OutageError
	if !errors.As(err, &outage) || outage.Advice == "" {
		return
	}
	answered, isDue := l.told.count(outage.Advice)
	if !isDue {
		return
	}
	if l.OnMisconfigured != nil {
		l.OnMisconfigured(MisconfiguredEvent{outage.Err, outage.Advice, answered})
	} else {
		l.log().Error("the server does not limit", "node", outage.Node, "advice", outage.Advice, "answered", answered)
	}
}

// decided tells of a decision. After a denial the report may say which rule denies.
func (l *Limiter) decided(q *question, report Report, since time.Duration) {
	if l.OnDecision == nil || q.peeks {
		return
	}
	name := ""
	if len(q.limits) == 1 && len(q.limits[0].Rules) == 1 {
		name = cmp.Or(nameIn(q.limits[0].Rules[0]), q.limits[0].Rules[0])
	}
	if violated := report.violated(); !report.Allowed() && len(violated) > 0 {
		name = violated[0]
	}
	source := report.Source
	if report.short != nil {
		source = report.short.Source
	}
	l.OnDecision(DecisionEvent{source, report.Verdict, name, clock() - since})
}
