package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrSaturated says that this process asks for more at once than Options.Concurrency allows, so that a request
	// found no place within Options.QueueTimeout. It is no outage.
	ErrSaturated = errors.New("saturated: as many requests as Concurrency allows were under way for all of QueueTimeout")
	// ErrOutage is in the chain of every OutageError.
	ErrOutage = errors.New("the server gives no decision")
	// ErrClosed says that the limiter is closed.
	ErrClosed = errors.New("the limiter is closed")
)

// OutageError says that the server gave no decision: it is away, cannot serve now, or does not limit.
type OutageError struct {
	Node   string // the address
	Err    error  // what happened
	Advice string // what to do about a server that answers but does not limit

	unsent bool // nothing of the request was sent
}

func (e *OutageError) Error() string {
	return fmt.Sprintf("%v: %s: %v", ErrOutage, cmp.Or(e.Node, "server"), e.Err)
}

// Unwrap has ErrOutage and what happened.
func (e *OutageError) Unwrap() []error { return []error{ErrOutage, e.Err} }

// IsOutage tells whether an error means that the server gave no decision.
func IsOutage(err error) bool { return errors.Is(err, ErrOutage) }

// unsent is the error of a request that was not sent because its node is away.
func unsent(err error) error {
	if outage, ok := err.(*OutageError); ok {
		unsent := *outage
		unsent.unsent = true
		return &unsent
	}
	return err
}

func isUnsent(err error) bool {
	var outage *OutageError
	return errors.Is(err, ErrSaturated) || errors.As(err, &outage) && outage.unsent
}

// isUndecided tells whether the request was right, but got no decision.
func isUndecided(err error) bool { return IsOutage(err) || errors.Is(err, ErrSaturated) }

func unlessUndecided(err error) error {
	if isUndecided(err) {
		return nil
	}
	return err
}

// DeniedError says that a hold was denied.
type DeniedError struct {
	Report Report
}

func (e *DeniedError) Error() string {
	if e.Report.Wait < 0 {
		return e.Report.Verdict.String() + ", no wait helps"
	}
	return fmt.Sprintf("%v, wait %v", e.Report.Verdict, e.Report.Wait)
}

// What to do about a server that does not limit.
const (
	adviceModule = "load the module: loadmodule libredis_ratelimit.so, see INSTALL.md; or choose engine='script'"
	advicePass   = "give the client the password"
	adviceRights = "give the user the rights +@ratelimit ~keys, see SECURITY.md"
	adviceEval   = "give the user the rights +eval +evalsha +get +set +del +time ~keys, see clients.md"
	adviceShape  = "ask a server of a version that this package knows, with nothing between that changes its replies"
)

// Replies of a server that cannot serve now: by code, or by text if they have none.
var (
	codes = []string{
		"LOADING", "BUSY", "OOM", "MISCONF", "NOREPLICAS", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN",
		"UNBLOCKED",
	}
	texts = []string{maxClients, "internal error", "this replica skipped"}
)

const maxClients = "max number of clients"

// Commands that this package sends: an application may misspell any other. A missing right to a command that is no
// check says nothing about checks.
var (
	noModule = regexp.MustCompile("(?i)^unknown command ['`]RL\\." +
		`(M?CHECK|PEEK|WAIT|SETTLE|RENEW|REFUND|RESET|PAUSE|RESUME|SYNC|INFO)\b`)
	notACheck = regexp.MustCompile(`(?i)run the 'rl\.([a-z]+)`)
	checks    = []string{"check", "mcheck", "peek", "wait"}
)

// judged says what an error reply means: an OutageError, or the reply itself if only the request is wrong.
func judged(node string, reply error) error {
	text := strings.TrimPrefix(reply.Error(), "ERR ")
	code, _, _ := strings.Cut(text, " ")
	advice := ""
	switch {
	case slices.Contains(codes, code):
	case slices.ContainsFunc(texts, func(start string) bool { return strings.HasPrefix(text, start) }):
	case code == "NOAUTH", code == "WRONGPASS":
		advice = advicePass
	case code == "NOPERM":
		named := notACheck.FindStringSubmatch(text)
		if named != nil && !slices.Contains(checks, strings.ToLower(named[1])) {
			return reply
		}
		advice = adviceRights
		if strings.Contains(text, "run the 'eval") {
			advice = adviceEval
		}
	case noModule.MatchString(text):
		advice = adviceModule
	case code == "MOVED", code == "ASK":
		return misuse("%w: a node of a cluster needs a client of the cluster", reply)
	default:
		return reply
	}
	return &OutageError{Node: node, Err: reply, Advice: advice}
}

func hasCode(err error, wanted ...string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	code, _, _ := strings.Cut(reply.Error(), " ")
	return slices.Contains(wanted, code)
}
