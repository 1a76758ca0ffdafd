// Compares this package with redis_rate and ulule/limiter, and all of them with a command of go-redis alone: checks a
// second of one goroutine and of 64, and allocations, in one run. Each check is of a key of its own goroutine.
//
//	go run . 127.0.0.1:6379    # a server with the module
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	ratelimit "github.com/redis-ratelimit/redis-ratelimit/clients/go"
	"github.com/redis/go-redis/v9"
	ulule "github.com/ulule/limiter/v3"
	store "github.com/ulule/limiter/v3/drivers/store/redis"
)

const (
	turns = 5 // of which the best counts
	turn  = time.Second
	pool  = 64
)

type check func(ctx context.Context, key string) error

func main() {
	address := os.Args[1]
	client := redis.NewClient(&redis.Options{Addr: address, PoolSize: pool})
	defer client.Close()
	own, err := ratelimit.New(client, ratelimit.Options{})
	must(err)
	defer own.Close()
	script, err := ratelimit.New(client, ratelimit.Options{Engine: ratelimit.Script})
	must(err)
	defer script.Close()
	rate := redis_rate.NewLimiter(client)
	stored, err := store.NewStore(client)
	must(err)
	fixed := ulule.New(stored, ulule.Rate{Period: time.Second, Limit: 1_000_000_000})
	rules := []string{"bucket:1000000000/s"}
	limit := redis_rate.Limit{Rate: 1_000_000, Burst: 1_000_000, Period: time.Second}

	peers := []struct {
		name string
		check
	}{
		{"go-redis alone, INCR", func(ctx context.Context, key string) error { return client.Incr(ctx, "n:"+key).Err() }},
		{"go-redis alone, RL.CHECK", func(ctx context.Context, key string) error {
			return client.Do(ctx, "RL.CHECK", key, "bucket:1000000000/s").Err()
		}},
		{"this package", func(ctx context.Context, key string) error {
			_, err := own.Check(ctx, key, rules)
			return err
		}},
		{"this package, script", func(ctx context.Context, key string) error {
			_, err := script.Check(ctx, key, rules)
			return err
		}},
		{"redis_rate v10", func(ctx context.Context, key string) error {
			_, err := rate.Allow(ctx, key, limit)
			return err
		}},
		{"ulule/limiter v3", func(ctx context.Context, key string) error {
			_, err := fixed.Get(ctx, key)
			return err
		}},
	}
	best := make([][2]float64, len(peers))
	for range turns {
		for at, peer := range peers {
			best[at][0] = max(best[at][0], measure(peer.check, 1))
			best[at][1] = max(best[at][1], measure(peer.check, pool))
		}
	}
	fmt.Printf("%-26s %14s %14s %12s\n", "checks a second", "1 goroutine", "64 goroutines", "allocations")
	for at, peer := range peers {
		fmt.Printf("%-26s %14.0f %14.0f %12d\n", peer.name, best[at][0], best[at][1], allocations(peer.check))
	}
}

// measure counts the checks a second of some goroutines.
func measure(check check, callers int) float64 {
	var made atomic.Int64
	var working sync.WaitGroup
	began := time.Now()
	for caller := range callers {
		working.Go(func() {
			key := "bench:" + strconv.Itoa(caller)
			for time.Since(began) < turn {
				must(check(context.Background(), key))
				made.Add(1)
			}
		})
	}
	working.Wait()
	return float64(made.Load()) / time.Since(began).Seconds()
}

// allocations are those of one check.
func allocations(check check) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 1000 {
		must(check(context.Background(), "bench:0"))
	}
	runtime.ReadMemStats(&after)
	return (after.Mallocs - before.Mallocs) / 1000
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
