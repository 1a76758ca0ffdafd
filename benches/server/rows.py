"""What is compared: one command a decision, pipelined, on 100,000 random keys.

INCR and SET show what the server itself can do, and so do floors: commands of a module in C (c/floor.c) that open a
key, reply and replicate as any module must, with as little as possible in between.

Where the limit does not matter it is 1000 a day: a run asks each key only a few times, so every check is allowed, and
the state is that of an active client, neither new nor idle. Denied rows have a limit of one a day or a year, which is
used up when the keys are filled. After each run load.py checks what the row claims.
"""

from collections.abc import Callable
from dataclasses import dataclass

from . import logs, scripts
from .wire import KEY

KEYS = 100_000

NATIVE, FLOOR, OURS, REDIS_CELL, LUA = "native", "C floor", "ours", "redis-cell", "Lua"

ALLOWED, LIMITED = 0, 1

# Lua takes several times as long, and its rows need less precision.
LUA_SHARE = 0.25


@dataclass(frozen=True)
class Row:
    """A command under load, and how to prepare its keys."""

    name: str
    family: str
    command: tuple
    part: str = "throughput"
    keys: int = KEYS
    #: The verdict of every reply; None for commands that decide nothing.
    verdict: int | None = None
    #: The command that fills the keys, if the measured command does not.
    fill: tuple | None = None
    #: Makes a key. All other keys start as copies of it.
    seed: Callable | None = None
    #: Sent before the keys are filled. The row is skipped on servers without such a command.
    setup: tuple | None = None
    #: The command that counts a key's entries, and roughly how many there are after the run.
    entries: tuple | None = None
    #: The position of the row in its series: a limit or a number of keys.
    series: str | None = None
    x: int | None = None

    @property
    def share(self):
        """The fraction of a run's requests that this row makes."""
        return LUA_SHARE if self.family == LUA else 1

    @property
    def host(self):
        """The server that has the command: two modules have CL.THROTTLE, and floors are measured without our module."""
        return self.family if self.family in (REDIS_CELL, FLOOR) else OURS


INCR = Row("INCR", NATIVE, ("INCR", KEY))


def check(*rules):
    return ("RL.CHECK", KEY, *rules)


def floors():
    """ADD and ADDEX decide nothing, and reply that they allow."""

    def floor(name, command, *arguments, verdict=ALLOWED, **more):
        return Row(f"C floor, {name}", FLOOR, (command, KEY, *arguments), verdict=verdict, **more)

    yield floor("add one", "FLOOR.ADD")
    yield floor("add one, expire, replicate", "FLOOR.ADDEX")
    yield floor("GCRA, allowed", "FLOOR.GCRA", 999, 1000, 86400)
    yield floor("GCRA, denied", "FLOOR.GCRA", 0, 1, 86400, verdict=LIMITED)
    count, window, rules = logs.ENTRIES, logs.WINDOW_S, logs.FOUR_RULES_FLAT
    entries = (("FLOOR.ENTRIES", KEY), count)
    yield floor("4 log rules, allowed", "FLOOR.LOG", *rules, seed=logs.floor(count, window, *rules), entries=entries)


def ours(name, verdict, command, **more):
    return Row(f"{name}, {'allowed' if verdict == ALLOWED else 'denied'}", OURS, command, verdict=verdict, **more)


def algorithms():
    for allowed, denied in [
        ("bucket:1000/d", "bucket:1/d"),
        ("fixed:1000/d", "fixed:1/366d"),
        ("window:1000/d", "window:1/366d"),
        ("leaky:1000/d,queue=1000", "leaky:1/d,queue=0"),
    ]:
        name = f"RL.CHECK {allowed.split(':')[0]}"
        yield ours(name, ALLOWED, check(allowed))
        yield ours(name, LIMITED, check(denied))


def sliding_logs():
    count, window = logs.ENTRIES, logs.WINDOW_S
    entries = (("RL.INFO", KEY), count)
    rule, full = f"log:1000/{logs.WINDOW}", f"log:{count}/h"
    name = f"RL.CHECK log of {count}"
    yield ours(name, ALLOWED, check(rule), seed=logs.log(count, window, rule), entries=entries)
    yield ours(name, LIMITED, check(full), seed=logs.log(count, window, full), entries=entries)

    rules = [f"log:{limit}/{seconds}s" for limit, seconds in logs.FOUR_RULES]
    four = {"seed": logs.log(count, window, *rules), "entries": entries}
    yield ours("RL.CHECK 4 log rules", ALLOWED, check(*rules), **four)
    policy = ("RL.POLICY", "SET", "four", *rules)
    yield ours("RL.CHECK 4 log rules by policy", ALLOWED, check("@four"), setup=policy, **four)


def throttles():
    for family in (OURS, REDIS_CELL):
        for verdict, arguments in ((ALLOWED, (999, 1000, 86400)), (LIMITED, (0, 1, 86400))):
            name = f"CL.THROTTLE, {family}, {'allowed' if verdict == ALLOWED else 'denied'}"
            yield Row(name, family, ("CL.THROTTLE", KEY, *arguments), verdict=verdict)


def lua_scripts():
    def lua(name, script, *arguments, **more):
        return Row(f"Lua {name}", LUA, scripts.call(script, *arguments), verdict=ALLOWED, **more)

    yield lua("fixed window", "fixed_window", 1000, 86400)
    yield lua("sliding counter", "sliding_counter", 1000, 86400)
    yield lua("token bucket", "token_bucket", 1000, 1000 / 86400)
    yield lua("GCRA", "gcra", 999, 1000, 86400)
    for rule in ("bucket:1000/d", "fixed:1000/d", "window:1000/d"):
        yield Row(f"clients/script {rule}", LUA, scripts.twin(rule), verdict=ALLOWED)
    yield Row("clients/script bucket, denied", LUA, scripts.twin("bucket:1/d"), verdict=LIMITED)
    count, window, largest = logs.ENTRIES, logs.WINDOW_S, logs.LARGEST_LIMIT
    rule = f"log:1000/{logs.WINDOW}"
    seed = logs.twin(count, window, rule)
    yield Row(f"clients/script log of {count}", LUA, scripts.twin(rule), verdict=ALLOWED, seed=seed)
    yield lua(
        f"sorted set of {count}",
        "sliding_log_zset",
        1000,
        window * 1_000_000,
        seed=logs.sorted_set(count, window),
        entries=(("ZCARD", KEY), count),
    )
    yield lua(
        f"list of {largest}, 4 rules",
        "sliding_log_list",
        *(number for limit, seconds in logs.FOUR_RULES for number in (limit, seconds * 1_000_000)),
        seed=logs.plain_list(largest, window * largest / count),
        entries=(("LLEN", KEY), largest),
    )


def throughput():
    bucket = check("bucket:1000/d")
    return [
        INCR,
        Row("SET EX", NATIVE, ("SET", KEY, "v", "EX", 60)),
        *floors(),
        Row("RL.PEEK bucket", OURS, ("RL.PEEK", *bucket[1:]), fill=bucket, verdict=ALLOWED),
        *algorithms(),
        *sliding_logs(),
        *throttles(),
        *lua_scripts(),
    ]
