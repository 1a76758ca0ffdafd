import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.distributed.ExpirationAfterWriteStrategy;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.lettuce.core.RedisClient;
import java.time.Duration;
import java.util.List;

/** bucket4j, as its documents use it with Lettuce, and INCR by Lettuce alone. */
class Limiters {
    static Adapter.Hit make(String peer, String url) {
        RedisClient client = RedisClient.create(url);
        return switch (peer) {
            case "bucket4j" -> bucket4j(client);
            case "lettuce INCR" -> {
                var commands = client.connect().sync();
                yield (key, rules) -> new Adapter.Answer(commands.incr(key) > 0, null);
            }
            default -> throw new IllegalArgumentException(peer);
        };
    }

    private static Adapter.Hit bucket4j(RedisClient client) {
        var kept = ExpirationAfterWriteStrategy.basedOnTimeForRefillingBucketUpToMax(Duration.ofSeconds(10));
        var buckets = Bucket4jLettuce.casBasedBuilder(client).expirationAfterWrite(kept).build();
        return (key, rules) -> {
            var bucket = buckets.getProxy(key.getBytes(UTF_8), () -> configuration(rules));
            var probe = bucket.tryConsumeAndReturnRemaining(1);
            return new Adapter.Answer(probe.isConsumed(), probe.getNanosToWaitForRefill() / 1e6);
        };
    }

    /** A bucket has all rules, each as a bandwidth. */
    private static BucketConfiguration configuration(List<long[]> rules) {
        var configuration = BucketConfiguration.builder();
        for (long[] rule : rules) {
            configuration.addLimit(limit -> limit.capacity(rule[0]).refillGreedy(rule[0], Duration.ofMillis(rule[1])));
        }
        return configuration.build();
    }
}
