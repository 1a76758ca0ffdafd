"""What runs in a server, called by redis-py: our commands and those of others, and the scripts that everybody writes."""

from pathlib import Path

import redis
from speak import in_order

UNITS = {1000: "s", 60_000: "m", 3_600_000: "h"}
SCRIPTS = Path(__file__).parents[3] / "server/lua"


def ours(algorithm):
    """RL.CHECK, with all rules in one command."""

    def make(url):
        client = redis.from_url(url)

        def hit(key, rules):
            texts = [f"{algorithm}:{limit}/{UNITS[period_ms]}" for limit, period_ms in rules]
            verdict, _, _, wait_ms, _ = client.execute_command("RL.CHECK", key, *texts)
            return verdict == 0, wait_ms

        return hit

    return make


def redis_cell(url):
    """CL.THROTTLE: limited, limit, remaining, retry and reset in seconds."""
    client = redis.from_url(url)

    def hit(key, rule):
        limit, period_ms = rule
        limited, _, _, retry_s, _ = client.execute_command("CL.THROTTLE", key, limit - 1, limit, period_ms // 1000, 1)
        return limited == 0, max(0, retry_s) * 1000

    return in_order(hit)


def throttlecrab(url):
    """THROTTLE of throttlecrab-server: allowed, limit, remaining, reset and retry in seconds. It knows only RESP2."""
    client = redis.from_url(url, protocol=2)

    def hit(key, rule):
        limit, period_ms = rule
        allowed, _, _, _, retry_s = client.execute_command("THROTTLE", key, limit, limit, period_ms // 1000)
        return allowed == 1, retry_s * 1000

    return in_order(hit)


def increx(url):
    """INCREX, and TTL for the wait."""
    client = redis.from_url(url)

    def hit(key, rule):
        limit, period_ms = rule
        _, added = client.execute_command("INCREX", key, "UBOUND", limit, "EX", period_ms // 1000, "ENX")
        return (True, 0) if int(added) else (False, max(0, client.ttl(key)) * 1000)

    return in_order(hit)


def incr_expire(url):
    """INCR, and EXPIRE after the first; TTL for the wait."""
    client = redis.from_url(url)

    def hit(key, rule):
        limit, period_ms = rule
        count = client.incr(key)
        if count == 1:
            client.expire(key, period_ms // 1000)
        return (True, 0) if count <= limit else (False, max(0, client.ttl(key)) * 1000)

    return in_order(hit)


def script(name, arguments, wait):
    def make(url):
        run = redis.from_url(url).register_script((SCRIPTS / f"{name}.lua").read_text())

        def hit(key, rule):
            reply = run(keys=[key], args=arguments(*rule))
            return reply[0] == 0, reply[wait] if wait else None

        return in_order(hit)

    return make


def incr(url):
    """What all rates are compared with."""
    client = redis.from_url(url)
    return lambda key, rules: (client.incr(key) > 0, None)


MAKERS = {
    "redis-py INCR": incr,
    **{f"ours {algorithm}": ours(algorithm) for algorithm in ("log", "window", "bucket", "fixed")},
    "redis-cell": redis_cell,
    "throttlecrab": throttlecrab,
    "INCREX": increx,
    "INCR, EXPIRE": incr_expire,
    "Lua GCRA": script("gcra", lambda limit, period_ms: (limit - 1, limit, period_ms // 1000), 2),
    "Lua sorted set": script("sliding_log_zset", lambda limit, period_ms: (limit, 1000 * period_ms), None),
}
