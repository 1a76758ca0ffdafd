// Not run.

var options = ConfigurationOptions.Parse("127.0.0.1:6379");
(options.ConnectTimeout, options.SyncTimeout, options.AsyncTimeout) = (250, 100, 100);
options.AbortOnConnectFail = false;
options.BacklogPolicy = BacklogPolicy.FailFast;
var redis = (await ConnectionMultiplexer.ConnectAsync(options)).GetDatabase();

object[] arguments = [(RedisKey)key, .. rules];
var reply = (long[])await redis.ExecuteAsync("RL.CHECK", arguments);
