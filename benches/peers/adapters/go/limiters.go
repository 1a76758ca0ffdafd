package main

import (
	"context"
	"fmt"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/go-redis/redis_rate/v10"
	ratelimit "github.com/redis-ratelimit/redis-ratelimit/clients/go"
	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	store "github.com/ulule/limiter/v3/drivers/store/redis"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

var makers = map[string]func(address string) hit{
	"go-redis INCR":        incr,
	"ours go":              ours,
	"ours envoy":           service,
	"envoyproxy/ratelimit": service,
	"redis_rate":           redisRate,
	"ulule/limiter":        ulule,
}

var background = context.Background()

func (r rule) period() time.Duration { return time.Duration(r[1]) * time.Millisecond }

func milliseconds(wait time.Duration) *float64 {
	ms := float64(max(wait, 0)) / float64(time.Millisecond)
	return &ms
}

// inOrder asks for several rules one after the other, until one denies.
func inOrder(one func(key string, rule rule) (bool, *float64, error)) hit {
	return func(key string, rules []rule) (ok bool, wait *float64, err error) {
		for _, rule := range rules {
			name := key
			if len(rules) > 1 {
				name = fmt.Sprintf("%s:%d", key, rule[1])
			}
			if ok, wait, err = one(name, rule); err != nil || !ok {
				return ok, wait, err
			}
		}
		return ok, wait, err
	}
}

func redisRate(address string) hit {
	limiter := redis_rate.NewLimiter(redis.NewClient(&redis.Options{Addr: address}))
	return inOrder(func(key string, rule rule) (bool, *float64, error) {
		limit := redis_rate.Limit{Rate: rule[0], Burst: rule[0], Period: rule.period()}
		res, err := limiter.Allow(background, key, limit)
		if err != nil {
			return false, nil, err
		}
		return res.Allowed > 0, milliseconds(res.RetryAfter), nil
	})
}

func ulule(address string) hit {
	stored, err := store.NewStore(redis.NewClient(&redis.Options{Addr: address}))
	must(err)
	return inOrder(func(key string, rule rule) (bool, *float64, error) {
		rate := limiter.Rate{Period: rule.period(), Limit: int64(rule[0])}
		context, err := limiter.New(stored, rate).Get(background, key)
		return !context.Reached, milliseconds(time.Until(time.Unix(context.Reset, 0))), err
	})
}

func ours(address string) hit {
	limiter, err := ratelimit.FromURL("redis://"+address, ratelimit.Options{Outage: ratelimit.OutageLocal})
	must(err)
	units := map[int]string{1000: "s", 60_000: "m", 3_600_000: "h"}
	return func(key string, rules []rule) (bool, *float64, error) {
		texts := make([]string, len(rules))
		for at, rule := range rules {
			texts[at] = fmt.Sprintf("%d/%s", rule[0], units[rule[1]])
		}
		reply, err := limiter.Check(background, key, texts)
		return reply.Allowed(), milliseconds(reply.Wait), err
	}
}

// service is a client of Envoy's protocol: a descriptor a rule, in one request.
func service(address string) hit {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(err)
	client := envoy.NewRateLimitServiceClient(connection)
	names := map[int]string{1000: "second", 60_000: "minute", 3_600_000: "hour"}
	return func(key string, rules []rule) (bool, *float64, error) {
		request := &envoy.RateLimitRequest{Domain: "peers"}
		for _, rule := range rules {
			entry := &common.RateLimitDescriptor_Entry{Key: fmt.Sprintf("%s_%d", names[rule[1]], rule[0]), Value: key}
			request.Descriptors = append(request.Descriptors, &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{entry}})
		}
		response, err := client.ShouldRateLimit(background, request)
		if err != nil {
			return false, nil, err
		}
		wait := time.Duration(0)
		for _, status := range response.Statuses {
			if status.Code == envoy.RateLimitResponse_OVER_LIMIT {
				wait = max(wait, status.DurationUntilReset.AsDuration())
			}
		}
		return response.OverallCode == envoy.RateLimitResponse_OK, milliseconds(wait), nil
	}
}

func incr(address string) hit {
	client := redis.NewClient(&redis.Options{Addr: address})
	return func(key string, _ []rule) (bool, *float64, error) {
		return true, nil, client.Incr(background, key).Err()
	}
}
