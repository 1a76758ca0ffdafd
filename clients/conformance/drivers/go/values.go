package main

import (
	"encoding/hex"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"time"

	ratelimit "github.com/redis-ratelimit/redis-ratelimit/clients/go"
)

// call is a line of JSON.
type call map[string]any

// cannot says that the types of Go do not allow a call.
type cannot string

func as[T any](given any) T { return convert(given, reflect.TypeFor[T]()).Interface().(T) }

// convert gives a value the type that the package wants.
func convert(given any, to reflect.Type) reflect.Value {
	text, isText := given.(string)
	number, isNumber := given.(float64)
	list, isList := given.([]any)
	fields, _ := given.(map[string]any)
	if other, isCall := given.(call); isCall {
		answer := &http.Response{StatusCode: as[int](other["status"]), Header: http.Header{}}
		for _, pair := range other["headers"].([]any) {
			answer.Header.Add(pair.([]any)[0].(string), pair.([]any)[1].(string))
		}
		return reflect.ValueOf(answer)
	}
	if digits, isHex := fields["hex"].(string); isHex {
		bytes, err := hex.DecodeString(digits)
		text, isText = string(bytes), err == nil
	}
	switch {
	case to == reflect.TypeFor[time.Duration]() && isNumber:
		return reflect.ValueOf(time.Duration(number * float64(time.Millisecond)))
	case to.Kind() == reflect.String && isText:
		return reflect.ValueOf(text)
	case to.Kind() == reflect.Bool:
		return reflect.ValueOf(given)
	case to.Kind() == reflect.Slice && isText:
		return reflect.ValueOf([]string{text})
	case reflect.TypeFor[int64]().ConvertibleTo(to) && to.Kind() != reflect.String && isNumber && number == math.Trunc(number):
		return reflect.ValueOf(int64(number)).Convert(to)
	case to == reflect.TypeFor[ratelimit.Limit]() && isList:
		return reflect.ValueOf(ratelimit.Limit{Key: as[string](list[0]), Rules: as[[]string](list[1])})
	case to.Kind() == reflect.Slice && isList:
		made := reflect.MakeSlice(to, 0, len(list))
		for _, one := range list {
			made = reflect.Append(made, convert(one, to.Elem()))
		}
		return made
	case to.Kind() == reflect.Map && fields != nil && fields["is"] == nil:
		made := reflect.MakeMap(to)
		for name, one := range fields {
			made.SetMapIndex(reflect.ValueOf(name), convert(one, to.Elem()))
		}
		return made
	}
	panic(cannot(fmt.Sprintf("%v is no %v", given, to)))
}

func cost(given any) ratelimit.Option {
	switch given.(type) {
	case []any:
		both := as[[]int64](given)
		return ratelimit.CostRange(both[0], both[1])
	case map[string]any:
		return ratelimit.Costs(as[map[string]int64](given))
	}
	return ratelimit.Cost(as[int64](given))
}

func (c call) options() (all []ratelimit.Option) {
	for name, given := range c {
		switch name {
		case "cost":
			all = append(all, cost(given))
		case "meta":
			all = append(all, ratelimit.Meta(as[string](given)))
		case "own_id":
			all = append(all, ratelimit.HoldID(as[string](given)))
		case "flow":
			weight, _ := c["weight"].(float64)
			all = append(all, ratelimit.Flow(as[string](given), max(1, int(weight))))
		case "priority":
			all = append(all, ratelimit.Priority(as[int](given)))
		case "timeout_ms":
			if c["call"] == "enter" {
				all = append(all, ratelimit.WaitUpTo(as[time.Duration](given)))
			}
		}
	}
	if c["most"] == true {
		all = append(all, ratelimit.Most())
	}
	if c["refund"] == true {
		all = append(all, ratelimit.Refund())
	}
	return all
}

// field is the name of a field in Go: timeout_ms is Timeout.
func field(name string) string {
	words := strings.Split(strings.TrimSuffix(name, "_ms"), "_")
	for at, word := range words {
		words[at] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}

var constants = map[string]any{
	"raise": ratelimit.OutageRaise, "allow": ratelimit.OutageAllow, "deny": ratelimit.OutageDeny, "local": ratelimit.OutageLocal,
	"module": ratelimit.Module, "script": ratelimit.Script,
}

func (c call) limiterOptions() (o ratelimit.Options) {
	given, _ := c["options"].(map[string]any)
	for name, value := range given {
		to := reflect.ValueOf(&o).Elem().FieldByName(field(name))
		switch constant, known := constants[fmt.Sprint(value)]; {
		case value == float64(0) && name != "remember_denials":
			panic(cannot("0 is the default of " + name))
		case known:
			to.Set(reflect.ValueOf(constant))
		default:
			to.Set(convert(value, to.Type()))
		}
	}
	o.OnOutage = func(e ratelimit.OutageEvent) { tell("outage", c, e) }
	o.OnMisconfigured = func(e ratelimit.MisconfiguredEvent) { tell("misconfigured", c, e) }
	o.OnDecision = func(e ratelimit.DecisionEvent) { tell("decision", c, e) }
	return o
}

func tell(event string, c call, e any) {
	said := shown(e).(line)
	said["event"], said["limiter"] = event, c["limiter"]
	write(said)
}

// names are those that fields have in names.json, if they differ.
var names = map[string]string{"Took": "ms", "Err": "error", "Wait": "wait_ms", "Reset": "reset_ms", "Next": "next_ms", "Period": "period_ms"}

// shown is a value as JSON.
func shown(given any) any {
	value := reflect.ValueOf(given)
	switch given := given.(type) {
	case time.Duration:
		if given < 0 {
			return -1
		}
		return int64((given + time.Millisecond - 1) / time.Millisecond)
	case fmt.Stringer:
		return given.String()
	case error:
		return given.Error()
	}
	if value.Kind() == reflect.Slice {
		list := []any{}
		for at := range value.Len() {
			list = append(list, shown(value.Index(at).Interface()))
		}
		return list
	}
	if value.Kind() != reflect.Struct {
		return given
	}
	said := line{}
	for at := range value.NumField() {
		field := value.Type().Field(at)
		name, renamed := names[field.Name]
		if !renamed {
			name = strings.ToLower(field.Name)
		}
		if isNone := name == "granted" && value.Field(at).Int() < 0; field.IsExported() && !isNone {
			said[name] = shown(value.Field(at).Interface())
		}
	}
	if said["name"] == "" {
		said["name"] = nil
	}
	return said
}
