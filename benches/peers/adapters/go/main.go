// The protocol of benches/peers/adapter.py, for adapters in Go: adapter NAME ADDRESS.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// rule is a limit and its period in milliseconds.
type rule [2]int

// hit tells whether a request passes, and the milliseconds until a retry, or nil.
type hit func(key string, rules []rule) (bool, *float64, error)

type call struct {
	Key     string
	Rules   []rule
	At      float64
	Keys    *int
	Count   *int
	Seconds *float64
	Rate    float64
}

type made struct {
	OK    *bool    `json:"ok,omitempty"`
	Wait  *float64 `json:"wait_ms"`
	Error string   `json:"error,omitempty"`
	Sent  float64  `json:"sent"`
	Got   float64  `json:"got"`
}

type summary struct {
	Made    int     `json:"made"`
	Seconds float64 `json:"seconds"`
	P50     *int64  `json:"p50_us"`
	P99     *int64  `json:"p99_us"`
}

// now is the system's monotonic clock, which other processes share.
func now() float64 {
	var at unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &at))
	return float64(at.Sec) + float64(at.Nsec)/1e9
}

func until(at float64) {
	time.Sleep(time.Duration((at - now()) * float64(time.Second)))
}

func one(hit hit, call call) (made made) {
	until(call.At)
	made.Sent = now()
	ok, wait, err := hit(call.Key, call.Rules)
	made.Got = now()
	if err != nil {
		made.Error = fmt.Sprintf("%T: %.180v", err, err)
	} else {
		made.OK, made.Wait = &ok, wait
	}
	return made
}

func many(hit hit, call call) (summary summary) {
	began, late := now(), []int64{}
	ends := began + 600
	if call.Seconds != nil {
		ends = began + *call.Seconds
	}
	for call.Count == nil || len(late) < *call.Count {
		due := now()
		if call.Rate > 0 {
			due = began + float64(len(late))/call.Rate
		}
		if max(due, now()) >= ends {
			break
		}
		until(due)
		_, _, err := hit(fmt.Sprintf("%s:%d", call.Key, len(late)%*call.Keys), call.Rules)
		must(err)
		late = append(late, int64(1e6*(now()-due)))
	}
	summary.Made, summary.Seconds = len(late), now()-began
	if slices.Sort(late); len(late) > 0 {
		summary.P50, summary.P99 = &late[len(late)/2], &late[len(late)*99/100]
	}
	return summary
}

func main() {
	peer, address := os.Args[1], strings.TrimPrefix(os.Args[2], "redis://")
	hit := makers[peer](address)
	answers := json.NewEncoder(os.Stdout)
	must(answers.Encode(map[string]string{"ready": peer}))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var call call
		must(json.Unmarshal(lines.Bytes(), &call))
		if call.Keys != nil {
			must(answers.Encode(many(hit, call)))
		} else {
			must(answers.Encode(one(hit, call)))
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
