// The driver of the package for Go: see clients/conformance/README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	ratelimit "github.com/redis-ratelimit/redis-ratelimit/clients/go"
)

// What calls have made, by name, and the ends of calls under way, by id.
var limiters, holds, leases, cancels sync.Map

var output sync.Mutex

func write(line map[string]any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Printf("%s\n", text)
}

func main() {
	write(map[string]any{"driver": "go", "can": []string{"cancel"}})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	var calls sync.WaitGroup
	for lines.Scan() {
		var call call
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancels.Store(call["id"], cancel)
		calls.Go(func() {
			defer cancel()
			answer := answer(ctx, call)
			answer["id"] = call["id"]
			write(answer)
			cancels.Delete(call["id"])
		})
	}
	calls.Wait()
}

// cannot says that the types of Go do not allow a call.
type cannot string

func answer(ctx context.Context, call call) (line map[string]any) {
	defer func() {
		if why, ok := recover().(cannot); ok {
			line = map[string]any{"cannot": why}
		}
	}()
	result, err := call.make(ctx)
	if err == nil {
		return map[string]any{"result": result}
	}
	said := map[string]any{"kind": kind(err), "text": err.Error(), "outage": ratelimit.IsOutage(err)}
	var denied *ratelimit.DeniedError
	if errors.As(err, &denied) {
		said["report"] = report(denied.Report)
	}
	return map[string]any{"error": said}
}

func kind(err error) string {
	var denied *ratelimit.DeniedError
	switch {
	case errors.Is(err, ratelimit.ErrMisuse):
		return "Misuse"
	case errors.Is(err, ratelimit.ErrSaturated):
		return "Saturated"
	case ratelimit.IsOutage(err):
		return "OutageError"
	case errors.As(err, &denied):
		return "DeniedError"
	case errors.Is(err, context.Canceled):
		return "Canceled"
	}
	return "Error"
}

func (c call) make(ctx context.Context) (any, error) {
	switch c["call"] {
	case "limiter":
		limiter, err := ratelimit.FromURL(c.text("url"), c.limiterOptions())
		if err == nil {
			limiters.Store(c["limiter"], limiter)
		}
		return nil, err
	case "cancel":
		if cancel, found := cancels.Load(c["of"]); found {
			cancel.(context.CancelFunc)()
		}
		return nil, nil
	case "leave", "hold_settle", "hold_refund", "lost":
		hold, _ := holds.Load(c["hold"])
		return c.ofHold(ctx, hold.(*ratelimit.Hold))
	case "take", "give_up":
		lease, _ := leases.Load(c["lease"])
		if c["call"] == "give_up" {
			return nil, lease.(*ratelimit.Lease).Close()
		}
		return reply(lease.(*ratelimit.Lease).Take(ctx, c.units("units")))
	}
	found, _ := limiters.Load(c["limiter"])
	return c.ofLimiter(ctx, found.(*ratelimit.Limiter))
}

func (c call) ofHold(ctx context.Context, hold *ratelimit.Hold) (any, error) {
	switch c["call"] {
	case "leave":
		return nil, hold.Close()
	case "hold_refund":
		return hold.Refund(ctx)
	case "lost":
		select {
		case <-hold.Lost():
			return true, nil
		default:
			return false, nil
		}
	}
	if c["cost"] != nil {
		return hold.SettleCost(ctx, c.cost())
	}
	return hold.Settle(ctx)
}

func (c call) ofLimiter(ctx context.Context, l *ratelimit.Limiter) (any, error) {
	switch c["call"] {
	case "check":
		return reply(l.Check(ctx, c.key(), c.rules(), c.options()...))
	case "peek":
		return reply(l.Peek(ctx, c.key(), c.rules(), c.options()...))
	case "wait":
		return reply(l.Wait(ctx, c.key(), c.rules(), c.time("timeout_ms"), c.options()...))
	case "check_all":
		return reported(l.CheckAll(ctx, c.limits(), c.options()...))
	case "check_any":
		return reported(l.CheckAny(ctx, c.limits(), c.options()...))
	case "peek_all":
		return reported(l.PeekAll(ctx, c.key(), c.rules(), c.options()...))
	case "enter":
		options := c.options()
		if c["timeout_ms"] != nil {
			options = append(options, ratelimit.WaitUpTo(c.time("timeout_ms")))
		}
		hold, err := l.Hold(ctx, c.key(), c.rules(), c.time("ttl_ms"), options...)
		if err != nil {
			return nil, err
		}
		holds.Store(c["hold"], hold)
		return report(hold.Report), nil
	case "settle":
		return l.Settle(ctx, c.key(), c.text("own_id"), c.options()...)
	case "renew":
		return l.Renew(ctx, c.key(), c.text("own_id"), c.time("ttl_ms"))
	case "refund":
		var rules []string
		if c["rules"] != nil {
			rules = c.rules()
		}
		return l.Refund(ctx, c.key(), c.units("units"), rules...)
	case "reset":
		return l.Reset(ctx, c.key())
	case "resume":
		return l.Resume(ctx, c.key())
	case "unplan":
		return l.Unplan(ctx, c.key())
	case "pause":
		reason, _ := c["reason"].(string)
		left, err := l.Pause(ctx, c.key(), c.time("time_ms"), reason)
		return ms(left), err
	case "plan":
		var time time.Duration
		if c["time_ms"] != nil {
			time = c.time("time_ms")
			if time == 0 {
				panic(cannot("0 is a plan for good"))
			}
		}
		return nil, l.Plan(ctx, c.key(), c.text("policy"), time)
	case "sync":
		return l.Sync(ctx, c.key(), c.units("remaining"), c.text("rule"))
	case "follow":
		answer := &http.Response{StatusCode: int(c.units("status")), Header: http.Header{}}
		pairs, _ := c["headers"].([]any)
		for _, pair := range pairs {
			answer.Header.Add(pair.([]any)[0].(string), pair.([]any)[1].(string))
		}
		left, err := l.Follow(ctx, c.key(), answer, c.texts("fields"))
		return ms(left), err
	case "lease":
		options := ratelimit.LeaseOptions{TTL: c.time("ttl_ms"), Most: c.units("most")}
		lease, err := l.NewLease(c.key(), c.rules(), options)
		leases.Store(c["lease"], lease)
		return nil, err
	case "state":
		return map[string]any{"away": l.Away(), "outages": l.Outages()}, nil
	case "close":
		return nil, l.Close()
	}
	panic(cannot(fmt.Sprint("there is no ", c["call"])))
}
