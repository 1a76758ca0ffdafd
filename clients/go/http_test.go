package ratelimit

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// ask asks a handler behind the middleware.
func askHTTP(t *testing.T, l *Limiter, options HTTP, handler http.HandlerFunc, request *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	limits, err := l.Middleware(options)
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	limits(handler).ServeHTTP(answer, request)
	return answer
}

func get() *http.Request { return httptest.NewRequest(http.MethodGet, "/", nil) }

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func fail(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }

func keyed(t *testing.T) func(*http.Request) string {
	return func(*http.Request) string { return t.Name() }
}

func TestADenialIs429WithFieldsAndAProblem(t *testing.T) {
	l := limiter(t, Options{})
	options := HTTP{Rules: []string{"1/d,name=day"}, Key: keyed(t)}
	first := askHTTP(t, l, options, func(w http.ResponseWriter, r *http.Request) {
		if report, found := ReportOf(r.Context()); !found || report.Rules[0].Name != "day" {
			t.Error(report, found)
		}
		hello(w, r)
	}, get())
	if first.Code != http.StatusOK || first.Header().Get("RateLimit-Policy") != `"day";q=1;w=86400` {
		t.Error(first.Code, first.Header())
	}
	denied := askHTTP(t, l, options, hello, get())
	var problem struct {
		Status   int
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal(denied.Body.Bytes(), &problem); err != nil || problem.Status != 429 || problem.Violated[0] != "day" {
		t.Error(err, denied.Body)
	}
	if denied.Code != 429 || denied.Header().Get("Retry-After") == "" || denied.Header().Get("Content-Type") != "application/problem+json" {
		t.Error(denied.Code, denied.Header())
	}
}

func TestABlockIs403(t *testing.T) {
	l := limiter(t, Options{})
	if _, err := l.Call(background, t.Name(), "RL.BLOCK", t.Name(), "EX", 60); err != nil {
		t.Fatal(err)
	}
	answer := askHTTP(t, l, HTTP{Rules: []string{"5/s"}, Key: keyed(t)}, hello, get())
	if answer.Code != http.StatusForbidden || answer.Header().Get("Retry-After") == "" {
		t.Error(answer.Code, answer.Header())
	}
}

func TestWithoutADecision(t *testing.T) {
	for outage, expected := range map[Outage]int{OutageRaise: 503, OutageAllow: 200, OutageDeny: 503, OutageLocal: 200} {
		l, err := FromURL("redis://"+dead(t), Options{Outage: outage, OnOutage: func(OutageEvent) {}})
		if err != nil {
			t.Fatal(err)
		}
		answer := askHTTP(t, l, HTTP{Rules: []string{"5/s"}}, hello, get())
		if answer.Code != expected || (expected == 503) != (answer.Header().Get("Retry-After") == "1") {
			t.Error(outage, answer.Code, answer.Header())
		}
		_ = l.Close()
	}
	l := limiter(t, Options{})
	wrong := HTTP{Limits: func(*http.Request) ([]Limit, error) { return []Limit{{"k", []string{"nonsense"}}}, nil }}
	if answer := askHTTP(t, l, wrong, hello, get()); answer.Code != 500 || strings.Contains(answer.Body.String(), "nonsense") {
		t.Error(answer.Code, answer.Body)
	}
	failing := HTTP{Limits: func(*http.Request) ([]Limit, error) { return nil, errors.New("no user") }}
	refused := failing
	refused.Refuse = func(w http.ResponseWriter, _ *http.Request, why Refusal) { w.WriteHeader(why.Status + 1) }
	if code := askHTTP(t, l, refused, hello, get()).Code; code != 501 {
		t.Error(code)
	}
}

func TestOnlyRequestsThatCountAreCharged(t *testing.T) {
	l := limiter(t, Options{})
	rules := []string{"5/d"}
	left := func() int64 {
		reply, err := l.Peek(background, t.Name(), rules)
		if err != nil {
			t.Fatal(err)
		}
		return reply.Remaining
	}
	failed := HTTP{Rules: rules, Key: keyed(t), Count: CountFailed}
	askHTTP(t, l, failed, hello, get())
	if left() != 5 {
		t.Error(left())
	}
	askHTTP(t, l, failed, fail, get())
	if left() != 4 {
		t.Error(left())
	}
	func() {
		defer func() { _ = recover() }()
		askHTTP(t, l, failed, func(http.ResponseWriter, *http.Request) { panic("a fault") }, get())
	}()
	if left() != 3 {
		t.Error(left())
	}
	successful := failed
	successful.Count = CountSuccessful
	askHTTP(t, l, successful, fail, get())
	if left() != 3 {
		t.Error(left())
	}
	askHTTP(t, l, successful, hello, get())
	if left() != 2 {
		t.Error(left())
	}
}

func TestWhatACountCannotGiveBackIsRefused(t *testing.T) {
	l := limiter(t, Options{})
	for _, wrong := range []HTTP{
		{}, {Rules: []string{}}, {Rules: []string{"slots:4"}}, {Rules: []string{"5/m,ban=1h"}, Count: CountFailed},
		{Rules: []string{"nonsense"}}, {Rules: []string{"5/s"}, Prefix: 129}, {Rules: []string{"5/s"}, Headers: 9},
	} {
		if _, err := l.Middleware(wrong); !errors.Is(err, ErrMisuse) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	if _, err := l.Call(background, "k", "RL.POLICY", "SET", "banning", "5/d,ban=1h"); err != nil {
		t.Fatal(err)
	}
	policy := HTTP{Rules: []string{"@banning"}, Key: keyed(t), Count: CountFailed}
	if answer := askHTTP(t, l, policy, hello, get()); answer.Code != 500 {
		t.Error(answer.Code)
	}
	if reply, err := l.Peek(background, t.Name(), []string{"5/d"}); err != nil || reply.Remaining != 5 {
		t.Error(reply, err)
	}
}

func TestKeysCostsAndSkips(t *testing.T) {
	l := limiter(t, Options{})
	request := get()
	request.RemoteAddr = "[2001:db8:" + strings.ToLower(t.Name()[4:5]) + "::1]:99"
	options := HTTP{Rules: []string{"5/d"}, Cost: func(*http.Request) Option { return Cost(3) }, Headers: HeadersLegacy}
	answer := askHTTP(t, l, options, hello, request)
	if answer.Header().Get("X-Ratelimit-Remaining") != "2" {
		t.Error(answer.Header())
	}
	request.RemoteAddr = "@"
	if answer = askHTTP(t, l, options, hello, request); answer.Code != 200 {
		t.Error(answer.Code)
	}
	if reply, err := l.Peek(background, "ip:unknown", []string{"5/d"}); err != nil || reply.Remaining != 2 {
		t.Error(reply, err)
	}
	options.Skip = func(*http.Request) bool { return true }
	for range 3 {
		if answer = askHTTP(t, l, options, hello, request); answer.Code != 200 || len(answer.Header()["X-Ratelimit-Limit"]) > 0 {
			t.Error(answer.Code, answer.Header())
		}
	}
}

func TestAHandlerMayFlushAndWaitsForItsTurn(t *testing.T) {
	l := limiter(t, Options{})
	options := HTTP{Rules: []string{"leaky:10/s"}, Key: keyed(t)}
	askHTTP(t, l, options, func(w http.ResponseWriter, _ *http.Request) {
		if _, isIt := w.(*httptest.ResponseRecorder); !isIt {
			t.Errorf("the handler got a %T, though all requests count", w)
		}
	}, get())
	options.Count = CountSuccessful
	server := func(w http.ResponseWriter, r *http.Request) {
		hello(w, r)
		w.(http.Flusher).Flush()
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}
	began := time.Now()
	for range 2 {
		if answer := askHTTP(t, l, options, server, get()); !answer.Flushed {
			t.Error("it is not flushed")
		}
	}
	if time.Since(began) < 150*time.Millisecond {
		t.Error(time.Since(began))
	}
	gone, cancel := context.WithCancel(background)
	cancel()
	served := false
	askHTTP(t, l, options, func(http.ResponseWriter, *http.Request) { served = true }, get().WithContext(gone))
	if served {
		t.Error("a client that has gone is served")
	}
}
