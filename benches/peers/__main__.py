"""The command line: measures peers, saves the results, writes the page and its picture.

make peers                                  all of them, an hour; docs/reference/peers.md
make peers ARGS='--only limits'             peers whose names match, some minutes; no page
make peers ARGS='--measures waits,rules'
"""

import argparse
import json
import re
import shutil
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed

from benches.server import machine
from benches.server.ending import code_of
from benches.server.rounds import say
from benches.server.servers import PUBLISHED

from . import admits, build, calls, clock, memory, outages, page, rules, waits
from .peers import PEERS

#: What several peers at once do not disturb.
LIMITS = {"admits": admits, "waits": waits, "rules": rules, "clock": clock, "outages": outages, "memory": memory}
ALL = ",".join([*LIMITS, "calls"])
OUTPUT = build.TARGET


def arguments():
    parser = argparse.ArgumentParser(prog="make peers ARGS=...", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--only", default="", metavar="PATTERN", help="only peers whose names match this regular expression")
    add("--measures", default=ALL, help="which, with commas (default: %(default)s)")
    add("--rounds", type=int, default=3, help="the page shows medians of them (default: %(default)s)")
    add("--at-once", type=int, default=4, help="peers at once, except for calls (default: %(default)s)")
    add("--name", default="peers", help="results are added to target/peers/NAME.json (default: %(default)s)")
    add("--page", action="store_true", help="measure nothing, write docs/reference/peers.md from the results")
    add("--second", help="with --page: the name of the results of a second run, for the spread")
    return parser.parse_args()


def attempt(peer, name, rounds):
    try:
        if name == "calls":
            return calls.measure(peer, rounds)
        made = [LIMITS[name].measure(peer) for _ in range(rounds)]
        return {value: [each.get(value) for each in made] for value in made[0]}
    except Exception:
        say(f"{peer.key}, {name}: {traceback.format_exc()}")
        return {"failed": traceback.format_exc(limit=0).strip().splitlines()[-1][:200]}


def measure(given, peers, file):
    found = json.loads(file.read_text()) if file.exists() else {"peers": {}}
    found |= {"when": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine.describe(), "rounds": given.rounds}
    found["load"] = machine.load_average()
    chosen = given.measures.split(",")
    wanted = [(peer, name) for peer in peers for name in chosen if name != "calls"]
    at_last = [(peer, "calls") for peer in peers if "calls" in chosen]

    def keep(peer, name, values):
        found["peers"].setdefault(peer.key, {})[name] = values
        file.write_text(json.dumps(found, indent=1))
        say(f"{peer.key:<24} {name:<8} {values}")

    with ThreadPoolExecutor(given.at_once) as pool:
        begun = {pool.submit(attempt, peer, name, given.rounds): (peer, name) for peer, name in wanted}
        try:
            for done in as_completed(begun):
                keep(*begun[done], done.result())
        except BaseException:  # Ctrl-C: what has begun ends in order
            pool.shutdown(cancel_futures=True)
            raise
    for peer, name in at_last:
        keep(peer, name, attempt(peer, name, given.rounds))


def main():
    given = arguments()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    if not given.page:
        pattern = re.compile(given.only)
        peers = [peer for peer in PEERS if pattern.search(peer.key)]
        for language in {one.language for peer in peers for one in (peer, peer.base)}:
            build.ready(language)
        if any(peer.service == "ours" for peer in peers):
            build.envoy()
        measure(given, peers, OUTPUT / f"{given.name}.json")
    if given.page or not (given.only or given.measures != ALL):
        found, second = (
            json.loads((OUTPUT / f"{name}.json").read_text()) if name else None for name in (given.name, given.second)
        )
        page.write(found, second)
        from . import picture  # it needs matplotlib, which is not fetched for measuring alone

        for drawn in picture.draw(found, OUTPUT):
            shutil.copy(drawn, PUBLISHED)


if __name__ == "__main__":
    sys.exit(code_of("peers", main))
