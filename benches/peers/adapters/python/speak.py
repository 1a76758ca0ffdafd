"""The protocol of benches/peers/adapter.py, for adapters in Python.

`make(url)` returns `hit(key, rules)`, which returns whether the request passes, and the milliseconds until a retry, or
None where the peer announces none. A rule is a limit and its period in milliseconds. All times are those of the
system's monotonic clock.
"""

import json
import sys
import time


def one(hit, call):
    time.sleep(max(0.0, call.get("at", 0) - time.monotonic()))
    said = {"sent": time.monotonic()}
    try:
        said["ok"], said["wait_ms"] = hit(call["key"], call["rules"])
    except Exception as error:
        said["error"] = f"{type(error).__name__}: {error}"[:200]
    return {**said, "got": time.monotonic()}


def many(hit, call):
    """Hits, one after the other: `count` of them or for `seconds`, at `rate` a second or as fast as the peer answers."""
    began, made, late_us = time.monotonic(), 0, []
    rate, most, ends = call.get("rate"), call.get("count"), began + call.get("seconds", 600)
    while most is None or made < most:
        now = time.monotonic()
        due = began + made / rate if rate else now
        if max(due, now) >= ends:
            break
        time.sleep(max(0.0, due - now))
        hit(f"{call['key']}:{made % call['keys']}", call["rules"])
        made += 1
        late_us.append(int(1e6 * (time.monotonic() - due)))
    late_us.sort()
    quantiles = {name: late_us[int(share * made)] if made else None for name, share in (("p50_us", 0.5), ("p99_us", 0.99))}
    return {"made": made, "seconds": time.monotonic() - began, **quantiles}


def speak(makers):
    _, peer, url = sys.argv
    hit = makers[peer](url)
    print(json.dumps({"ready": peer}), flush=True)
    for line in sys.stdin:
        call = json.loads(line)
        print(json.dumps(many(hit, call) if "keys" in call else one(hit, call)), flush=True)


def in_order(hit):
    """Several rules where a peer has no way to ask for them at once: one after the other, until one denies."""

    def hit_all(key, rules):
        for rule in rules:
            ok, wait_ms = hit(f"{key}:{rule[1]}" if len(rules) > 1 else key, rule)
            if not ok:
                return ok, wait_ms
        return True, 0

    return hit_all
