package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	ratelimit "github.com/redis-ratelimit/redis-ratelimit/clients/go"
)

func limiter() *ratelimit.Limiter {
	limiter, err := ratelimit.InProcess(map[string][]string{"free": {"2/m"}})
	if err != nil {
		panic(err)
	}
	return limiter
}

func ExampleLimiter_Check() {
	limiter := limiter() // an application asks a server: FromURL or New
	defer limiter.Close()
	for range 3 {
		reply, err := limiter.Check(context.Background(), "login:42", []string{"2/15m", "20/d"})
		fmt.Println(reply.Verdict, reply.Remaining, err)
	}
	// Output:
	// allowed 1 <nil>
	// allowed 0 <nil>
	// limited 0 <nil>
}

func ExampleLimiter_CheckAll() {
	limiter := limiter()
	defer limiter.Close()
	limits := []ratelimit.Limit{
		{Key: "ip:203.0.113.9", Rules: []string{"10/s"}},
		{Key: "user:42", Rules: []string{"50/m,name=requests,cost=1", "bucket:8000/m,name=tokens"}},
	}
	report, err := limiter.CheckAll(context.Background(), limits, ratelimit.Costs(map[string]int64{"tokens": 3000}))
	for _, rule := range report.Rules {
		fmt.Println(rule.Label(), rule.Remaining, err)
	}
	// Output:
	// 10/s 9 <nil>
	// requests 49 <nil>
	// tokens 5000 <nil>
}

func ExampleLimiter_Hold() {
	limiter, ctx := limiter(), context.Background()
	defer limiter.Close()
	hold, err := limiter.Hold(ctx, "export", []string{"slots:1"}, 30*time.Second)
	if err != nil {
		panic(err)
	}
	defer hold.Close()
	_, err = limiter.Hold(ctx, "export", []string{"slots:1"}, 30*time.Second)
	var denied *ratelimit.DeniedError
	fmt.Println(errors.As(err, &denied), denied.Report.Verdict)
	select {
	case <-hold.Lost():
		fmt.Println("others may export now")
	default:
		fmt.Println("the slot is ours")
	}
	// Output:
	// true limited
	// the slot is ours
}

func ExampleLimiter_Middleware() {
	limiter := limiter()
	defer limiter.Close()
	limits, err := limiter.Middleware(ratelimit.HTTP{Rules: []string{"@free"}})
	if err != nil {
		panic(err)
	}
	handler := limits(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }))
	for range 3 {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(answer.Code, answer.Header().Get("RateLimit"))
	}
	// Output:
	// 200 "2/m";r=1;t=60
	// 200 "2/m";r=0;t=60
	// 429 "2/m";r=0;t=60
}

func ExampleReply_Crossed() {
	limiter := limiter()
	defer limiter.Close()
	for range 5 {
		reply, _ := limiter.Check(context.Background(), "quota:3", []string{"fixed:5/month"})
		if crossed, _ := reply.Crossed(0.8, 1); crossed {
			fmt.Println("send a mail:", reply.Remaining, "left")
		}
	}
	// Output: send a mail: 1 left
}
