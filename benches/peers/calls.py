"""Calls: what a decision costs.

commands    those that the caller sends for a request that passes, and for one that is denied (MONITOR, scripts' own aside)
one, eight  decisions a second by one caller, and by eight processes, each of which waits for each answer
server      time of the server's processor for a decision, with that of a service for Envoy
p99         from the time at which each request was due, at 5,000 a second from eight processes

The last four are ratios to `INCR` by the same client library, measured in turn with the peer within each round. No process
is pinned to a core. p99 is None if the callers did not reach 95 % of that rate.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from .setting import AMPLE, RULE, Setting

CALLERS = 8
KEYS = 50
SECONDS = 1.0
A_SECOND = 5000
MARK = "end of the commands"


def commands(setting, act):
    """The commands that clients send meanwhile, as words."""
    with setting.server.client.monitor() as monitor:
        act()
        setting.server.client.echo(MARK)
        seen = []
        for command in monitor.listen():
            if MARK in command["command"]:
                return [each.split() for each in seen]
            if command["client_type"] != "lua" and not command["command"].startswith(("CLIENT", "HELLO", "INFO")):
                seen.append(command["command"])


def of_decisions(setting, caller):
    """The commands of one request that passes, and of one that is denied."""
    caller.hit("warm", RULE)
    passing = commands(setting, lambda: caller.hit("warm", RULE))
    while caller.hit("warm", RULE).ok:
        pass
    return passing, commands(setting, lambda: caller.hit("warm", RULE))


def busy_s(processes):
    """The time of the processor that these processes have used."""
    files = [file for process in processes for file in Path(f"/proc/{process.pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


class Crowd:
    """Eight callers of a peer, which have asked for each of their keys before."""

    def __init__(self, setting, pool):
        self.setting, self.pool = setting, pool
        self.callers = setting.callers(CALLERS)
        self.many(self.callers, count=KEYS)

    def many(self, callers, **how):
        calls = [self.pool.submit(caller.many, f"caller{at}", AMPLE, keys=KEYS, **how) for at, caller in enumerate(callers)]
        return [call.result() for call in calls]

    def turn(self):
        """Decisions a second of one caller and of all, the server's seconds for each, and p99 in microseconds."""
        [one] = self.many(self.callers[:1], seconds=SECONDS)
        processes = [self.setting.server.process, *self.setting.services]
        before = busy_s(processes)
        began = time.monotonic()
        eight = sum(done["made"] for done in self.many(self.callers, seconds=SECONDS))
        took, busy = time.monotonic() - began, busy_s(processes) - before
        paced = self.many(self.callers, seconds=SECONDS, rate=A_SECOND / CALLERS)
        reached = sum(done["made"] for done in paced) >= 0.95 * A_SECOND * SECONDS
        p99 = median(done["p99_us"] for done in paced) if reached else None
        return {"one": one["made"] / one["seconds"], "eight": eight / took, "server": busy / eight, "p99": p99}


def measure(peer, rounds):
    with Setting(peer) as setting, Setting(peer.base) as base, ThreadPoolExecutor(CALLERS) as pool:
        found = {}
        if setting.server.client:
            caller = setting.caller()
            found = dict(zip(("passing", "denied"), map(len, of_decisions(setting, caller))))
        measured, compared = Crowd(setting, pool), Crowd(base, pool)
        turns = [(measured.turn(), compared.turn()) for _ in range(rounds)]
    ratios = {
        name: [own[name] / other[name] if own[name] and other[name] else None for own, other in turns] for name in turns[0][0]
    }
    return {**found, **ratios, "one_a_second": [own["one"] for own, _ in turns]}
