"""Does a decision cost more as the limit grows, or as there are more keys?

**Limits.** Ten keys have logs filled to limits from 10 to 100,000. The logs stay full although checks are
allowed and logged: each check drops the oldest entry and appends one. Our rule is a `shadow`, which is charged but
never denies. Lua scripts have no shadows, so their windows are chosen for the rate at which they run. For the sorted
set, about as many requests as the limit fall into the window. For the list, the oldest entry is ten times as old as the
window, so it denies nothing.

**Keys.** The same command on 1 to 1,000,000 keys: only the visited memory grows, for INCR as for our command.
"""

from . import logs, scripts
from .rows import ALLOWED, LIMITED, LUA, NATIVE, OURS, Row, check
from .wire import KEY

LIMITS = [10, 100, 1_000, 10_000, 100_000]
FILLED_KEYS = 10

# About how many decisions a second a script makes.
LUA_RATE = 80_000

NUMBERS_OF_KEYS = [1, 100, 10_000, 1_000_000]

# A burst so large that one key takes the whole load, and a period so long that no key expires during a run.
ENDLESS = "bucket:1000000/h,burst=1000000000"


def filled_logs(limit):
    rule, seed = f"log:{limit}/h", logs.log(limit, 60, f"log:{limit}/h")
    window_us = limit * FILLED_KEYS * 1_000_000 // LUA_RATE
    yield "RL.CHECK log, allowed", OURS, ALLOWED, check(f"{rule},shadow"), seed
    yield "RL.CHECK log, denied", OURS, LIMITED, check(rule), seed
    call = scripts.call("sliding_log_list", limit, window_us // 10)
    yield "Lua list, allowed", LUA, ALLOWED, call, logs.plain_list(limit, 60)
    call = scripts.call("sliding_log_zset", 10**9, window_us)
    yield "Lua sorted set, allowed", LUA, ALLOWED, call, logs.sorted_set(limit, window_us / 1_000_000)


def limits():
    for limit in LIMITS:
        for series, family, verdict, command, seed in filled_logs(limit):
            yield Row(
                f"{series}, limit {limit}",
                family,
                command,
                part="limits",
                keys=FILLED_KEYS,
                verdict=verdict,
                seed=seed,
                entries=(("RL.INFO", KEY), limit) if family == OURS else None,
                series=series,
                x=limit,
            )


def numbers_of_keys():
    for keys in NUMBERS_OF_KEYS:
        for series, family, verdict, command in [
            ("INCR", NATIVE, None, ("INCR", KEY)),
            ("RL.CHECK bucket", OURS, ALLOWED, check(ENDLESS)),
        ]:
            yield Row(
                f"{series}, {keys} key{'s' if keys > 1 else ''}",
                family,
                command,
                part="keys",
                keys=keys,
                verdict=verdict,
                series=series,
                x=keys,
            )


def growth():
    return [*limits(), *numbers_of_keys()]
