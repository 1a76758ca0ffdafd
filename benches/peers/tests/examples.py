"""The example of each peer's README, or of the documents that it names, with this server's address. tests/test_fair.py
compares its commands with those of our adapter."""

PYTHON = {
    # https://limits.readthedocs.io/en/stable/quickstart.html
    "limits fixed": """
from limits import RateLimitItemPerMinute, storage, strategies
backend = storage.storage_from_string(URL)
strategy = strategies.FixedWindowRateLimiter(backend)
one_per_minute = RateLimitItemPerMinute(1)
strategy.hit(one_per_minute, "test_namespace", "foo")
""",
    "limits moving": """
from limits import RateLimitItemPerMinute, storage, strategies
backend = storage.storage_from_string(URL)
strategy = strategies.MovingWindowRateLimiter(backend)
one_per_minute = RateLimitItemPerMinute(1)
strategy.hit(one_per_minute, "test_namespace", "foo")
""",
    "limits sliding": """
from limits import RateLimitItemPerMinute, storage, strategies
backend = storage.storage_from_string(URL)
strategy = strategies.SlidingWindowCounterRateLimiter(backend)
one_per_minute = RateLimitItemPerMinute(1)
strategy.hit(one_per_minute, "test_namespace", "foo")
""",
    # its README, RedisBucket
    "pyrate-limiter": """
from pyrate_limiter import Duration, Limiter, Rate, RedisBucket
from redis import ConnectionPool, Redis
rates = [Rate(5, Duration.MINUTE * 2)]
redis_db = Redis(connection_pool=ConnectionPool.from_url(URL))
bucket = RedisBucket.init(rates, redis_db, "bucket-key")
limiter = Limiter(bucket)
limiter.try_acquire("my-resource", blocking=False)
""",
    # its README, GCRA & token bucket
    "pyrate-limiter GCRA": """
from redis import Redis
from pyrate_limiter import Duration, Limiter, Rate, RedisStateStore, StateBucket
redis = Redis.from_url(URL)
store = RedisStateStore(redis, "my-key")
bucket = StateBucket([Rate(1000, Duration.MINUTE)], store=store)
limiter = Limiter(bucket)
limiter.try_acquire("my-resource", blocking=False)
""",
    # its README, Redis, with a function call instead of the decorator
    "throttled-py bucket": """
from throttled import RateLimiterType, Throttled, store
throttle = Throttled(using=RateLimiterType.TOKEN_BUCKET.value, quota="1/m", store=store.RedisStore(server=URL, options={}))
throttle.limit("/api/products", 1)
""",
    "throttled-py gcra": """
from throttled import RateLimiterType, Throttled, store
throttle = Throttled(using=RateLimiterType.GCRA.value, quota="1/m", store=store.RedisStore(server=URL, options={}))
throttle.limit("/api/products", 1)
""",
    # README of redis-cell
    "redis-cell": """
import redis
redis.from_url(URL).execute_command("CL.THROTTLE", "user123", 15, 30, 60, 1)
""",
    # https://redis.io/docs/latest/commands/increx/
    "INCREX": """
import redis
redis.from_url(URL).execute_command("INCREX", "user:42", "UBOUND", 100, "EX", 60, "ENX")
""",
    # https://redis.io/docs/latest/commands/incr/, rate limiter 2
    "INCR, EXPIRE": """
import redis
client = redis.from_url(URL)
if client.incr("203.0.113.9") == 1:
    client.expire("203.0.113.9", 1)
""",
}

NODE = {
    # its wiki, Redis
    "rate-limiter-flexible": """
import Redis from 'ioredis';
import { RateLimiterRedis } from 'rate-limiter-flexible';
const rateLimiter = new RateLimiterRedis({ storeClient: new Redis(URL), points: 5, duration: 5 });
await rateLimiter.consume('203.0.113.9');
""",
    # its README, ioredis
    "rate-limit-redis": """
import { rateLimit } from 'express-rate-limit';
import { RedisStore } from 'rate-limit-redis';
import RedisClient from 'ioredis';
const client = new RedisClient(URL);
const limiter = rateLimit({
  windowMs: 15 * 60 * 1000, max: 100, standardHeaders: true, legacyHeaders: false,
  store: new RedisStore({ sendCommand: (command, ...args) => client.call(command, ...args) }),
});
const request = { ip: '203.0.113.9', app: { get: () => false }, headers: {} };
await new Promise((resolve) => limiter(request, { setHeader() {} }, resolve));
""",
    # its README
    "@fastify/rate-limit": """
import Fastify from 'fastify';
import rateLimit from '@fastify/rate-limit';
import Redis from 'ioredis';
const fastify = Fastify();
const redis = new Redis(URL, { connectTimeout: 500, maxRetriesPerRequest: 1 });
await fastify.register(rateLimit, { max: 100, timeWindow: '1 minute', redis });
fastify.get('/', (request, reply) => { reply.send({ hello: 'world' }); });
await fastify.inject('/');
""",
    # its README, Clustering and Group, with a reservoir, and refusing what would have to wait
    "bottleneck": """
import Bottleneck from 'bottleneck';
import Redis from 'ioredis';
const { hostname, port } = new globalThis.URL(URL);
const group = new Bottleneck.Group({
  reservoir: 100, reservoirRefreshAmount: 100, reservoirRefreshInterval: 60 * 1000,
  highWater: 0, strategy: Bottleneck.strategy.OVERFLOW,
  datastore: 'ioredis', clientOptions: { host: hostname, port }, Redis,
});
await group.key('203.0.113.9').schedule(async () => 1);
""",
}
