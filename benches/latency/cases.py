"""What is compared: a command on 100,000 random keys, or two commands in turn. Without pipelines, the network and the
kernel take most of a reply's time, as PING shows."""

from dataclasses import dataclass

from benches.server import holds, rows
from benches.server.rows import ALLOWED, NATIVE, OURS, Row, check
from benches.server.wire import KEY

# What the load replaces by a number that no earlier request had.
ID = "__id__"

THROTTLECRAB = "throttlecrab"


@dataclass(frozen=True)
class Case:
    row: Row
    #: A second command on the same key, and the integer that it replies.
    then: tuple | None = None
    then_expected: int | None = None

    @property
    def name(self):
        return self.row.name

    @property
    def family(self):
        return self.row.family

    @property
    def host(self):
        return self.family if self.family == THROTTLECRAB else self.row.host

    @property
    def words(self):
        return [*self.row.command, *(["--then", *self.then] if self.then else [])]

    @property
    def expected(self):
        replies = [self.row.verdict] + [self.then_expected] * bool(self.then)
        return ",".join("-" if reply is None else str(reply) for reply in replies)


INCR = Case(rows.INCR)

# Rows of benches/server.
REUSED = [
    "RL.CHECK bucket, allowed",
    "RL.CHECK bucket, denied",
    "RL.CHECK 4 log rules by policy, allowed",
    "RL.CHECK log of 60, allowed",
    "CL.THROTTLE, redis-cell, allowed",
    "Lua GCRA",
    "Lua sorted set of 60",
]

BUCKET = "bucket:1000000/d"


def cases():
    known = {row.name: Case(row) for row in rows.throughput()}
    hold = Row("HOLD, then RL.SETTLE", OURS, holds.held_check(ID, BUCKET), verdict=ALLOWED, fill=check(BUCKET))
    # The load puts another random key in each place.
    eight = Row("RL.MCHECK of 8 keys", OURS, ("RL.MCHECK", 8, *[KEY] * 8, BUCKET), verdict=ALLOWED, fill=check(BUCKET))
    crab = Row("THROTTLE, throttlecrab-server", THROTTLECRAB, ("THROTTLE", KEY, 999, 1000, 86400), verdict=1)
    ours = [known[name] for name in REUSED if known[name].family == OURS]
    others = [known[name] for name in REUSED if known[name].family != OURS]
    settled = Case(hold, ("RL.SETTLE", KEY, ID), 1)
    ping = Case(Row("PING", NATIVE, ("PING",), keys=0))
    return [ping, INCR, *ours, settled, Case(eight), *others, Case(crab)]
