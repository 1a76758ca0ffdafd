// The driver of the package for Go: see clients/conformance/suite/drivers.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	ratelimit "github.com/redis-ratelimit/redis-ratelimit/clients/go"
)

type line = map[string]any

// What calls have made, by name, and the ends of calls under way, by id.
var limiters, holds, leases, cancels sync.Map

var output sync.Mutex

func write(said line) {
	text, err := json.Marshal(said)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Printf("%s\n", text)
}

func main() {
	write(line{"driver": "go", "can": []string{"cancel"}})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	var calls sync.WaitGroup
	for lines.Scan() {
		call := call{}
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancels.Store(call["id"], cancel)
		calls.Go(func() {
			defer cancel()
			said := call.answer(ctx)
			said["id"] = call["id"]
			write(said)
			cancels.Delete(call["id"])
		})
	}
	calls.Wait()
}

// methods are those of the limiter, with their arguments.
var methods = map[string]string{
	"check": "Check key rules", "peek": "Peek key rules", "peek_all": "PeekAll key rules", "check_all": "CheckAll limits",
	"check_any": "CheckAny limits", "wait": "Wait key rules timeout_ms", "enter": "Hold key rules ttl_ms",
	"settle": "Settle key own_id", "renew": "Renew key own_id ttl_ms", "refund": "Refund key units", "reset": "Reset key",
	"pause": "Pause key time_ms reason", "resume": "Resume key", "plan": "Plan key policy time_ms", "unplan": "Unplan key",
	"sync": "Sync key remaining rule", "follow": "Follow key headers fields",
}

func (c call) answer(ctx context.Context) (said line) {
	defer func() {
		why := recover()
		if _, is := why.(cannot); !is && why != nil {
			panic(why)
		} else if is {
			said = line{"cannot": why}
		}
	}()
	result, err := c.make(ctx)
	if err == nil {
		return line{"result": shown(result)}
	}
	failed := line{"kind": "Error", "text": err.Error(), "outage": ratelimit.IsOutage(err)}
	for kind, is := range map[string]error{
		"Misuse": ratelimit.ErrMisuse, "Saturated": ratelimit.ErrSaturated, "Outage": ratelimit.ErrOutage, "Canceled": context.Canceled,
	} {
		if errors.Is(err, is) {
			failed["kind"] = kind
		}
	}
	var denied *ratelimit.DeniedError
	if errors.As(err, &denied) {
		failed["kind"], failed["report"] = "Denied", shown(denied.Report)
	}
	return line{"error": failed}
}

func made[T any](of *sync.Map, name any) T {
	found, known := of.Load(name)
	if !known {
		panic(cannot(fmt.Sprint("there is no ", name)))
	}
	return found.(T)
}

func (c call) make(ctx context.Context) (any, error) {
	name := c["call"].(string)
	switch name {
	case "limiter":
		make := func(o ratelimit.Options) (*ratelimit.Limiter, error) { return ratelimit.InProcess(o.Policies) }
		if url, given := c["url"].(string); given {
			make = func(o ratelimit.Options) (*ratelimit.Limiter, error) { return ratelimit.FromURL(url, o) }
		}
		limiter, err := make(c.limiterOptions())
		limiters.Store(c["limiter"], limiter)
		return nil, err
	case "cancel":
		if cancel, found := cancels.Load(c["of"]); found {
			cancel.(context.CancelFunc)()
		}
		return nil, nil
	case "leave", "hold_settle", "hold_refund", "lost":
		return c.ofHold(ctx, made[*ratelimit.Hold](&holds, c["hold"]))
	case "take":
		return made[*ratelimit.Lease](&leases, c["lease"]).Take(ctx, as[int64](c["units"]))
	case "give_up":
		return nil, made[*ratelimit.Lease](&leases, c["lease"]).Close()
	}
	l := made[*ratelimit.Limiter](&limiters, c["limiter"])
	switch name {
	case "lease":
		lease, err := l.NewLease(as[string](c["key"]), as[[]string](c["rules"]),
			ratelimit.LeaseOptions{TTL: as[time.Duration](c["ttl_ms"]), Most: as[int64](c["most"])})
		leases.Store(c["lease"], lease)
		return nil, err
	case "state":
		return line{"away": l.Away(), "outages": l.Outages()}, nil
	case "close":
		return nil, l.Close()
	}
	method, known := methods[name]
	words := strings.Fields(method)
	if !known {
		panic(cannot("there is no " + name))
	}
	return c.of(reflect.ValueOf(l).MethodByName(words[0]), words[1:], reflect.ValueOf(ctx))
}

// of calls a method.
func (c call) of(method reflect.Value, names []string, arguments ...reflect.Value) (any, error) {
	for _, name := range names {
		given, isGiven := c[name]
		to := method.Type().In(len(arguments))
		switch {
		case name == "headers":
			given, isGiven = c, true
		case name == "time_ms" && given == float64(0) && c["call"] == "plan":
			panic(cannot("0 is a plan for good"))
		}
		argument := reflect.New(to).Elem()
		if isGiven {
			argument = convert(given, to)
		}
		arguments = append(arguments, argument)
	}
	if method.Type().IsVariadic() && c["call"] != "refund" {
		for _, option := range c.options() {
			arguments = append(arguments, reflect.ValueOf(option))
		}
	} else if c["rules"] != nil {
		for _, rule := range as[[]string](c["rules"]) {
			arguments = append(arguments, reflect.ValueOf(rule))
		}
	}
	results := method.Call(arguments)
	err, _ := results[len(results)-1].Interface().(error)
	if hold, isHold := results[0].Interface().(*ratelimit.Hold); isHold && err == nil {
		holds.Store(c["hold"], hold)
		return hold.Report, nil
	}
	return results[0].Interface(), err
}

func (c call) ofHold(ctx context.Context, hold *ratelimit.Hold) (any, error) {
	switch {
	case c["call"] == "leave":
		return nil, hold.Close()
	case c["call"] == "hold_refund":
		return hold.Refund(ctx)
	case c["call"] == "lost":
		select {
		case <-hold.Lost():
			return true, nil
		default:
			return false, nil
		}
	case c["cost"] != nil:
		return hold.SettleCost(ctx, cost(c["cost"]))
	}
	return hold.Settle(ctx)
}
