"""Sliding logs as a busy client keeps them.

The cost of a log depends on its entries. The logs of these rows start with 60 requests spread evenly over their window
of a minute. Then the load adds a few entries a second to each of 100,000 keys, while one a second grows too old and is
dropped. No limit is reached, so every check is allowed. After the run load.py counts the entries: still about 60.

The script with a list cuts it by number and not by age: the list keeps as many entries as its largest limit. It starts
full, with entries at equal distances.
"""

import time

from . import scripts
from .wire import SEED

ENTRIES = 60
WINDOW_S = 60
WINDOW = f"{WINDOW_S}s"

# Four rules on one log of 60 entries. None of them denies.
FOUR_RULES = [(40, 1), (60, 10), (80, 30), (100, WINDOW_S)]
FOUR_RULES_FLAT = [number for rule in FOUR_RULES for number in rule]
LARGEST_LIMIT = 100

BATCH = 1_000


def times_us(entries, span_s):
    """Evenly spaced times up to now, oldest first."""
    now, step = time.time_ns() // 1000, span_s * 1_000_000 / entries
    return [now - int(step * back) for back in reversed(range(entries))]


def batches(items):
    return (items[first : first + BATCH] for first in range(0, len(items), BATCH))


def log(entries, span_s, *rules):
    return lambda: [("RL.CHECK", SEED, "AT", at, *rules) for at in times_us(entries, span_s)]


def twin(entries, span_s, rule):
    """The log of clients/script/ratelimit.lua, which answers as the module does and takes only keys that end in
    `:script`."""
    key = f"{SEED}:script"
    checks = lambda: [scripts.twin("AT", at, rule, key=key) for at in times_us(entries, span_s)]
    return lambda: [*checks(), ("RENAME", key, SEED)]


def floor(entries, span_s, *numbers):
    return lambda: [("FLOOR.LOG", SEED, *numbers, at) for at in times_us(entries, span_s)]


def plain_list(entries, span_s, form=str):
    def seed():
        values = [form(at) for at in times_us(entries, span_s)]
        return [("RPUSH", SEED, *batch) for batch in batches(values)] + [("EXPIRE", SEED, 3600)]

    return seed


def sorted_set(entries, span_s):
    def seed():
        pairs = [word for at in times_us(entries, span_s) for word in (at, at)]
        return [("ZADD", SEED, *batch) for batch in batches(pairs)] + [("EXPIRE", SEED, 3600)]

    return seed
