"""The calls whose instructions are counted: the keys that each call finds, and the verdict that it must get."""

from dataclasses import dataclass, field, replace

CALLS = 500
WARM_UP = 50
# In cases about logs each call has its own key. Its log was filled by one request a minute, the last one 90 seconds
# ago. The oldest of its 60 entries has just left the hour, so the call evicts it, as in a log in constant use.
ENTRIES = 60
LOGS = 200
MINUTE_US = 60_000_000

BUCKET = "bucket:1000000/s"
EIGHT_KEYS = [f"key:{number}" for number in range(8)]
FOUR_LOG_RULES = ["10/s", "20/m", "40/30m", "60/h"]
# Four rules over very different periods, and sixty requests over a day.
RULES_OF_A_DAY = ["1/s", "20/m", "200/h", "800/d"]


@dataclass(frozen=True)
class Case:
    name: str
    calls: list
    #: The verdict of each reply; None if the replies differ and are not checked.
    verdict: int | None = 0
    prepare: list = field(default_factory=list)
    #: Whether the server has an append-only file, so that the module propagates as it does to a replica.
    with_aof: bool = False


def steady(name, *call, verdict=0, prepare=()):
    """A call on one key, repeated."""
    return Case(name, [call] * CALLS, verdict, [*prepare, *[call] * WARM_UP])


def on_logs(name, now_us, rules, verdict=0, requests=ENTRIES + 1, prepare=(), apart_us=MINUTE_US):
    """One call per key, on keys whose logs earlier calls filled."""
    keys = [f"log:{number}" for number in range(LOGS)]
    times = [now_us - apart_us * 3 // 2 - apart_us * age for age in reversed(range(requests))]
    filling = [["RL.CHECK", key, "AT", at_us, *rules] for key in keys for at_us in times]
    return Case(name, [["RL.CHECK", key, *rules] for key in keys], verdict, [*prepare, *filling])


def with_aof(case):
    """A case on a server that has an append-only file."""
    return replace(case, name=f"{case.name}, AOF", with_aof=True)


def held(id, *rules):
    return ["RL.CHECK", "key", "HOLD", id, "EX", 3600, *rules]


def on_holds(name, *rules):
    """Alternately takes and settles a hold, while the key has another hold."""
    ids = [f"hold:{number:011}" for number in range(CALLS)]
    calls = [call for id in ids for call in (held(id, *rules), ["RL.SETTLE", "key", id])]
    return Case(name, calls, None, [held("another", *rules), *calls[:WARM_UP]])


def cases(now_us):
    """All cases, for a server whose clock shows `now_us`."""
    plain = plain_cases(now_us)
    return plain + [with_aof(case) for case in plain if case.verdict in (0, None) and "PEEK" not in case.name]


def plain_cases(now_us):
    policies = [["RL.POLICY", "SET", "one", BUCKET], ["RL.POLICY", "SET", "four", *FOUR_LOG_RULES]]
    planned = [*policies, ["RL.PLAN", "key", "one"]]
    new_keys = [["RL.CHECK", f"new:{number}", BUCKET] for number in range(CALLS)]
    return [
        steady("RL.CHECK bucket", "RL.CHECK", "key", BUCKET),
        steady("RL.CHECK fixed", "RL.CHECK", "key", "fixed:1000000/h"),
        steady("RL.CHECK window", "RL.CHECK", "key", "window:1000000/h"),
        steady("RL.CHECK leaky", "RL.CHECK", "key", "leaky:1000000/s"),
        on_logs("RL.CHECK log, 1 entry", now_us, ["60/h"], requests=1),
        on_logs("RL.CHECK log, 60 entries", now_us, ["60/h"]),
        on_logs("RL.CHECK four log rules, 60 entries", now_us, FOUR_LOG_RULES),
        on_logs("RL.CHECK four log rules, 60 entries over a day", now_us, RULES_OF_A_DAY, apart_us=24 * MINUTE_US),
        Case("RL.CHECK bucket, new key", new_keys),
        steady("RL.CHECK bucket, denied", "RL.CHECK", "key", "bucket:1/d", verdict=1),
        steady("RL.CHECK fixed, denied", "RL.CHECK", "key", "fixed:1/366d", verdict=1),
        steady("RL.CHECK window, denied", "RL.CHECK", "key", "window:1/366d", verdict=1),
        steady("RL.CHECK leaky, denied", "RL.CHECK", "key", "leaky:1/d,queue=0", verdict=1),
        on_logs("RL.CHECK log, denied, 60 entries", now_us, ["60/d"], verdict=1, requests=ENTRIES),
        steady("RL.CHECK blocked", "RL.CHECK", "key", BUCKET, verdict=2, prepare=[["RL.BLOCK", "key"]]),
        steady("RL.PEEK bucket", "RL.PEEK", "key", BUCKET, prepare=[["RL.CHECK", "key", BUCKET]]),
        steady("RL.THROTTLE", "RL.THROTTLE", "key", 1000000, 1000000, 1),
        steady("RL.THROTTLE, denied", "RL.THROTTLE", "key", 0, 1, 86400, verdict=1),
        steady("RL.CHECK policy of 1 rule", "RL.CHECK", "key", "@one", prepare=policies),
        steady("RL.CHECK policy of 1 rule, key with a plan", "RL.CHECK", "key", "@one", prepare=planned),
        steady("RL.CHECK plan of 1 rule", "RL.CHECK", "key", "@plan:one", prepare=planned),
        on_logs("RL.CHECK policy of 4 log rules, 60 entries", now_us, ["@four"], prepare=policies),
        steady("RL.MCHECK bucket, 2 keys", "RL.MCHECK", 2, "one", "two", BUCKET),
        steady("RL.MCHECK ANY bucket, the first of 8 keys", "RL.MCHECK", 8, *EIGHT_KEYS, "ANY", BUCKET),
        on_holds("RL.CHECK HOLD bucket, then RL.SETTLE", BUCKET),
        on_holds("RL.CHECK HOLD slots, then RL.SETTLE", "slots:10"),
        steady("RL.CHECK HOLD bucket, repeated", *held("hold:00000000001", BUCKET)),
    ]
