// Package ratelimit asks the module redis-ratelimit, inside Redis or Valkey, which requests may pass, for all
// processes together. It is a limiter on go-redis, with a middleware for net/http.
//
//	limiter, err := ratelimit.FromURL("redis://127.0.0.1", ratelimit.Options{Outage: ratelimit.OutageLocal})
//	if err != nil { ... }
//	defer limiter.Close()
//	reply, err := limiter.Check(ctx, "login:42", []string{"5/15m", "20/d"})
//
// Errors. A wrong value is [ErrMisuse]. No decision of the server is an [OutageError], for which [Options.Outage] chooses
// what a check answers instead. More requests at once than [Options.Concurrency] allows are [ErrSaturated]. The end of
// a context is its own error. Any other error is the server's reply to a wrong request.
//
// A context's deadline bounds every call. Its cancellation ends a wait at once, and any other call when the reply has
// come, at the latest after [Options.Timeout].
package ratelimit
