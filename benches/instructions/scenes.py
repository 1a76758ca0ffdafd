"""The calls whose instructions are counted: what each finds when it comes, and the verdict it must get."""

from dataclasses import dataclass, field, replace

CALLS = 500
WARM_UP = 50
# Each call of a scene about logs finds a log of its own, filled by one request a minute, the last a minute and a half ago.
# Of 61 requests in an hour and a minute 60 are left under a limit of 60 an hour, and the oldest has just left the hour:
# as in any log that was in use for long, one entry goes where one comes.
ENTRIES = 60
LOGS = 200
MINUTE_US = 60_000_000

BUCKET = "bucket:1000000/s"
FOUR_LOG_RULES = ["10/s", "20/m", "40/30m", "60/h"]
# The case of the first article on limiting with four rules: sixty requests spread over a day.
RULES_OF_A_DAY = ["1/s", "20/m", "200/h", "800/d"]


@dataclass(frozen=True)
class Scene:
    name: str
    calls: list
    verdict: int = 0
    prepare: list = field(default_factory=list)
    #: Whether what is done goes into an append-only file, as it would go to a replica.
    listened: bool = False


def steady(name, *call, verdict=0, prepare=()):
    """The same call of the same key over and over."""
    return Scene(name, [call] * CALLS, verdict, [*prepare, *[call] * WARM_UP])


def on_logs(name, now_us, rules, verdict=0, requests=ENTRIES + 1, prepare=(), apart_us=MINUTE_US):
    """One call a key, of keys with a log each that earlier calls filled."""
    keys = [f"log:{number}" for number in range(LOGS)]
    times = [now_us - apart_us * 3 // 2 - apart_us * age for age in reversed(range(requests))]
    filling = [["RL.CHECK", key, "AT", at_us, *rules] for key in keys for at_us in times]
    return Scene(name, [["RL.CHECK", key, *rules] for key in keys], verdict, [*prepare, *filling])


def told(scene):
    """The same with an append-only file."""
    return replace(scene, name=f"{scene.name}, AOF", listened=True)


def scenes(now_us):
    """All of them, for a server whose clock shows `now_us`."""
    alone = scenes_alone(now_us)
    return alone + [told(scene) for scene in alone if scene.verdict == 0 and "PEEK" not in scene.name]


def scenes_alone(now_us):
    policies = [["RL.POLICY", "SET", "one", BUCKET], ["RL.POLICY", "SET", "four", *FOUR_LOG_RULES]]
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
        Scene("RL.CHECK bucket, new key", new_keys),
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
        on_logs("RL.CHECK policy of 4 log rules, 60 entries", now_us, ["@four"], prepare=policies),
        steady("RL.MCHECK bucket, 2 keys", "RL.MCHECK", 2, "one", "two", BUCKET),
    ]
