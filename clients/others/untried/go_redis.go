// Not run.

var client = redis.NewClient(&redis.Options{
	Addr:        "127.0.0.1:6379",
	DialTimeout: 100 * time.Millisecond, DialerRetries: 1,
	ReadTimeout: 100 * time.Millisecond, WriteTimeout: 100 * time.Millisecond, MaxRetries: -1,
})

reply, err := client.Do(ctx, append([]any{"RL.CHECK", key}, rules...)...).Int64Slice()
