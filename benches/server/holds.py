"""Taking, repeating and settling a hold, compared with the scripts in use today, and with growing numbers of holds.

**Beside scripts.** 20,000 keys with one hold each, in random order: each key takes a second hold, repeats it and
settles it. The script for reservations keeps a counter, a hash and a sorted set, the script for slots a sorted set.

**As holds grow.** The time of each command on a key with 10 holds, and on one with 10,000.

Both parts measure the server's time. The first part measures the time that the server's core works, as for other rows,
and compares it with INCR sent in the same way. The second part measures the time inside the command, by the server's
own count (`INFO commandstats`). Every reply is checked.
"""

import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from . import Failed, scripts
from .load import cpu_s
from .rows import LUA, NATIVE, OURS
from .servers import LOAD_OURS, Server
from .wire import KEY, encode, key, on

KEYS = 20_000
PIPELINE = 100
LAST_S = 3600

NUMBERS_OF_HOLDS = [10, 10_000]
# How many times the second part calls each command on a key; slow ones less often.
CALLS = 10_000

T0_US = 1_800_000_000_000_000
MS_US = 1000


class Sender:
    """A connection that sends commands in pipelines and reads the replies. It costs little, compared with the
    server."""

    def __init__(self, server):
        self.server = server
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=120)
        self.file = self.socket.makefile("rb")

    def reply(self):
        """The first integer of the next reply."""
        line = self.file.readline()
        if line[:1] == b"*":
            others = int(line[1:]) - 1
            first = self.reply()
            for _ in range(others):
                self.reply()
            return first
        if line[:1] != b":":
            raise Failed(f"unexpected reply {line.decode().strip()}")
        return int(line[1:])

    def send(self, commands, wanted):
        """Sends commands in pipelines. The first integer of each reply must be the wanted one."""
        encoded = [encode(command) for command in commands]
        for first in range(0, len(commands), PIPELINE):
            pipeline = encoded[first : first + PIPELINE]
            self.socket.sendall(b"".join(pipeline))
            for command, got in [(command, self.reply()) for command in pipeline]:
                if wanted is not None and got != wanted:
                    raise Failed(f"{command}: the reply is {got}, expected {wanted}")


def id_of(number):
    """An id of 16 bytes."""
    return f"hold:{number:011}"


# Beside scripts


@dataclass(frozen=True)
class Way:
    """One way to reserve and settle: its commands on KEY, for an id."""

    name: str
    family: str
    take: Callable
    settle: Callable

    part = "holds"


INCR = Way("INCR", NATIVE, lambda _: ("INCR", KEY), None)


def held_check(id, *words):
    return ("RL.CHECK", KEY, "HOLD", id, "EX", LAST_S, *words)


WAYS = [
    INCR,
    Way(
        "HOLD, bucket",
        OURS,
        lambda id: held_check(id, "COST", 40, "bucket:100000/h"),
        lambda id: ("RL.SETTLE", KEY, id, "COST", 25),
    ),
    Way(
        "HOLD, fixed",
        OURS,
        lambda id: held_check(id, "COST", 40, "fixed:100000/h"),
        lambda id: ("RL.SETTLE", KEY, id, "COST", 25),
    ),
    Way(
        "Lua reservation, fixed",
        LUA,
        lambda id: scripts.call("reserve", 100_000, 3600, id, 40, LAST_S),
        lambda id: scripts.call("settle", id, 25),
    ),
    Way("HOLD, slots", OURS, lambda id: held_check(id, "slots:100"), lambda id: ("RL.SETTLE", KEY, id)),
    Way(
        "Lua semaphore",
        LUA,
        lambda id: scripts.call("semaphore", 100, id, LAST_S),
        lambda id: ("ZREM", KEY, id),
    ),
]


def cpu_us(sender, commands, wanted):
    """Microseconds of the server's core per command."""
    before = cpu_s(sender.server)
    sender.send(commands, wanted)
    return (cpu_s(sender.server) - before) * 1_000_000 / len(commands)


def measure_way(server, way):
    """Microseconds of the server's core per command, by step."""
    sender = Sender(server)
    names = [key(number) for number in range(KEYS)]
    others = random.Random(1).sample(names, KEYS)

    def each(command, names=others):
        return [on(command, name) for name in names]

    sender.send(each(way.take(id_of(1)), names), None)
    if way.family == NATIVE:
        return {"": cpu_us(sender, each(way.take("")), None)}
    return {
        "take": cpu_us(sender, each(way.take(id_of(2))), 0),
        "repeat": cpu_us(sender, each(way.take(id_of(2))), 0),
        "settle": cpu_us(sender, each(way.settle(id_of(2))), 1),
    }


# As holds grow


@dataclass(frozen=True)
class Growth:
    """The results of the second part."""

    name: str = "as a key has more holds"
    family: str = OURS

    part = "hold growth"


GROWTH = Growth()

# A key that nothing else uses, and a limit that it does not reach.
ONE_KEY = key(0)
WIDE = "bucket:1000000000/h"


def check_at(number, words, rule, lasts_ms):
    """A check that takes a hold, one millisecond after the previous check."""
    at = ("AT", T0_US + number * MS_US)
    return ("RL.CHECK", ONE_KEY, "HOLD", id_of(number), "PX", lasts_ms, *words, *at, rule)


def renewed(number):
    return ("RL.RENEW", ONE_KEY, id_of(number), "EX", LAST_S + number)


def usec(sender, command):
    """Microseconds that the server spent in a command, per call."""
    return sender.server.client.info("commandstats")[f"cmdstat_{command.lower()}"]["usec_per_call"]


def timed(sender, command, send_all):
    """Microseconds that the server spent in a command, per call, while `send_all` sends."""
    sender.server.client.config_resetstat()
    send_all()
    return usec(sender, command)


def taking_and_settling(sender, holds, rule):
    """Alternates between a few calls that settle live holds and as many calls that take holds."""
    order, ids, next_id = random.Random(1), list(range(holds)), holds
    sender.send([("RL.CHECK", ONE_KEY, "HOLD", id_of(id), "EX", LAST_S, rule) for id in ids], 0)
    sender.server.client.config_resetstat()
    few = 8
    for _ in range(CALLS // few):
        gone = [ids.pop(order.randrange(len(ids))) for _ in range(few)]
        sender.send([("RL.SETTLE", ONE_KEY, id_of(id), "REFUND") for id in gone], 1)
        new = list(range(next_id, next_id + few))
        next_id += few
        sender.send([("RL.CHECK", ONE_KEY, "HOLD", id_of(id), "EX", LAST_S, rule) for id in new], 0)
        ids += new
    yield "take", usec(sender, "RL.CHECK")
    yield "settle", usec(sender, "RL.SETTLE")
    picked = order.choices(ids, k=CALLS)
    repeats = [("RL.CHECK", ONE_KEY, "HOLD", id_of(id), "EX", LAST_S, rule) for id in picked]
    yield "repeat", timed(sender, "RL.CHECK", lambda: sender.send(repeats, 0))
    renewals = [renewed(id) for id in picked]
    yield "renew", timed(sender, "RL.RENEW", lambda: sender.send(renewals, 1))


def lapsing(sender, holds, rule, *words):
    """Each call takes a hold, and finds that an older hold has lapsed."""
    filling = [check_at(number, words, rule, holds) for number in range(holds)]
    sender.send(filling, 0)
    calls = [check_at(number, words, rule, holds) for number in range(holds, holds + CALLS)]
    return timed(sender, "RL.CHECK", lambda: sender.send(calls, 0))


def denied(sender, holds, rule, *words):
    """The holds take all that the rule allows."""
    filling = [check_at(number, words, rule, 1_000_000 + number) for number in range(holds)]
    sender.send(filling, 0)
    calls = [check_at(holds, words, rule, 1_000_000) for _ in range(CALLS // 10)]
    return timed(sender, "RL.CHECK", lambda: sender.send(calls, 1))


def denied_until_all_lapse(sender, holds, rule, *words):
    """The check asks for all that the rule allows, so it passes only after all holds have lapsed."""
    denied(sender, holds, rule, *words)
    calls = [("RL.CHECK", ONE_KEY, "COST", holds, "AT", T0_US + holds * MS_US, rule) for _ in range(CALLS // 100)]
    return timed(sender, "RL.CHECK", lambda: sender.send(calls, 1))


def growing(sender, holds):
    """Microseconds per command, by its name, on a key with this many holds."""
    for rule, name in [(WIDE, "bucket"), ("slots:1000000", "slots")]:
        yield from ((f"{step}, {name}", us) for step, us in taking_and_settling(sender, holds, rule))
        sender.server.client.flushall()
    full = f"bucket:{holds}/366d"
    for name, measured, *words in [
        ("take while one lapses, bucket", lapsing, WIDE),
        ("take while one lapses, bucket, REFUND", lapsing, WIDE, "REFUND"),
        ("take while one lapses, slots", lapsing, "slots:1000000"),
        ("denied, bucket", denied, full),
        ("denied, bucket, REFUND", denied, full, "REFUND"),
        ("denied, slots", denied, f"slots:{holds}"),
        ("denied until all lapse, bucket, REFUND", denied_until_all_lapse, full, "REFUND"),
        ("denied until all lapse, fixed, REFUND", denied_until_all_lapse, f"fixed:{holds}/366d", "REFUND"),
    ]:
        yield name, measured(sender, holds, *words)
        sender.server.client.flushall()


def measure_growth(server):
    """Microseconds per command, by its name and the number of holds."""
    return {holds: dict(growing(Sender(server), holds)) for holds in NUMBERS_OF_HOLDS}


def of_rounds(name, core, ways, growth, rounds):
    """The results of each round for each way, by name, and for growth. Each round has a new server."""
    found = {way.name: [] for way in ways}
    grown = []
    for number in range(rounds):
        with Server(name, core, [LOAD_OURS]) as server:
            scripts.load_all(server)
            for way in random.Random(number).sample(ways, len(ways)):
                found[way.name].append(measure_way(server, way))
                server.client.flushall()
            if growth:
                grown.append(measure_growth(server))
    return found, grown


def measure(name, core, ways, growth, rounds):
    """The results: medians of microseconds over the rounds, and ratios within a round."""
    if not ways and not growth:
        return []
    found, grown = of_rounds(name, core, [INCR, *(way for way in ways if way != INCR)], growth, rounds)
    results = []
    for way in ways:
        for step in found[way.name][0]:
            times = [times[step] for times in found[way.name]]
            ratio = median(us / base[""] for us, base in zip(times, found[INCR.name]))
            row = f"{way.name}, {step}" if step else way.name
            results.append(
                {"part": way.part, "name": row, "family": way.family, "cpu_us": median(times), "of_incr": ratio}
            )
    few, many = NUMBERS_OF_HOLDS
    for step in grown[0][few] if grown else []:
        times = {holds: [once[holds][step] for once in grown] for holds in NUMBERS_OF_HOLDS}
        ratio = median(last / first for first, last in zip(times[few], times[many]))
        us = {str(holds): median(each) for holds, each in times.items()}
        results.append({"part": GROWTH.part, "name": step, "family": OURS, "us": us, "of_least": ratio})
    return results
