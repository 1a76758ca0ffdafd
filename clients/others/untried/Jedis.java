// Not run.

final RedisClient redis = RedisClient.builder().hostAndPort("127.0.0.1", 6379).clientConfig(
    DefaultJedisClientConfig.builder().connectionTimeoutMillis(100).socketTimeoutMillis(100).build()).build();

ProtocolCommand check = () -> "RL.CHECK".getBytes(StandardCharsets.UTF_8);
List<Long> reply = (List<Long>) redis.executeCommand(new CommandArguments(check).key(key).addObjects((Object[]) rules));
