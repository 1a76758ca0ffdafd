"""The command line: what to measure, how, and where to put the results."""

import argparse
import re
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path

from . import Failed, floors, growth, holds, machine, memory, plots, report, results, rounds, roundtrips, rows, servers, waiting
from .ending import code_of
from .load import Load
from .rounds import Setting, say
from .servers import OUTPUT, PUBLISHED


def arguments():
    names = sorted(folder.name for folder in servers.SERVERS.glob("*") if (folder / "server").exists())
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description="What rate limiting costs in a server.")
    add = parser.add_argument
    add("--server", choices=names, default="redis-7.0", help="the server to measure (default: %(default)s)")
    add("--rounds", type=int, default=5, help="how many; each measures every row once, INCR up to 6 times (default: %(default)s)")
    add("--requests", type=int, default=Load.requests, help="requests in each run, a quarter for Lua (default: %(default)s)")
    add("--connections", type=int, default=Load.connections, help="connections of redis-benchmark (default: %(default)s)")
    add("--pipeline", type=int, default=Load.pipeline, help="requests sent at once (default: %(default)s)")
    add("--aof", action="store_true", help="with an append-only file, synced every second")
    add("--replica", action="store_true", help="also with a replica")
    add("--only", metavar="PATTERN", help="measure only the lines of --list that match this regular expression")
    add("--list", action="store_true", help="show the rows and measure nothing")
    add("--name", help="name of the results: target/bench/NAME.json (default: the server and the conditions)")
    add("--from", dest="source", type=Path, metavar="JSON", help="measure nothing, show and draw these results")
    add("--publish", action="store_true", help="put the plots into docs/images/, for README and docs/reference/performance.md")
    given = parser.parse_args()
    if min(given.rounds, given.requests, given.connections, given.pipeline) < 1:
        parser.error("numbers start at 1")
    return given


def chosen(given, items):
    pattern = re.compile(given.only or "", re.IGNORECASE)
    return [item for item in items if pattern.search(f"{item.part}: {item.name}")]


def with_base(items, base):
    """A ratio needs its base as well."""
    return items if base in items or not items else [base, *items]


def result_name(given):
    beside = ["aof"] * given.aof + ["replica"] * given.replica
    load = [f"p{given.pipeline}"] * (given.pipeline != Load.pipeline)
    load += [f"c{given.connections}"] * (given.connections != Load.connections)
    return given.name or "-".join([given.server, *beside, *load])


def measure(given, to_measure, methods, kinds, held, waits):
    cores, warning = machine.pick_cores()
    machine.pin(cores.client)
    before = machine.load_average()
    warnings = [warning] if warning else []
    if before > machine.QUIET:
        warnings.append(f"load average {before} before the start: other processes run here, so rates are low and vary")
    if given.aof or given.replica:
        warnings.append("redis-cell 0.2.2 does not propagate what was consumed")
    load = Load(given.requests, given.connections, given.pipeline)
    setting = Setting(given.server, cores, load, given.aof, given.replica)
    running = servers.version(given.server)
    measured = rounds.Measured()
    if rows.FLOOR in {row.host for row in to_measure}:
        floors.build()
    if to_measure or methods:
        measured = rounds.run(setting, to_measure, methods, given.rounds)
    found = results.gather(to_measure, methods, measured)
    for kind in kinds:
        found.append(results.memory_result(kind, memory.measure(given.server, cores.server, kind)))
        say(f"  {kind.name:<48} {found[-1]['bytes_a_key']:>10,.0f} bytes a key")
    ways, grows = [way for way in held if way in holds.WAYS], holds.GROWTH in held
    found += holds.measure(given.server, cores.server, ways, grows, given.rounds)
    for kind in [kind for kind in held if kind.part == "hold memory"]:
        bytes_a_hold = memory.measure_holds(given.server, cores.server, kind)
        found.append(results.hold_memory_result(kind, bytes_a_hold))
        say(f"  {kind.name:<48} {bytes_a_hold:>10,.1f} bytes a hold")
    found += waiting.measure(given.server, cores.server, waits, given.rounds)
    return {
        "server": given.server,
        "version": running,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "rounds": given.rounds,
        "load": asdict(load),
        "beside": ["append-only file synced every second"] * given.aof + ["a replica"] * given.replica,
        "machine": {**machine.describe(), **asdict(cores)},
        "load_average": [before, machine.load_average()],
        "warnings": warnings,
        "skipped": measured.skipped,
        "results": found,
    }


def publish(pictures):
    PUBLISHED.mkdir(parents=True, exist_ok=True)
    for picture in pictures:
        shutil.copy(picture, PUBLISHED)
        say(f"published {(PUBLISHED / picture.name).relative_to(servers.ROOT)}")


def run(given):
    to_measure = with_base(chosen(given, [*rows.throughput(), *growth.growth()]), rows.INCR)
    methods = with_base(chosen(given, roundtrips.METHODS), roundtrips.BASE)
    kinds = chosen(given, memory.kinds())
    held = chosen(given, [*holds.WAYS, holds.GROWTH, *memory.hold_kinds()])
    waits = chosen(given, [*waiting.WAYS, *waiting.OTHERS])
    if given.list:
        for item in [*to_measure, *methods, *kinds, *held, *waits]:
            print(f"{item.part}: {item.name}")
        return
    if not (given.source or to_measure or methods or kinds or held or waits):
        raise Failed(f"no row is named like {given.only}; --list shows them")
    if given.source:
        found = results.read(given.source)
    else:
        found = measure(given, to_measure, methods, kinds, held, waits)
        file = OUTPUT / f"{result_name(given)}.json"
        results.write(file, found)
        say(f"written to {file.relative_to(servers.ROOT)}")
    report.show(found)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    pictures = plots.draw_all(found, OUTPUT)
    if given.publish:
        publish(pictures)


if __name__ == "__main__":
    sys.exit(code_of("bench", lambda: run(arguments())))
