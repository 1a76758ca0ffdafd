"""Waits: is the wait that a denial announces the time until a request passes?

early    a retry when the announced wait is over, counted from the answer, is denied. By how much: until the last of the
         denials, when it is asked again each millisecond.
late     on another key, asked again each millisecond, a request passes over a millisecond before the announced wait,
         counted from the question, is over. By how much: the rest of the wait.

Between question and answer the server decides, so an early or late wait is one for certain. All under 10 a second.
"""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from .setting import RULE, Setting

CALLERS = 4
TRIALS = 20
MS = 0.001
#: A machine that is busy may delay a retry: then it says nothing about early waits, and is made again.
DELAY_S = 0.003
GIVE_UP_S = 3.0


def denied(caller, key):
    """The limit's requests at random times within a random part of the period, then at once until one is denied: the denial."""
    limit, period_ms = RULE
    began, part_s = time.monotonic(), random.uniform(0, 0.95) * period_ms / 1000
    for at in sorted([0.0, *(random.uniform(0, part_s) for _ in range(limit - 2)), part_s]):
        hit = caller.hit(key, RULE, at=began + at)
    while hit.ok:
        hit = caller.hit(key, RULE)
    return hit


def passes(caller, key, denial):
    """Asks each millisecond until a request passes: that one, and the last denial."""
    began = denial.got
    while not (hit := caller.hit(key, RULE, at=time.monotonic() + MS)).ok and hit.got < began + GIVE_UP_S:
        denial = hit
    return hit, denial


def early_ms(caller, key):
    """By how much the announced wait was too short, or 0; None: no wait was announced."""
    for attempt in range(5):
        denial = denied(caller, f"{key}:{attempt}")
        if denial.wait_ms is None:
            return None
        due = denial.got + denial.wait_ms / 1000
        retry = caller.hit(f"{key}:{attempt}", RULE, at=due)
        if not retry.ok:
            _, last = passes(caller, f"{key}:{attempt}", retry)
            return 1000 * (last.sent - due)
        if retry.sent < due + DELAY_S:
            break
    return 0.0


def late_ms(caller, key):
    """By how much the announced wait was too long, or 0."""
    denial = denied(caller, key)
    passed, _ = passes(caller, key, denial)
    late = denial.wait_ms - 1000 * (passed.got - denial.sent)
    return late if late > 1 else 0.0


def measure(peer):
    def trial(caller, number):
        early = early_ms(caller, f"early:{number}")
        return (None, None) if early is None else (early, late_ms(caller, f"late:{number}"))

    with Setting(peer) as setting, ThreadPoolExecutor(CALLERS) as pool:
        callers = setting.callers(CALLERS)
        turns = pool.map(lambda at: [trial(callers[at], n) for n in range(at, TRIALS, CALLERS)], range(CALLERS))
        found = [each for turn in turns for each in turn]
    if found[0][0] is None:
        return {"early": None, "late": None}
    early, late = ([each[way] for each in found if each[way]] for way in (0, 1))
    shares = {"early": len(early) / TRIALS, "late": len(late) / TRIALS}
    return {**shares, "early_ms": median(early) if early else 0.0, "late_ms": median(late) if late else 0.0}
