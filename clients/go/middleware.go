package ratelimit

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
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
	if (options.Limits == nil) == (options.Rules == nil) {
		return nil, misuse("the middleware has both or none of Rules and Limits, expected one")
	}
	for _, text := range options.Rules {
		_, err := readRule(text)
		if strings.HasPrefix(text, "@") {
			err = nil
		}
		if err = cmp.Or(err, l.knows(text)); err != nil {
			return nil, err
		}
	}
	if options.Prefix < 0 || options.Prefix > 128 || options.Count > CountSuccessful || options.Headers > HeadersNone {
		return nil, misuse("Prefix is %d, Count %d, Headers %d, expected a prefix up to 128 and constants of this package",
			options.Prefix, options.Count, options.Headers)
	}
	if options.Refuse == nil {
		options.Refuse = refuse
	}
	return func(next http.Handler) http.Handler {
		return &limited{l: l, o: options, next: next}
	}, testCount(options.Rules, options.Count)
}

type limited struct {
	l      *Limiter
	o      HTTP
	next   http.Handler
	warned sync.Once
}

func (m *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limits, err := m.limits(r)
	if err == nil && len(limits) == 0 {
		m.next.ServeHTTP(w, r)
		return
	}
	var options []Option
	if m.o.Cost != nil {
		options = append(options, m.o.Cost(r))
	}
	var charge *Charge
	if err == nil {
		charge, err = m.l.Charge(r.Context(), limits, m.o.Count, options...)
	}
	if err != nil {
		m.failed(w, r, err)
		return
	}
	report := charge.Report
	for _, field := range m.o.Headers.Fields(report) {
		if strings.HasPrefix(field.Name, "RateLimit") {
			w.Header().Add(field.Name, field.Value) // an outer middleware may have added fields for other rules
		} else {
			w.Header().Set(field.Name, field.Value)
		}
	}
	if !report.Allowed() {
		m.o.Refuse(w, r, Refusal{statusOf(report), report, nil})
		return
	}
	seen := &statusWriter{ResponseWriter: w, status: http.StatusInternalServerError} // of a panic
	defer func() { charge.Done(r.Context(), seen.status >= http.StatusBadRequest) }()
	if atTurn(r.Context(), report.Wait) == nil {
		m.next.ServeHTTP(seen, r.WithContext(context.WithValue(r.Context(), reportKey{}, report)))
		seen.end()
	}
}

func (m *limited) limits(r *http.Request) ([]Limit, error) {
	if m.o.Skip != nil && m.o.Skip(r) {
		return nil, nil
	}
	if m.o.Limits != nil {
		return m.o.Limits(r)
	}
	if m.o.Key != nil {
		return []Limit{{m.o.Key(r), m.o.Rules}}, nil
	}
	address := r.RemoteAddr
	if address == "" || address == "@" {
		address = ""
		m.warned.Do(func() {
			m.l.log().Warn("requests carry no address of their clients, which share the limit of ip:unknown: set Key")
		})
	}
	return []Limit{{"ip:" + Network(address, cmp.Or(m.o.Prefix, 64)), m.o.Rules}}, nil
}

// failed answers a request that got no decision. The log has the error; the client learns nothing of it.
func (m *limited) failed(w http.ResponseWriter, r *http.Request, err error) {
	refusal := Refusal{Status: http.StatusInternalServerError, Err: err}
	switch {
	case isEnd(err): // the client has gone
		refusal.Status = http.StatusServiceUnavailable
	case isUndecided(err):
		refusal.Status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
		if !m.l.Away() { // the limiter tells once that a node is away
			m.l.log().Warn("a request is refused: there is no decision", "error", err)
		}
	default:
		m.l.log().Error("a request cannot be checked", "error", err)
	}
	m.o.Refuse(w, r, refusal)
}

func statusOf(report Report) int {
	switch {
	case report.Source == NoServer:
		return http.StatusServiceUnavailable
	case report.Verdict == Blocked:
		return http.StatusForbidden
	}
	return http.StatusTooManyRequests
}

// problem is one of RFC 9457.
type problem struct {
	Type     string   `json:"type,omitempty"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies,omitempty"`
}

func refuse(w http.ResponseWriter, _ *http.Request, why Refusal) {
	body := problem{Title: http.StatusText(why.Status), Status: why.Status}
	if why.Status == http.StatusTooManyRequests {
		body.Type, body.Title = "https://iana.org/assignments/http-problem-types#quota-exceeded", "Too many requests"
		body.Violated = why.Report.violated()
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(why.Status)
	_ = json.NewEncoder(w).Encode(body)
}

// statusWriter remembers the status. http.ResponseController finds by Unwrap what the writer can do.
type statusWriter struct {
	http.ResponseWriter
	status int
	wrote  bool
}

func (w *statusWriter) WriteHeader(status int) {
	if !w.wrote && status >= http.StatusOK {
		w.status, w.wrote = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

// end says that the handler has returned. Without a word the status is 200.
func (w *statusWriter) end() {
	if !w.wrote {
		w.status = http.StatusOK
	}
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is for handlers that look for an http.Flusher.
func (w *statusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
