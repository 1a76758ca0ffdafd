package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/sync/semaphore"
)

// Outage is what a check answers if the server gives no decision.
type Outage uint8

// The answers of a check without a decision.
const (
	OutageRaise Outage = iota // an OutageError
	OutageAllow               // it passes
	OutageDeny                // it is denied, with a wait of one second
	OutageLocal               // an estimate in this process decides
)

// Engine is who decides.
type Engine uint8

// The engines. Each has its own counts.
const (
	Module Engine = iota
	Script        // a script, for servers that load no module
)

// Options are those of a limiter. The zero value has the defaults.
type Options struct {
	// Outage is what a check answers if the server gives no decision. Errors of a wrong request are always returned.
	Outage Outage
	// Timeout is how long a request may take once it has its place, with connecting: 250 ms by default.
	Timeout time.Duration
	// Concurrency is how many requests may be under way at once, by default the PoolSize of the client, in which each
	// needs a connection. A wait takes no place.
	Concurrency int
	// QueueTimeout is how long a request may wait for its place: 5 s by default. After that it gets ErrSaturated.
	QueueTimeout time.Duration
	// Processes is the number of processes that share each limit: 1 by default. The estimate keeps to its part.
	Processes int
	// Policies are the rules of each policy for the estimate, in which others limit nothing.
	Policies map[string][]string
	// OnOutage is called when a node goes away, and when it is back. By default the log has a warning.
	OnOutage func(OutageEvent)
	// OnMisconfigured is called when the server answers but does not limit: at once, and then each minute while that
	// lasts. By default the log has an error.
	OnMisconfigured func(MisconfiguredEvent)
	// OnDecision is called after each check.
	OnDecision func(DecisionEvent)
	// Separately lets CheckAll ask key by key, not atomically, and give back what it took if one denies: in a cluster,
	// keys in different slots cannot be decided at once.
	Separately bool
	// RememberDenials is how many denials by a rate to remember: the limiter repeats them until their waits are over.
	RememberDenials int
	// Engine is who decides: by default the module.
	Engine Engine
	// Logger is slog.Default by default.
	Logger *slog.Logger
}

// Limiter has rate limits that the module redis-ratelimit decides, for all processes together. It is safe for
// concurrent use.
type Limiter struct {
	o        Options
	places   *semaphore.Weighted
	servers  *servers // nil: the limiter is in the process
	estimate *estimate
	denials  *denials
	settler  settler
	outages  atomic.Uint64

	ctx  context.Context
	end  context.CancelCauseFunc
	work sync.WaitGroup

	mu     sync.Mutex
	told   map[string]time.Time // when each misconfiguration was told, by its advice
	untold uint64
}

// New makes a limiter on a go-redis client: of a server, of a cluster, or of sentinels. It uses a client of its own, with
// the same options, that sends no check twice. A client of sentinels is still asked for the primary: close it later than
// the limiter. A redis.Ring is refused: its keys move when a server is away.
func New(client redis.UniversalClient, options Options) (*Limiter, error) {
	switch client := client.(type) {
	case *redis.Client:
		return newLimiter(client.Options(), nil, false, options)
	case *redis.ClusterClient:
		return newLimiter(ofNodes(client.Options()), client.Options().Addrs, true, options)
	}
	return nil, misuse("the client is a %T, expected a *redis.Client or a *redis.ClusterClient: a Ring moves keys", client)
}

// FromURL connects to redis://, rediss://, unix:// or redis+cluster://, when it is first asked.
func FromURL(url string, options Options) (*Limiter, error) {
	scheme, rest, _ := strings.Cut(url, "://")
	if plain, isCluster := strings.CutSuffix(scheme, "+cluster"); isCluster {
		cluster, err := redis.ParseClusterURL(plain + "://" + rest)
		if err != nil {
			return nil, misuse("%w", err)
		}
		return newLimiter(ofNodes(cluster), cluster.Addrs, true, options)
	}
	server, err := redis.ParseURL(url)
	if err != nil {
		return nil, misuse("%w", err)
	}
	return newLimiter(server, nil, false, options)
}

// InProcess makes a limiter that asks no server: the estimate in this process decides. It serves tests.
func InProcess(policies map[string][]string) (*Limiter, error) {
	return newLimiter(nil, nil, false, Options{Policies: policies})
}

// ofNodes are the options of a cluster for each of its nodes: fields have the same names.
func ofNodes(cluster *redis.ClusterOptions) *redis.Options {
	node := new(redis.Options)
	from, to := reflect.ValueOf(cluster).Elem(), reflect.ValueOf(node).Elem()
	for at := range from.NumField() {
		field := from.Type().Field(at)
		if same := to.FieldByName(field.Name); field.IsExported() && same.IsValid() && same.Type() == field.Type {
			same.Set(from.Field(at))
		}
	}
	return node
}

func newLimiter(server *redis.Options, seeds []string, isCluster bool, options Options) (*Limiter, error) {
	local, err := newEstimate(max(1, options.Processes), options.Policies)
	if err = cmp.Or(options.test(), err); err != nil {
		return nil, err
	}
	l := &Limiter{o: options, estimate: local, denials: newDenials(options.RememberDenials)}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	l.settler.l, l.told = l, make(map[string]time.Time)
	l.o.Timeout = cmp.Or(options.Timeout, 250*time.Millisecond)
	l.o.QueueTimeout = cmp.Or(options.QueueTimeout, 5*time.Second)
	l.o.Logger = cmp.Or(options.Logger, slog.Default())
	if options.OnOutage == nil {
		l.o.OnOutage = func(e OutageEvent) {
			l.o.Logger.Warn("a node went away, or is back", "away", e.Away, "node", e.Node, "error", e.Err, "answered", e.Answered)
		}
	}
	if options.OnMisconfigured == nil {
		l.o.OnMisconfigured = func(e MisconfiguredEvent) {
			l.o.Logger.Error("the server does not limit", "advice", e.Advice, "answered", e.Answered)
		}
	}
	if server == nil {
		return l, nil
	}
	own := *server
	l.o.Concurrency = cmp.Or(options.Concurrency, own.PoolSize, 10*runtime.GOMAXPROCS(0))
	l.bounds(&own)
	l.places = semaphore.NewWeighted(int64(l.o.Concurrency))
	l.servers = &servers{l: l, options: &own, isCluster: isCluster, seeds: seeds, known: make(map[string]*node)}
	if !isCluster {
		l.servers.one = l.servers.named("", own.Addr)
	}
	return l, nil
}

// bounds sets what the limiter itself decides: it bounds each request, and go-redis sends nothing twice.
func (l *Limiter) bounds(own *redis.Options) {
	own.MaxRetries, own.DialerRetries = -1, 1
	own.ContextTimeoutEnabled, own.ReadTimeout, own.WriteTimeout = true, -1, -1
	own.DialTimeout, own.PoolTimeout = 2*l.o.Timeout, l.o.Timeout // the limiter's own end of dialing comes first
	own.ConnMaxIdleTime, own.MinIdleConns, own.MaxIdleConns, own.MaxActiveConns = idleMost, 0, 0, 0
	own.Protocol, own.PipelinePoolSize = 2, -1
	own.Limiter, own.ClientSideCache, own.ClientSideCacheConfig = nil, nil, nil
	if own.Dialer == nil {
		own.Dialer = redis.NewDialer(own)
	}
	own.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

func (o *Options) test() error {
	if o.Outage > OutageLocal || o.Engine > Script || min(o.Concurrency, o.Processes, o.RememberDenials) < 0 {
		return misuse("the options are %+v, expected constants of this package, and no number below 0", o)
	}
	return cmp.Or(testTime("Timeout", o.Timeout, true), testTime("QueueTimeout", o.QueueTimeout, true))
}

// Away tells whether a node is away, and so not asked.
func (l *Limiter) Away() bool {
	return l.servers != nil && slices.ContainsFunc(l.servers.nodes(), func(n *node) bool { return n.away() != nil })
}

// Outages is how many checks got no decision from the server.
func (l *Limiter) Outages() uint64 { return l.outages.Load() }

// Unsettled is how many holds were given up that an outage kept from being settled: they ended after their time.
func (l *Limiter) Unsettled() uint64 { return l.settler.dropped.Load() }

// Close ends all that the limiter does. Holds and leases that are not settled end after their times.
func (l *Limiter) Close() error {
	l.mu.Lock()
	l.end(ErrClosed)
	l.mu.Unlock()
	l.work.Wait()
	l.settler.close()
	return nil
}

// background runs work that Close waits for.
func (l *Limiter) background(work func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() == nil {
		l.work.Go(work)
	}
}

// sleep sleeps, at most until the end of the context.
func sleep(ctx context.Context, most time.Duration) error {
	if most > 0 {
		timer := time.NewTimer(most)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// OutageEvent says that a node went away, so that nothing asks it, or that it is back.
type OutageEvent struct {
	Away     bool   // it went away, else it is back
	Node     string // its address
	Err      error  // what happened when it went away
	Answered uint64 // how many checks got no decision meanwhile
}

// MisconfiguredEvent says that the server answers but does not limit.
type MisconfiguredEvent struct {
	Err      error  // its text may have keys and rules in it
	Advice   string // what to do about it
	Answered uint64 // how many checks got no decision because of this since the last event
}

// DecisionEvent says how a check was answered. It has neither its key nor its cost.
type DecisionEvent struct {
	Source  Source        // who decided
	Verdict Verdict       // whether the request passes
	Rule    string        // after a denial the rule that denies, or the only rule: its name, or else its text
	Took    time.Duration // since the check was asked for
}

// tell calls a listener. Its panic ends no request, and is logged.
func tell[E any](l *Limiter, listener func(E), event E) {
	defer func() {
		if failed := recover(); failed != nil {
			l.o.Logger.Error("a listener panicked", "panic", failed, "stack", string(debug.Stack()))
		}
	}()
	listener(event)
}

// tellWrong reports an outage that lasts until somebody changes the configuration of the server or the client.
func (l *Limiter) tellWrong(err error) {
	if err == nil {
		return
	}
	var outage *OutageError
	if !errors.As(err, &outage) || outage.Advice == "" {
		return
	}
	l.mu.Lock()
	answered, isDue := l.untold, time.Since(l.told[outage.Advice]) >= time.Minute
	l.untold++
	if isDue {
		l.told[outage.Advice], l.untold = time.Now(), 1
	}
	l.mu.Unlock()
	if isDue {
		tell(l, l.o.OnMisconfigured, MisconfiguredEvent{outage.Err, outage.Advice, answered})
	}
}

// decided tells of a decision. After a denial the report may say which rule denies.
func (l *Limiter) decided(q *question, report Report, since time.Duration) {
	if l.o.OnDecision == nil || q.peeks {
		return
	}
	names := report.violated()
	if rules := q.limits[0].Rules; len(q.limits) == 1 && len(rules) == 1 {
		names = append(names, cmp.Or(nameIn(rules[0]), rules[0]))
	}
	tell(l, l.o.OnDecision, DecisionEvent{report.Source, report.Verdict, append(names, "")[0], clock() - since})
}
