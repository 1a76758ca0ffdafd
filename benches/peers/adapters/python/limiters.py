"""Packages of Python, each as its README uses it with Redis."""

import functools
import time

from speak import in_order

UNITS = {1000: "second", 60_000: "minute", 3_600_000: "hour"}


def limits(strategy):
    """limits: one call a rule. The wait takes a second call, get_window_stats."""
    from limits import parse, storage, strategies

    parse = functools.cache(parse)

    def make(url):
        limiter = getattr(strategies, strategy)(storage.storage_from_string(url))

        def hit(key, rule):
            item = parse(f"{rule[0]}/{UNITS[rule[1]]}")
            if limiter.hit(item, key):
                return True, 0
            return False, max(0.0, limiter.get_window_stats(item, key).reset_time - time.time()) * 1000

        return in_order(hit)

    return make


def pyrate_limiter(url):
    """pyrate-limiter: a bucket a key, with all of its rules. Without blocking it announces no wait."""
    from pyrate_limiter import Limiter, Rate, RedisBucket
    from redis import ConnectionPool, Redis

    redis = Redis(connection_pool=ConnectionPool.from_url(url))

    @functools.lru_cache(20_000)
    def limiter_of(key, rules):
        return Limiter(RedisBucket.init([Rate(*rule) for rule in rules], redis, key))

    def hit(key, rules):
        rules = sorted(map(tuple, rules), key=lambda rule: rule[1])  # it asks for them so
        return limiter_of(key, tuple(rules)).try_acquire(key, blocking=False), None

    return hit


def pyrate_gcra(url):
    """pyrate-limiter's GCRA, which keeps a number a key."""
    from pyrate_limiter import Limiter, Rate, RedisStateStore, StateBucket
    from redis import Redis

    redis = Redis.from_url(url)

    @functools.lru_cache(20_000)
    def limiter_of(key, rules):
        return Limiter(StateBucket([Rate(*rule) for rule in rules], store=RedisStateStore(redis, key)))

    def hit(key, rules):
        rules = sorted(map(tuple, rules), key=lambda rule: rule[1])
        return limiter_of(key, tuple(rules)).try_acquire(key, blocking=False), None

    return hit


def throttled(using):
    """throttled-py: one rule a call; waits in seconds."""
    from throttled import Throttled, store

    def make(url):
        redis = store.RedisStore(server=url, options={})

        @functools.cache
        def throttle(limit, period_ms):
            return Throttled(using=using, quota=f"{limit}/{UNITS[period_ms][0]} burst {limit}", store=redis)

        def hit(key, rule):
            result = throttle(*rule).limit(key, cost=1)
            return not result.limited, result.state.retry_after * 1000

        return in_order(hit)

    return make


def own(**options):
    """Our package, by its README."""
    from rl_limits import RateLimiter

    def make(url):
        limiter = RateLimiter.from_url(url, outage="local", **options)
        unit = {1000: "s", 60_000: "m", 3_600_000: "h"}

        @functools.cache
        def texts(*rules):
            return [f"{limit}/{unit[period_ms]}" for limit, period_ms in rules]

        def hit(key, rules):
            reply = limiter.check(key, texts(*map(tuple, rules)))
            return reply.allowed, reply.wait_ms

        return hit

    return make


MAKERS = {
    "limits fixed": limits("FixedWindowRateLimiter"),
    "limits moving": limits("MovingWindowRateLimiter"),
    "limits sliding": limits("SlidingWindowCounterRateLimiter"),
    "pyrate-limiter": pyrate_limiter,
    "pyrate-limiter GCRA": pyrate_gcra,
    "throttled-py bucket": throttled("token_bucket"),
    "throttled-py gcra": throttled("gcra"),
    "ours python": own(),
    "ours python script": own(engine="script"),
}
