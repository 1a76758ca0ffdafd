package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrMisuse is in the chain of every error about a wrong value. Nothing was sent or counted.
	ErrMisuse = errors.New("misuse")
	// ErrSaturated says that this process asks for more at once than Options.Concurrency allows, so that a request
	// found no place within Options.QueueTimeout. It is no outage.
	ErrSaturated = errors.New("saturated: as many requests as Concurrency allows were under way for all of QueueTimeout")
	// ErrOutage is in the chain of every OutageError.
	ErrOutage = errors.New("the server gives no decision")
	// ErrClosed says that the limiter is closed.
	ErrClosed = errors.New("the limiter is closed")
)

func misuse(format string, given ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMisuse}, given...)...)
}

// OutageError says that the server gave no decision: it is away, cannot serve now, or does not limit.
type OutageError struct {
	Node   string // the address
	Err    error  // what happened
	Advice string // what to do about a server that answers but does not limit
}

// Error names the node and what happened.
func (e *OutageError) Error() string {
	return fmt.Sprintf("%v: %s: %v", ErrOutage, cmp.Or(e.Node, "server"), e.Err)
}

// Unwrap has ErrOutage and what happened.
func (e *OutageError) Unwrap() []error { return []error{ErrOutage, e.Err} }

// IsOutage tells whether an error means that the server gave no decision.
func IsOutage(err error) bool { return errors.Is(err, ErrOutage) }

// isUndecided tells whether the request was right, but got no decision.
func isUndecided(err error) bool { return IsOutage(err) || errors.Is(err, ErrSaturated) }

// isEnd tells whether a context ended a request.
func isEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// unless is the error, but none of this kind.
func unless(is func(error) bool, err error) error {
	if is(err) {
		return nil
	}
	return err
}

// DeniedError says that a hold was denied, and has the Report of that.
type DeniedError struct{ Report Report }

// Error names the verdict and the wait.
func (e *DeniedError) Error() string {
	return fmt.Sprintf("%v, wait %v (below 0: no wait helps)", e.Report.Verdict, e.Report.Wait)
}

const (
	adviceRights = "give the user the rights +@ratelimit ~keys, see SECURITY.md"
	adviceShape  = "ask a server of a version that this package knows, with nothing between that changes its replies"
)

// judgements are of error replies, the first that fits: the server cannot serve now; or it does not limit, and the advice
// says what to do. A reply that is a fault, or that none fits, is of a wrong request. The commands are those that this
// package sends: an application may misspell any other. A missing right to a command that is no check says nothing about
// checks.
var judgements = []struct {
	pattern *regexp.Regexp
	advice  string
	isFault bool
}{
	{regexp.MustCompile(`^(LOADING|BUSY|OOM|MISCONF|NOREPLICAS|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|UNBLOCKED) ` +
		`|^ERR (max number of clients|internal error|this replica skipped)`), "", false},
	{regexp.MustCompile(`^(NOAUTH|WRONGPASS) `), "give the client the password", false},
	{regexp.MustCompile(`^NOPERM .*run the 'eval`),
		"give the user the rights +eval +evalsha +get +set +del +time ~keys, see clients.md", false},
	{regexp.MustCompile(`(?i)^NOPERM .*run the 'rl\.(m?check|peek|wait)'`), adviceRights, false},
	{regexp.MustCompile(`(?i)^NOPERM .*run the 'rl\.`), "", true},
	{regexp.MustCompile(`^NOPERM `), adviceRights, false},
	{regexp.MustCompile(`^(MOVED|ASK) `), "connect to the whole cluster: redis+cluster://, or a redis.ClusterClient", false},
	{regexp.MustCompile("(?i)^ERR unknown command ['`]RL\\.(M?CHECK|PEEK|WAIT|SETTLE|RENEW|REFUND|RESET|PAUSE|RESUME|SYNC|INFO)\\b"),
		"load the module: loadmodule libredis_ratelimit.so, see INSTALL.md; or choose engine='script'", false},
}

// judged says what an error reply means: an OutageError, or the reply itself if only the request is wrong.
func judged(node string, reply error) error {
	for _, one := range judgements {
		if one.pattern.MatchString(reply.Error()) {
			if one.isFault {
				return reply
			}
			return &OutageError{node, reply, one.advice}
		}
	}
	return reply
}

// isReply tells whether an error is a reply of the server.
func isReply(err error) bool { return says(err, "") }

// says tells whether an error reply begins with one of these.
func says(err error, starts ...string) bool {
	var reply redis.Error
	return errors.As(err, &reply) && slices.ContainsFunc(starts, func(start string) bool { return strings.HasPrefix(reply.Error(), start) })
}

// isClosedDoor tells whether the server lets this client not in.
func isClosedDoor(err error) bool { return says(err, "WRONGPASS ", "ERR max number of clients") }
