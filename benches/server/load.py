"""One run of one row: fills the keys, loads the server with redis-benchmark, and checks what the server did.

redis-benchmark does not check replies, so a row could measure how fast a server denies or fails. A run counts only if
the server's statistics confirm the number of calls and show no failure, if a log has as many entries as the row claims,
and if every decision had the row's verdict. The replies for a sample of the keys show the verdict, and so do the
module's own counts if it has any, such as ours in `INFO ratelimit`.
"""

import csv
import os
import subprocess
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median

from . import Failed, wire
from .rows import ALLOWED, FLOOR, OURS
from .servers import ROOT

PROGRAM = Path(os.environ.get("RATELIMIT_BENCHMARK", ROOT / ".cache/redis-benchmark/redis-benchmark"))

# Modules that count their decisions, and the sections of these counts in INFO.
COUNTING = {OURS: "ratelimit", FLOOR: "floor"}

PICKED = 50
TIMEOUT_S = 600


@dataclass(frozen=True)
class Load:
    requests: int = 500_000
    connections: int = 50
    pipeline: int = 32


@dataclass(frozen=True)
class Sample:
    #: Commands per second.
    rate: float
    #: Microseconds of the server's core per command.
    cpu_us: float
    #: The fraction of the run in which the server worked. Below about nine tenths, the client was the bottleneck.
    busy: float


def median_of(samples):
    return Sample(*map(median, zip(*map(astuple, samples))))


def offer(server, row, load):
    """Loads the server. Returns commands per second."""
    requests = max(int(load.requests * row.share), load.pipeline)
    command = [PROGRAM, "-p", server.port, "-c", load.connections, "-P", load.pipeline, "-n", requests]
    command += ["-r", row.keys, "--csv", *row.command]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise Failed(f"{row.name}: redis-benchmark: {done.stderr.strip() or done.returncode}\n{server.log()}")
    return float(list(csv.reader(done.stdout.splitlines()))[-1][1])


def cpu_s(server):
    cpu = server.client.info("cpu")
    return cpu["used_cpu_user"] + cpu["used_cpu_sys"]


def calls(server, row):
    stats = server.client.info("commandstats")
    name = f"cmdstat_{row.command[0]}".lower()
    return sum(stats[command]["calls"] for command in stats if command.lower() == name)


def count_decisions(server, row):
    """How often the module counted this row's command with its verdict."""
    name = "peeks" if row.command[0] == "RL.PEEK" else "allowed" if row.verdict == ALLOWED else "limited"
    section = COUNTING[row.family]
    return server.client.info(section)[f"{section}_{name}"]


def picked_keys(row):
    step = max(row.keys // PICKED, 1)
    return [wire.key(number) for number in range(0, row.keys, step)]


def check_verdicts(server, row):
    for key in picked_keys(row):
        reply = server.client.execute_command(*wire.on(row.command, key))
        if reply[0] != row.verdict:
            raise Failed(f"{row.name}: the reply for {key} is {reply}, expected the verdict {row.verdict}")


def entries_in(server, command):
    reply = server.client.execute_command(*command)
    if isinstance(reply, int):
        return reply
    state = reply[reply.index("states") + 1][0]
    return state[state.index("entries") + 1]


def check_entries(server, row):
    command, wanted = row.entries
    counts = [entries_in(server, wire.on(command, key)) for key in picked_keys(row)]
    mean = sum(counts) / len(counts)
    if not 0.75 * wanted <= mean <= 1.25 * wanted:
        raise Failed(f"{row.name}: logs have {mean:.1f} entries on average, expected {wanted}")


def measure(server, row, load):
    """Runs the row once, then empties the server."""
    client = server.client
    client.config_resetstat()
    wire.fill(server, row.fill or row.command, row.keys, seed=row.seed)
    wire.check_errors(server, f"{row.name}, filling its keys")

    client.config_resetstat()
    counted = row.family in COUNTING and count_decisions(server, row)
    before = cpu_s(server)
    rate = offer(server, row, load)
    worked = cpu_s(server) - before
    done = calls(server, row)

    wire.check_errors(server, row.name)
    if done < load.requests * row.share:
        raise Failed(f"{row.name}: the server executed {done} of {load.requests * row.share:.0f} commands")
    if row.family in COUNTING and count_decisions(server, row) - counted != done:
        raise Failed(f"{row.name}: of {done} decisions not all were verdict {row.verdict}")
    if row.entries:
        check_entries(server, row)
    if row.verdict is not None:
        check_verdicts(server, row)
    client.flushall()
    return Sample(rate, 1e6 * worked / done, worked * rate / done)
