"""The command line: what to measure, how, and where to put the results."""

import argparse
import random
import re
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from benches.server import Failed, machine, results, rounds, scripts, servers, wire
from benches.server.ending import code_of
from benches.server.rows import OURS, REDIS_CELL
from benches.server.rounds import say
from benches.server.servers import OUTPUT, PUBLISHED

from . import crab, points, report
from .cases import INCR, THROTTLECRAB, cases
from .scenes import ALONE, CASES, scenes

RATES = "5000,10000,20000,40000,0"
# For how many seconds a server is loaded first, if it has no command to fill keys.
WARM_S = 1


def arguments():
    names = sorted(folder.name for folder in servers.SERVERS.glob("*") if (folder / "server").exists())
    parser = argparse.ArgumentParser(prog="make latency ARGS=...", description="How late replies come.")
    add = parser.add_argument
    add("--server", choices=names, default="redis-7.0", help="the server to measure (default: %(default)s)")
    add("--rounds", type=int, default=3, help="how many rounds; each measures everything once (default: %(default)s)")
    add("--seconds", type=float, default=2, help="how long each row is measured at each rate (default: %(default)s)")
    add("--rates", default=RATES, help="requests a second, 0: as fast as replies come (default: %(default)s)")
    add("--scene-rate", type=int, default=10_000, help="requests a second, except in `alone` (default: %(default)s)")
    add("--connections", type=int, default=50, help="how many connections, without pipelines (default: %(default)s)")
    add("--only", metavar="PATTERN", help="measure only INCR, and the lines of --list that match this regular expression")
    add("--list", action="store_true", help="show what is measured and measure nothing")
    add("--name", default="latency", help="name of the results: target/bench/NAME.json and NAME.md (default: %(default)s)")
    add("--from", dest="source", type=Path, metavar="JSON", help="measure nothing, show and draw these results")
    add("--publish", action="store_true", help="put the picture into docs/images/")
    given = parser.parse_args()
    try:
        given.rates = [int(rate) for rate in given.rates.split(",")]
    except ValueError:
        parser.error("rates are numbers, separated by commas")
    if min(given.rounds, given.connections, given.scene_rate) < 1 or given.seconds <= 0 or min(given.rates) < 0:
        parser.error("counts start at 1, --seconds is more than 0, and no rate is negative")
    return given


def plan(given):
    """The scenes with the cases of each. A ratio needs INCR as well."""
    pattern = re.compile(given.only or "", re.IGNORECASE)
    for scene in scenes():
        known = [case for case in cases() if scene.name == ALONE or case.name in CASES]
        chosen = {case.name for case in known if pattern.search(f"{scene.name}: {case.name}")}
        if chosen:
            yield scene, [case for case in known if case.name in {INCR.name, *chosen}]


def hosts(given, scene, chosen, cores, stack):
    """The servers of a scene, by the name of the case's host."""
    started = {}
    modules = {OURS: servers.LOAD_OURS, REDIS_CELL: servers.LOAD_REDIS_CELL}
    # A child that saves and a thread that syncs may use all of these cores, not only the server's.
    anywhere = ",".join(map(str, sorted({core for core in (cores.server, cores.client, cores.replica) if core is not None})))
    lists = [f"{kind}_cpulist {anywhere}" for kind in ("bio", "bgsave", "aof_rewrite")] if anywhere else []
    for host in dict.fromkeys(case.host for case in chosen):
        if host == THROTTLECRAB:
            started[host] = stack.enter_context(crab.started(cores.server))
            continue
        lines = [*scene.lines, *lists, modules[host]]
        started[host] = stack.enter_context(servers.Server(given.server, cores.server, lines))
        if scene.replica:
            replica = servers.replica_of(started[host], cores.replica, lines)
            servers.wait_for_link(stack.enter_context(replica))
        scripts.load_all(started[host])
    return started


def fill(server, case, connections):
    row = case.row
    if server.client is None:
        points.measure(server, case, 0, WARM_S, connections)
        return
    server.client.flushall()
    if row.keys:
        wire.fill(server, row.fill or row.command, row.keys, seed=row.seed)


def measure_case(given, server, scene, case):
    """Measures a case once, and returns the results by rate."""
    if case.row.setup:
        server.client.execute_command(*case.row.setup)
    found = {}
    fill(server, case, given.connections)
    for rate in given.rates if scene.name == ALONE else [given.scene_rate]:
        prepared = scene.prepare(server, case)
        point = points.measure(server, case, rate, given.seconds, given.connections, lambda: scene.act(server, case))
        scene.after(server, prepared)
        found[rate] = point
        say(f"  {case.name:<44} {rate or 'full speed':>10}  p50 {point['us']['p50']:>7.0f}  p99.9 {point['us']['p99.9']:>8.0f} us")
    return found


def measure(given, planned):
    cores, warning = machine.pick_cores()
    before = machine.load_average()
    warnings = [warning] if warning else []
    if before > machine.QUIET:
        warnings.append(f"load average {before} before the start: other processes use this machine, and cause tails")
    points.build()
    machine.pin(cores.client)
    found = {}
    for number in range(1, given.rounds + 1):
        for scene, chosen in planned:
            say(f"round {number} of {given.rounds}, {scene.name}")
            with ExitStack() as stack:
                started = hosts(given, scene, chosen, cores, stack)
                for case in random.Random(number).sample(chosen, len(chosen)):
                    for rate, point in measure_case(given, started[case.host], scene, case).items():
                        found.setdefault((scene.name, rate, case.name), []).append(point)
    rows = []
    for scene, chosen in planned:
        for rate in given.rates if scene.name == ALONE else [given.scene_rate]:
            base = found[scene.name, rate, INCR.name]
            rows += [report.result(scene, case, rate, found[scene.name, rate, case.name], base) for case in chosen]
    return {
        "server": given.server,
        "version": servers.version(given.server),
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **{name: getattr(given, name) for name in ("rounds", "seconds", "connections", "scene_rate")},
        "machine": {**machine.describe(), "server": cores.server, "client": cores.client, "replica": cores.replica},
        "load_average": [before, machine.load_average()],
        "warnings": warnings,
        "results": rows,
    }


def run(given):
    planned = list(plan(given))
    if not planned:
        raise Failed(f"nothing is named like {given.only}; --list shows the names")
    if not crab.PROGRAM.exists():
        say("throttlecrab-server is left out: scripts/fetch.py throttlecrab fetches it, in some minutes")
        planned = [(scene, [case for case in chosen if case.host != THROTTLECRAB]) for scene, chosen in planned]
    if given.list:
        for scene, chosen in planned:
            print(*(f"{scene.name}: {case.name}" for case in chosen), sep="\n")
        return
    found = results.read(given.source) if given.source else measure(given, planned)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    if not given.source:
        results.write(OUTPUT / f"{given.name}.json", found)
    text = "\n".join(report.markdown(found)) + "\n"
    (OUTPUT / f"{given.name}.md").write_text(text)
    print(text)
    draw(given, found)


def draw(given, found):
    try:
        from . import picture  # only this needs matplotlib
    except ModuleNotFoundError:
        say("no picture: scripts/fetch.py plots fetches what draws it")
        return
    if picture.draw(found, OUTPUT / given.name) and given.publish:
        shutil.copy(OUTPUT / f"{given.name}.svg", PUBLISHED / "latency.svg")


if __name__ == "__main__":
    sys.exit(code_of("latency", lambda: run(arguments())))
