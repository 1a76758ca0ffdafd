// The driver of the package for Go: see clients/conformance/suite/drivers.py.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	ratelimit "github.com/redis-ratelimit/redis-ratelimit/clients/go"
)

// call is a line of the input, and line one of the output.
type (
	call map[string]json.RawMessage
	line = map[string]any
)

// does is what a call does, and the fields that have its arguments but contexts, options and responses.
type does struct {
	function any
	fields   string
}

var calls = map[string]does{
	"limiter":     {newLimiter, "url"},
	"check":       {(*ratelimit.Limiter).Check, "limiter key rules"},
	"peek":        {(*ratelimit.Limiter).Peek, "limiter key rules"},
	"peek_all":    {(*ratelimit.Limiter).PeekAll, "limiter key rules"},
	"check_all":   {(*ratelimit.Limiter).CheckAll, "limiter limits"},
	"check_any":   {(*ratelimit.Limiter).CheckAny, "limiter limits"},
	"wait":        {(*ratelimit.Limiter).Wait, "limiter key rules timeout_ms"},
	"enter":       {(*ratelimit.Limiter).Hold, "limiter key rules ttl_ms"},
	"leave":       {(*ratelimit.Hold).Close, "hold"},
	"hold_settle": {settle, "hold"},
	"hold_refund": {(*ratelimit.Hold).Refund, "hold"},
	"lost":        {(*ratelimit.Hold).Lost, "hold"},
	"settle":      {(*ratelimit.Limiter).Settle, "limiter key own_id"},
	"renew":       {(*ratelimit.Limiter).Renew, "limiter key own_id ttl_ms"},
	"refund":      {(*ratelimit.Limiter).Refund, "limiter key units rules"},
	"reset":       {(*ratelimit.Limiter).Reset, "limiter key"},
	"pause":       {(*ratelimit.Limiter).Pause, "limiter key time_ms reason"},
	"resume":      {(*ratelimit.Limiter).Resume, "limiter key"},
	"plan":        {plan, "limiter key policy time_ms"},
	"unplan":      {(*ratelimit.Limiter).Unplan, "limiter key"},
	"sync":        {(*ratelimit.Limiter).Sync, "limiter key remaining rule"},
	"follow":      {(*ratelimit.Limiter).Follow, "limiter key fields"},
	"lease":       {newLease, "limiter key rules ttl_ms most"},
	"take":        {(*ratelimit.Lease).Take, "lease units"},
	"give_up":     {(*ratelimit.Lease).Close, "lease"},
	"state":       {state, "limiter"},
	"close":       {(*ratelimit.Limiter).Close, "limiter"},
	"cancel":      {cancel, "of"},
	"memory":      {memory, ""},
}

// What calls have made, by its field and name, and the ends of calls under way, by id.
var made, cancels sync.Map

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
	write(line{"driver": "go", "can": []string{"cancel", "memory"}})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	var working sync.WaitGroup
	for lines.Scan() {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(err)
		}
		ctx, end := context.WithCancel(context.Background())
		id := as[int](c["id"])
		cancels.Store(id, end)
		working.Go(func() {
			defer end()
			said := c.answer(ctx)
			said["id"] = id
			write(said)
			cancels.Delete(id)
		})
	}
	working.Wait()
}

func (c call) answer(ctx context.Context) (said line) {
	defer func() {
		why := recover()
		if _, is := why.(cannot); is {
			said = line{"cannot": why}
		} else if why != nil {
			panic(why)
		}
	}()
	result, err := c.make(ctx)
	failed := line{"kind": "Error", "text": fmt.Sprint(err), "outage": ratelimit.IsOutage(err)}
	switch denied := new(ratelimit.DeniedError); {
	case err == nil:
		return line{"result": shown(result)}
	case errors.As(err, &denied):
		failed["kind"], failed["report"] = "Denied", shown(denied.Report)
	case errors.Is(err, ratelimit.ErrMisuse):
		failed["kind"] = "Misuse"
	case errors.Is(err, ratelimit.ErrSaturated):
		failed["kind"] = "Saturated"
	}
	return line{"error": failed}
}

func (c call) make(ctx context.Context) (result any, err error) {
	for _, one := range c.do(ctx, calls[as[string](c["call"])]) {
		switch one := one.Interface().(type) {
		case *ratelimit.Limiter:
			made.Store("limiter"+string(c["limiter"]), one)
		case *ratelimit.Lease:
			made.Store("lease"+string(c["lease"]), one)
		case *ratelimit.Hold:
			if one != nil {
				result = one.Report
			}
			made.Store("hold"+string(c["hold"]), one)
		case error:
			err = one
		case nil:
		default:
			result = one
		}
	}
	return result, err
}

func (c call) do(ctx context.Context, what does) []reflect.Value {
	function, fields := reflect.ValueOf(what.function), strings.Fields(what.fields)
	arguments := make([]reflect.Value, function.Type().NumIn())
	for at := range arguments {
		switch to := function.Type().In(at); to {
		case reflect.TypeFor[context.Context]():
			arguments[at] = reflect.ValueOf(ctx)
		case reflect.TypeFor[call]():
			arguments[at] = reflect.ValueOf(c)
		case reflect.TypeFor[[]ratelimit.Option]():
			arguments[at] = reflect.ValueOf(c.options())
		case reflect.TypeFor[*http.Response]():
			arguments[at] = reflect.ValueOf(c.response())
		default:
			arguments[at] = reflect.New(to).Elem()
			if found, known := made.Load(fields[0] + string(c[fields[0]])); known {
				arguments[at].Set(reflect.ValueOf(found))
			} else {
				read(c[fields[0]], arguments[at].Addr().Interface())
			}
			fields = fields[1:]
		}
	}
	if function.Type().IsVariadic() {
		return function.CallSlice(arguments)
	}
	return function.Call(arguments)
}

func newLimiter(url string, c call) (*ratelimit.Limiter, error) {
	tell := func(event string, e any) {
		said := shown(e).(line)
		said["event"], said["limiter"] = event, c["limiter"]
		write(said)
	}
	o := as[call](c["options"]).limiterOptions()
	o.OnOutage = func(e ratelimit.OutageEvent) { tell("outage", e) }
	o.OnMisconfigured = func(e ratelimit.MisconfiguredEvent) { tell("misconfigured", e) }
	o.OnDecision = func(e ratelimit.DecisionEvent) { tell("decision", e) }
	if url == "" {
		return ratelimit.InProcess(o.Policies)
	}
	return ratelimit.FromURL(url, o)
}

func newLease(l *ratelimit.Limiter, key string, rules []string, ttl time.Duration, most int64) (*ratelimit.Lease, error) {
	return l.NewLease(key, rules, ratelimit.LeaseOptions{TTL: ttl, Most: most})
}

func plan(ctx context.Context, l *ratelimit.Limiter, key, policy string, time time.Duration, c call) error {
	if string(c["time_ms"]) == "0" {
		panic(cannot("0 is a plan for good"))
	}
	return l.Plan(ctx, key, policy, time)
}

func settle(ctx context.Context, hold *ratelimit.Hold, options ...ratelimit.Option) (bool, error) {
	if len(options) > 0 {
		return hold.SettleCost(ctx, options[0])
	}
	return hold.Settle(ctx)
}

func state(l *ratelimit.Limiter) line { return line{"away": l.Away(), "outages": l.Outages()} }

// memory is how many bytes the program holds, without those of a race detector.
func memory() uint64 {
	var found runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&found)
	return found.HeapAlloc + found.StackInuse
}

func cancel(id int) {
	if end, found := cancels.Load(id); found {
		end.(context.CancelFunc)()
	}
}

// cannot says that the types of Go do not allow a call.
type cannot string

// as gives a field the type that the package wants: the zero value, if it is absent.
func as[T any](field json.RawMessage) (value T) {
	read(field, &value)
	return value
}

func read(field json.RawMessage, into any) {
	if field == nil {
		return
	}
	switch to := into.(type) {
	case *string:
		if field[0] == '{' {
			bytes, err := hex.DecodeString(as[map[string]string](field)["hex"])
			if *to = string(bytes); err != nil || *to == "" {
				panic(cannot(field))
			}
			return
		}
	case *[]string:
		if field[0] == '"' {
			field = slices.Concat([]byte("["), field, []byte("]"))
		}
	case *[]ratelimit.Limit:
		for _, pair := range as[[][2]json.RawMessage](field) {
			*to = append(*to, ratelimit.Limit{Key: as[string](pair[0]), Rules: as[[]string](pair[1])})
		}
		return
	case *time.Duration:
		*to = time.Duration(as[float64](field) * float64(time.Millisecond))
		return
	case *ratelimit.Outage:
		*to = ratelimit.Outage(index(field, "raise", "allow", "deny", "local"))
		return
	case *ratelimit.Engine:
		*to = ratelimit.Engine(index(field, "module", "script"))
		return
	}
	if err := json.Unmarshal(field, into); err != nil {
		panic(cannot(err.Error()))
	}
}

func index(field json.RawMessage, names ...string) int {
	at := slices.Index(names, as[string](field))
	if at < 0 {
		panic(cannot(field))
	}
	return at
}

func cost(field json.RawMessage) ratelimit.Option {
	switch field[0] {
	case '[':
		both := as[[2]int64](field)
		return ratelimit.CostRange(both[0], both[1])
	case '{':
		return ratelimit.Costs(as[map[string]int64](field))
	}
	return ratelimit.Cost(as[int64](field))
}

var options = map[string]does{
	"cost": {cost, "cost"}, "meta": {ratelimit.Meta, "meta"}, "own_id": {ratelimit.HoldID, "own_id"}, "most": {ratelimit.Most, ""},
	"refund": {ratelimit.Refund, ""}, "flow": {ratelimit.Flow, "flow weight"}, "priority": {ratelimit.Priority, "priority"},
	"timeout_ms": {ratelimit.WaitUpTo, "timeout_ms"},
}

func (c call) options() (all []ratelimit.Option) {
	for name, makes := range options {
		if c[name] != nil && (name != "timeout_ms" || as[string](c["call"]) == "enter") {
			all = append(all, c.do(context.TODO(), makes)[0].Interface().(ratelimit.Option))
		}
	}
	return all
}

func (c call) response() *http.Response {
	answer := &http.Response{StatusCode: as[int](c["status"]), Header: http.Header{}}
	for _, pair := range as[[][2]string](c["headers"]) {
		answer.Header.Add(pair[0], pair[1])
	}
	return answer
}

func (c call) limiterOptions() ratelimit.Options {
	for name, value := range c {
		if string(value) == "0" && name != "remember_denials" {
			panic(cannot("0 is the default of " + name))
		}
	}
	return ratelimit.Options{
		Outage: as[ratelimit.Outage](c["outage"]), Engine: as[ratelimit.Engine](c["engine"]),
		Timeout: as[time.Duration](c["timeout_ms"]), QueueTimeout: as[time.Duration](c["queue_timeout_ms"]),
		Concurrency: as[int](c["concurrency"]), Processes: as[int](c["processes"]),
		RememberDenials: as[int](c["remember_denials"]), Separately: as[bool](c["separately"]),
		Policies: as[map[string][]string](c["policies"]),
	}
}

// names are those that fields have in names.json, if they differ.
var names = map[string]string{"Took": "ms", "Err": "error", "Wait": "wait_ms", "Reset": "reset_ms", "Next": "next_ms", "Period": "period_ms"}

// shown is a value as JSON.
func shown(given any) any {
	switch given := given.(type) {
	case time.Duration:
		if given < 0 {
			return -1
		}
		return (given + time.Millisecond - 1) / time.Millisecond
	case fmt.Stringer:
		return given.String()
	case error:
		return given.Error()
	case <-chan struct{}:
		select {
		case <-given:
			return true
		default:
			return false
		}
	}
	value := reflect.ValueOf(given)
	switch value.Kind() {
	case reflect.Slice:
		list := []any{}
		for at := range value.Len() {
			list = append(list, shown(value.Index(at).Interface()))
		}
		return list
	case reflect.Struct:
		said := line{}
		for _, field := range reflect.VisibleFields(value.Type()) {
			if of := value.FieldByIndex(field.Index); field.IsExported() && !field.Anonymous && (field.Name != "Granted" || of.Int() >= 0) {
				said[cmp.Or(names[field.Name], strings.ToLower(field.Name))] = shown(of.Interface())
			}
		}
		if said["name"] == "" {
			said["name"] = nil
		}
		return said
	}
	return given
}
