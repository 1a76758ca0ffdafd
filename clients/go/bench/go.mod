module bench

go 1.25.0

require (
	github.com/go-redis/redis_rate/v10 v10.0.1
	github.com/redis-ratelimit/redis-ratelimit/clients/go v0.0.0
	github.com/redis/go-redis/v9 v9.22.0
	github.com/ulule/limiter/v3 v3.11.2
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sync v0.18.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
)

replace github.com/redis-ratelimit/redis-ratelimit/clients/go => ..
