"""Rounds: each measures every row once and INCR several times, on new servers, in a new random order.

The servers are new because addresses and hash seeds, and so the speed, differ between processes. The order is random so
that a row does not always profit from the caches of the same previous row. All rows are compared with INCR, so each
round measures it several times, spread over the round: on a shared machine the rate of the shortest command varies
most.
"""

import random
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import redis

from . import load, machine, roundtrips, scripts, servers
from .load import Load
from .rows import FLOOR, INCR, OURS, REDIS_CELL

# How often a round measures INCR; less often if the round has fewer rows.
INCR_RUNS = 6


@dataclass(frozen=True)
class Setting:
    """What the rounds run on, and under which load."""

    server: str
    cores: machine.Cores
    load: Load
    aof: bool = False
    replica: bool = False


@dataclass
class Measured:
    #: What each round measured, by name: load.Sample for rows, microseconds for methods.
    rows: dict = field(default_factory=dict)
    methods: dict = field(default_factory=dict)
    skipped: dict = field(default_factory=dict)


def say(text):
    """Prints progress to stderr: stdout is for the tables."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def hosts(setting, kinds):
    """The servers of a round, by the family of their module."""
    durability = servers.AOF if setting.aof else []
    modules = {OURS: servers.LOAD_OURS, REDIS_CELL: servers.LOAD_REDIS_CELL, FLOOR: servers.LOAD_FLOOR}
    with ExitStack() as stack:
        running = {}
        for kind in kinds:
            lines = [*durability, modules[kind]]
            running[kind] = stack.enter_context(servers.Server(setting.server, setting.cores.server, lines))
            if setting.replica:
                replica = servers.replica_of(running[kind], setting.cores.replica, lines)
                servers.wait_for_link(stack.enter_context(replica))
        scripts.load_all(running[OURS])
        yield running


def prepare(server, row):
    """Prepares a row. Returns the reason if it cannot be measured here."""
    try:
        server.client.execute_command(*row.setup)
    except redis.ResponseError as error:
        if "unknown command" not in str(error).lower():
            raise
        return f"no {row.setup[0]} here"
    return None


def in_order(items, order):
    """All items in a random order, with INCR spread among them."""
    others = [item for item in items if item != INCR]
    order.shuffle(others)
    if len(others) == len(items):
        return others
    runs = min(INCR_RUNS, len(others)) or 1
    bounds = [len(others) * run // runs for run in range(runs + 1)]
    return [item for start, end in pairwise(bounds) for item in (INCR, *others[start:end])]


def run_round(setting, rows, methods, order, measured):
    samples = {}
    with hosts(setting, sorted({OURS, *(row.host for row in rows)})) as running:
        for item in in_order([*rows, *methods], order):
            if item in methods:
                us = roundtrips.measure(running[OURS], item)
                measured.methods.setdefault(item.name, []).append(us)
                say(f"  {item.name:<48} {us:>10.1f} us")
                continue
            server = running[item.host]
            why_not = item.setup and prepare(server, item)
            if why_not:
                measured.skipped[item.name] = why_not
                say(f"  {item.name:<48}    skipped: {why_not}")
                continue
            sample = load.measure(server, item, setting.load)
            samples.setdefault(item.name, []).append(sample)
            say(f"  {item.name:<48} {sample.rate:>10,.0f}/s")
    for name, runs in samples.items():
        measured.rows.setdefault(name, []).append(load.median_of(runs))


def run(setting, rows, methods, rounds):
    measured = Measured()
    for number in range(1, rounds + 1):
        say(f"round {number} of {rounds}")
        run_round(setting, rows, methods, random.Random(number), measured)
    return measured
