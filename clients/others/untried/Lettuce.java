// Not run.

enum Module implements ProtocolKeyword {
    CHECK;
    public byte[] getBytes() { return "RL.CHECK".getBytes(StandardCharsets.US_ASCII); }
}

RedisClient client = RedisClient.create(RedisURI.builder().withHost("127.0.0.1").withPort(6379)
    .withTimeout(Duration.ofMillis(100)).build());
client.setOptions(ClientOptions.builder()
    .socketOptions(SocketOptions.builder().connectTimeout(Duration.ofMillis(100)).build())
    .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS).build());

List<Long> reply = client.connect().sync().dispatch(Module.CHECK, new IntegerListOutput<>(StringCodec.UTF8),
    new CommandArgs<>(StringCodec.UTF8).addKey(key).addValues(List.of(rules)));
