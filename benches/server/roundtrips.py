"""Clients that decide by themselves with several commands, against clients that ask once.

redis-benchmark repeats a single command, so it cannot run such clients. This measures how long an application waits:
microseconds per decision, one decision after the other, on the same keys, over one blocking connection of redis-py.
Most of the time goes to client and loopback, which cost the same for each round trip. Over a network a round trip takes
some hundred microseconds more, and the ratios come closer to the numbers of round trips.

Methods come in pairs: ours, then the method that it replaces.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import redis

from . import Failed, scripts
from .rows import ALLOWED, LUA, NATIVE, OURS
from .wire import KEY, key, on

KEYS = 1_000
DECISIONS = 4_000

LIMIT, PERIOD_S = 1_000_000, 3600

CLIENT = "client"


def ask(*command):
    return lambda client, name: client.execute_command(*on(command, name))[0] == ALLOWED


def incr(client, name):
    return client.incr(name) > 0


def incr_then_expire(client, name):
    count = client.incr(name)
    client.expire(name, PERIOD_S)
    return count <= LIMIT


def sorted_set_in_multi(client, name):
    """Adds before it decides, so it counts denied requests too."""
    now = time.time()
    pipe = client.pipeline(transaction=True)
    pipe.zremrangebyscore(name, 0, now - 1)
    pipe.zcard(name)
    pipe.zadd(name, {repr(now): now})
    pipe.expire(name, PERIOD_S)
    return pipe.execute()[1] < LIMIT


def token_bucket_by_get_and_set(client, name):
    """GET and SET are two commands, so two clients at once can spend the same token."""
    now = time.time()
    tokens, at = map(float, (client.get(name) or f"{LIMIT} {now}").split())
    tokens = min(LIMIT, tokens + (now - at) * LIMIT / PERIOD_S)
    if tokens < 1:
        return False
    client.set(name, f"{tokens - 1} {now}", ex=PERIOD_S)
    return True


@dataclass(frozen=True)
class Method:
    name: str
    family: str
    trips: int
    decide: Callable

    part = "roundtrips"


BASE = Method("INCR, by a client", NATIVE, 1, incr)

METHODS = [
    BASE,
    Method("RL.CHECK fixed, by a client", OURS, 1, ask("RL.CHECK", KEY, "fixed:1000000/h")),
    Method("INCR, then EXPIRE", CLIENT, 2, incr_then_expire),
    Method("RL.CHECK log, by a client", OURS, 1, ask("RL.CHECK", KEY, "log:100000/s")),
    Method("MULTI of ZREMRANGEBYSCORE, ZCARD, ZADD, EXPIRE", CLIENT, 1, sorted_set_in_multi),
    Method("RL.CHECK bucket, by a client", OURS, 1, ask("RL.CHECK", KEY, "bucket:1000000/h")),
    Method("GET, then SET a token bucket", CLIENT, 2, token_bucket_by_get_and_set),
    Method("Lua token bucket, by a client", LUA, 1, ask(*scripts.call("token_bucket", LIMIT, LIMIT / PERIOD_S))),
]


def measure(server, method):
    """Microseconds per decision: the median of a run on existing keys."""
    names = [key(number) for number in range(KEYS)]
    order = random.Random(1).choices(names, k=DECISIONS)
    with redis.Redis(port=server.port, protocol=2, single_connection_client=True) as client:
        for name in names:
            method.decide(client, name)
        times_ns = []
        for name in order:
            start = time.perf_counter_ns()
            allowed = method.decide(client, name)
            times_ns.append(time.perf_counter_ns() - start)
            if not allowed:
                raise Failed(f"{method.name}: {name} was denied")
    server.client.flushall()
    return median(times_ns) / 1000
