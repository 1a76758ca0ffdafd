package ratelimit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"time"
)

// HTTP are the options of a middleware. The zero value limits nothing: it needs Rules or Limits.
type HTTP struct {
	// Rules apply to each client.
	Rules []string
	// Key is the client's, by default "ip:" and the Network of the request's RemoteAddr. Behind a proxy that is the
	// proxy's: take the address from the field that your proxy sets.
	Key func(*http.Request) string
	// Limits are the keys and rules of a request, instead of Key and Rules. Without any the request passes.
	Limits func(*http.Request) ([]Limit, error)
	// Prefix is the length of an IPv6 network's prefix: 64 by default.
	Prefix int
	// Cost is what a request costs: Cost, CostRange or Costs.
	Cost func(*http.Request) Option
	// Skip lets requests pass that are not limited.
	Skip func(*http.Request) bool
	// Count says which requests count. A status of 400 and above has failed.
	Count Count
	// Headers are the fields that tell clients their limits.
	Headers Headers
	// Refuse answers requests that do not reach the handler, by default with a problem of RFC 9457.
	Refuse func(http.ResponseWriter, *http.Request, Refusal)
}

// Refusal is why a request does not reach the handler.
type Refusal struct {
	// Status is 429 if a rule denies, 403 if the key is blocked, 503 if nobody could decide, 500 if the request for a
	// decision was wrong.
	Status int
	Report Report // of a denial
	Err    error  // for the log, not for clients
}

type reportKey struct{}

// ReportOf is the report on a request that the middleware has let pass.
func ReportOf(ctx context.Context) (Report, bool) {
	report, found := ctx.Value(reportKey{}).(Report)
	return report, found
}

// Middleware limits the requests of any router that takes a func(http.Handler) http.Handler.
func (l *Limiter) Middleware(options HTTP) (func(http.Handler) http.Handler, error) {
	if (options.Limits == nil) == (len(options.Rules) == 0) {
		return nil, misuse("the middleware has both or none of Rules and Limits, expected one")
	}
	var wrong error
	for _, text := range options.Rules {
		_, err := readRule(strings.Replace(text, "@", "1/s,name=", 1)) // only the server can test a policy
		wrong = cmp.Or(wrong, err, l.knows(text), Report{Rules: []RuleReport{{Rule: text}}}.testCount(options.Count))
	}
	if options.Prefix < 0 || options.Prefix > 128 || options.Count > CountSuccessful || options.Headers > HeadersNone {
		wrong = misuse("the options are %+v, expected a prefix up to 128 and constants of this package", options)
	}
	if options.Key == nil {
		options.Key = func(r *http.Request) string { return "ip:" + Network(r.RemoteAddr, cmp.Or(options.Prefix, 64)) }
	}
	if options.Limits == nil {
		options.Limits = func(r *http.Request) ([]Limit, error) { return []Limit{{options.Key(r), options.Rules}}, nil }
	}
	if options.Cost == nil {
		options.Cost = func(*http.Request) Option { return func(*question) {} }
	}
	if options.Refuse == nil {
		options.Refuse = refuse
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.serve(&options, next, w, r) })
	}, wrong
}

func (l *Limiter) serve(o *HTTP, next http.Handler, w http.ResponseWriter, r *http.Request) {
	limits, err := o.Limits(r)
	if err == nil && len(limits) == 0 || o.Skip != nil && o.Skip(r) {
		next.ServeHTTP(w, r)
		return
	}
	var report Report
	var done func(failed bool)
	if err == nil {
		report, done, err = l.Charge(r.Context(), limits, o.Count, o.Cost(r))
	}
	if err != nil {
		o.Refuse(w, r, l.failed(w, err))
		return
	}
	for _, field := range o.Headers.Fields(report) {
		if !strings.HasPrefix(field.Name, "RateLimit") { // of which an outer middleware may have added some
			w.Header().Del(field.Name)
		}
		w.Header().Add(field.Name, field.Value)
	}
	status := http.StatusTooManyRequests
	if report.Source == NoServer {
		status = http.StatusServiceUnavailable
	} else if report.Verdict == Blocked {
		status = http.StatusForbidden
	}
	if !report.Allowed() {
		o.Refuse(w, r, Refusal{status, report, nil})
		return
	}
	failed := true
	defer func() { done(failed) }()
	if sleep(r.Context(), report.Wait) != nil { // until the turn that a leaky rule gives
		return
	}
	seen := &statusWriter{ResponseWriter: w}
	if o.Count != CountAll { // else the handler gets the writer as it is
		w = seen
	}
	next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), reportKey{}, report)))
	failed = seen.status >= http.StatusBadRequest
}

// failed is why a request gets no decision. The log has the error; the client learns nothing of it.
func (l *Limiter) failed(w http.ResponseWriter, err error) Refusal {
	switch {
	case isEnd(err): // the client has gone
	case !isUndecided(err):
		l.o.Logger.Error("a request cannot be checked", "error", err)
		return Refusal{Status: http.StatusInternalServerError, Err: err}
	case !l.Away(): // the limiter tells once that a node is away
		l.o.Logger.Warn("a request is refused: there is no decision", "error", err)
	}
	w.Header().Set("Retry-After", "1")
	return Refusal{Status: http.StatusServiceUnavailable, Err: err}
}

// refuse answers with a problem of RFC 9457.
func refuse(w http.ResponseWriter, _ *http.Request, why Refusal) {
	body := map[string]any{"title": http.StatusText(why.Status), "status": why.Status}
	if why.Status == http.StatusTooManyRequests {
		body["type"] = "https://iana.org/assignments/http-problem-types#quota-exceeded"
		body["violated-policies"] = why.Report.violated()
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(why.Status)
	_ = json.NewEncoder(w).Encode(body)
}

// statusWriter remembers the status. http.ResponseController finds by Unwrap what the writer can do.
type statusWriter struct {
	http.ResponseWriter
	status int // 0: the handler leaves it at 200
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status < http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is for handlers that look for an http.Flusher.
func (w *statusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Count says which requests count. If not all count, each check takes a hold while the request is served, for an hour at
// most. A request that does not count then gets its cost back. If the process dies, its requests count.
type Count uint8

// Which requests count.
const (
	CountAll Count = iota
	CountFailed
	CountSuccessful
)

// longestRequest is how long a request may take to answer and still get back what it cost.
const longestRequest = time.Hour

// testCount refuses rules that cannot be charged before it is known whether a request counts: slots, which a process
// that dies would keep; and a ban, which would outlast the charge that caused it.
func (r Report) testCount(count Count) error {
	for _, rule := range r.Rules {
		if isSlots(rule.Rule) {
			return misuse("the rules have '%s', expected others: slots are held, ask for them with Hold", rule.Rule)
		}
		if count != CountAll && strings.Contains(rule.Rule, ",ban=") {
			return misuse("the rule '%s' bans, expected another: a request that does not count would still be banned", rule.Rule)
		}
	}
	return nil
}

// Charge checks a request that may count or not, by its outcome: when that is known, the middleware says by `done`
// whether the request failed.
func (l *Limiter) Charge(ctx context.Context, limits []Limit, count Count, options ...Option) (report Report, done func(failed bool), err error) {
	q := &question{limits: limits, full: true}
	if count != CountAll {
		q.id, q.ttl, err = newID(), longestRequest, l.needModule("a count of failed or successful requests")
	}
	if err == nil {
		report, err = l.decide(ctx, q, options)
	}
	if err != nil && strings.Contains(err.Error(), " in the key already (") {
		l.o.Logger.Warn("a key has too many holds, see max-holds: a request counts whatever its answer")
		q.ttl = 0
		report, err = l.decide(ctx, q, options)
	}
	done = func(failed bool) {
		how := &question{refund: failed != (count == CountFailed)}
		for _, limit := range q.limits {
			if q.ttl > 0 && report.Allowed() && report.Source != NoServer {
				_, err := l.endHold(context.WithoutCancel(ctx), limit.Key, q.id, longestRequest, how)
				if unless(isUndecided, err) != nil {
					l.o.Logger.Error("a request that does not count stays charged", "error", err)
				}
			}
		}
	}
	if wrong := report.testCount(count); err == nil && wrong != nil {
		done(count == CountSuccessful)
		err = wrong
	}
	return report, done, err
}

// Headers are the fields that tell a client its limits, beside Retry-After.
type Headers uint8

// The choices of fields.
const (
	HeadersDraft11 Headers = iota // RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11
	HeadersLegacy                 // X-RateLimit-Limit, -Remaining and -Reset, in seconds from now
	HeadersNone
)

// Field is a header field: its Name as net/http writes it, and its Value.
type Field struct{ Name, Value string }

// Fields are those of a report, and Retry-After if the request was denied and may come again.
func (h Headers) Fields(report Report) (found []Field) {
	var policies, limits []string
	for _, rule := range report.Rules {
		policy, limit, until := fmt.Sprintf("%s;q=%d", quoted(rule.Label()), rule.Quota), "", rule.Next
		if rule.Period == 0 {
			policy += `;qu="concurrent-requests"`
		} else if rule.Period%time.Second == 0 {
			policy += fmt.Sprintf(";w=%d", rule.Period/time.Second)
		}
		if rule.Denies {
			until = rule.Wait
		}
		if until > 0 { // something is consumed, and a wait helps
			limit = ";t=" + wholeSeconds(until)
		}
		if !rule.Shadow { // a rule on trial limits nobody
			limit = fmt.Sprintf("%s;r=%d", quoted(rule.Label()), rule.Remaining) + limit
			policies, limits = append(policies, policy), append(limits, limit)
		}
	}
	switch rule := report.Deciding(); {
	case h == HeadersDraft11 && len(limits) > 0:
		found = []Field{{"RateLimit-Policy", strings.Join(policies, ", ")}, {"RateLimit", strings.Join(limits, ", ")}}
	case h == HeadersLegacy && rule != nil:
		found = []Field{{"X-RateLimit-Limit", fmt.Sprint(rule.Limit)}, {"X-RateLimit-Remaining", fmt.Sprint(rule.Remaining)}}
		if rule.Reset >= 0 {
			found = append(found, Field{"X-RateLimit-Reset", wholeSeconds(rule.Reset)})
		}
	}
	if !report.Allowed() && report.Wait >= 0 {
		found = append(found, Field{"Retry-After", wholeSeconds(report.Wait)})
	}
	return found
}

// wholeSeconds are rounded up: a client that waits that long is not too early.
func wholeSeconds(t time.Duration) string {
	return fmt.Sprint(int64((t + time.Second - 1) / time.Second))
}

// quoted is a string of a structured field, which is also a string of JSON.
func quoted(name string) string {
	return `"` + special.ReplaceAllString(unprintable.ReplaceAllString(name, ""), `\$0`) + `"`
}

var unprintable, special = regexp.MustCompile(`[^ -~]`), regexp.MustCompile(`["\\]`)

var (
	// The host of an address, which may have brackets and a port.
	hostPattern = regexp.MustCompile(`^(?:\[([^\[\]]+)\]|([^\[\]:]+))(?::\d{1,5})?$|^([^\[\]]+)$`)
	// Addresses of IPv6 that are translated from IPv4.
	translated = []netip.Prefix{netip.MustParsePrefix("::ffff:0:0:0/96"), netip.MustParsePrefix("64:ff9b::/96")}
)

// Network is whom to count at an address in text, with or without a port: an IPv4 address itself, also if it is mapped
// or translated to IPv6; of any other IPv6 address the network of this prefix, usually 64, since one client has all of
// its addresses. A text that is no address is returned as it is, and none as "unknown".
func Network(given string, prefix int) string {
	if given == "" || given == "@" {
		return "unknown"
	}
	host := strings.Join(append(hostPattern.FindStringSubmatch(given), "", "")[1:], "")
	address, err := netip.ParseAddr(host)
	if err != nil {
		return given
	}
	address = address.Unmap().WithZone("")
	for _, one := range translated {
		if bytes := address.As16(); one.Contains(address) {
			address = netip.AddrFrom4([4]byte(bytes[12:]))
		}
	}
	if address.Is4() {
		return address.String()
	}
	return netip.PrefixFrom(address, min(max(0, prefix), 128)).Masked().String()
}
