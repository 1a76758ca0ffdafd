"""Bytes per key: how much each of 100,000 keys with names of 14 bytes adds to used_memory.

This includes the name, the entries in the tables of keys and of expiries, and the growth of these tables, which any key
costs. Each kind has a new server, and is measured when the tables have stopped growing: a growing table is in memory
twice.

The server shares the numbers below 10,000 between values, so a plain counter costs only its entry. Our log is filled by
60 rounds of checks, or filled once and copied with its spare capacity, which counts as well. Lists and
sorted sets have no spare capacity: they are filled once and copied.

Bytes per hold: how much each hold adds, on 10 keys with 10,000 holds each, with ids of 16 bytes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from . import Failed, holds, logs, scripts, wire
from .rows import KEYS, LUA, NATIVE, OURS, REDIS_CELL, check
from .servers import LOAD_OURS, LOAD_REDIS_CELL, Server
from .wire import KEY

# Four rules over very different periods, and sixty requests over a day.
A_DAY_OF_RULES = ("1/s", "20/m", "200/h", "800/d")
DAY_S = 86_400

# The rules of keys that were checked once.
RULES = (
    "bucket:1000/d",
    "bucket:1000/d,name=api",
    "leaky:1000/d",
    "fixed:1000/d",
    "window:1000/d",
    "window:1000/d,res=24",
    "bucket:1000/d fixed:10000/month",
    "HOLD a EX 86400 slots:10",
    "HOLD a EX 86400 bucket:1000/d",
    "META alice bucket:1000/d",
)

GROWTH_S = 1.5
REST_S = 15
JITTER = 10_000  # a tenth of a byte a key

HOLDING_KEYS = 10
HOLDS = 10_000


@dataclass(frozen=True)
class Kind:
    name: str
    family: str
    command: tuple = ()
    passes: int = 1
    seed: Callable | None = None

    part = "memory"


@dataclass(frozen=True)
class HoldKind:
    """Holds of one kind: the rules under which they are taken."""

    name: str
    rules: tuple

    part = "hold memory"
    family = OURS


def hold_kinds():
    return [
        HoldKind("hold, bucket", ("bucket:1000000/h",)),
        HoldKind("hold, fixed", ("fixed:1000000/h",)),
        HoldKind("hold, slots", ("slots:1000000",)),
        HoldKind("hold, bucket and fixed", ("bucket:1000000/h", "fixed:1000000/h")),
        HoldKind("hold, slots, bucket and fixed", ("slots:1000000", "bucket:1000000/h", "fixed:1000000/h")),
    ]


def seconds(time_us):
    """A time as Python's time.time() prints it."""
    return f"{time_us / 1_000_000:.6f}"


def kinds():
    count, window = logs.ENTRIES, logs.WINDOW_S

    def copies(name, seed):
        return Kind(f"{name} of {count}", LUA, (), 0, seed)

    return [
        Kind("counter (INCR)", NATIVE, ("INCR", KEY)),
        Kind("string of 16 bytes, with TTL", NATIVE, ("SET", KEY, "0123456789abcdef", "EX", 86400)),
        *(Kind(f"RL.CHECK {rule}", OURS, check(*rule.split())) for rule in RULES),
        Kind("CL.THROTTLE, ours", OURS, ("CL.THROTTLE", KEY, 999, 1000, 86400)),
        Kind("CL.THROTTLE, redis-cell", REDIS_CELL, ("CL.THROTTLE", KEY, 999, 1000, 86400)),
        Kind("Lua GCRA", LUA, scripts.call("gcra", 999, 1000, 86400)),
        Kind("Lua token bucket (hash)", LUA, scripts.call("token_bucket", 1000, 1000 / 86400)),
        *(Kind(f"clients/script {rule}", LUA, scripts.twin(rule)) for rule in ("bucket:1000/d", "fixed:1000/d", "window:1000/d")),
        copies("clients/script log", logs.twin(count, window, f"log:{count}/h")),
        *(Kind(f"RL.CHECK log of {n}", OURS, check(f"log:{count}/h"), passes=n) for n in (1, 10)),
        Kind(f"RL.CHECK log of {count}", OURS, check(f"log:{count}/h"), passes=count),
        Kind(f"RL.CHECK log of {count} over a day", OURS, (), 0, logs.log(count, DAY_S, *A_DAY_OF_RULES)),
        copies("Lua list, whole microseconds,", logs.plain_list(count, window)),
        copies("Lua list, floats,", logs.plain_list(count, window, seconds)),
        copies("Lua sorted set", logs.sorted_set(count, window)),
    ]


def used_at_rest(server):
    """used_memory once the tables of keys have stopped growing, so that only the server's housekeeping changes it."""
    time.sleep(GROWTH_S)
    deadline = time.monotonic() + REST_S
    before = None
    while time.monotonic() < deadline:
        used = server.client.info("memory")["used_memory"]
        if before and abs(used - before) < JITTER:
            return used
        before = used
        time.sleep(0.3)
    raise Failed(f"used_memory keeps changing, it was {before} last")


def measure(name, core, kind):
    """Bytes per key."""
    module = LOAD_REDIS_CELL if kind.family == REDIS_CELL else LOAD_OURS
    with Server(name, core, [module]) as server:
        scripts.load_all(server)
        # Connections, buffers and statistics are the same before and after.
        wire.send(server, [])
        server.client.config_resetstat()
        empty = used_at_rest(server)
        wire.fill(server, kind.command, KEYS, kind.passes, kind.seed)
        wire.check_errors(server, kind.name)
        used = used_at_rest(server)
        if server.client.dbsize() != KEYS:
            raise Failed(f"{kind.name}: {server.client.dbsize()} keys, not {KEYS}")
        return (used - empty) / KEYS


def measure_holds(name, core, kind):
    """Bytes per hold."""
    with Server(name, core, [LOAD_OURS]) as server:
        wire.send(server, [])
        server.client.config_resetstat()
        empty = used_at_rest(server)
        keys = [wire.key(number) for number in range(HOLDING_KEYS)]
        for key in keys:
            checks = (holds.held_check(holds.id_of(id), *kind.rules) for id in range(HOLDS))
            wire.send(server, [b"".join(wire.encode(wire.on(check, key)) for check in checks)])
        wire.check_errors(server, kind.name)
        used = used_at_rest(server)
        for key in keys:
            info = server.client.execute_command("RL.INFO", key)
            if HOLDS not in info:
                raise Failed(f"{kind.name}: {key} does not have {HOLDS} holds: {info}")
        return (used - empty) / (HOLDING_KEYS * HOLDS)
