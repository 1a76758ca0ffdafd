#!/usr/bin/env python3
"""Counts the instructions of a call, in a real server under callgrind, and compares them with a baseline.

Only what runs inside of a command's handler counts, the server's functions that it calls included; reading the request
and sending the reply are the server's own affair. Unlike times, the counts repeat, on a busy machine too. What varies:
the server's dictionaries, hashed under another seed each time it starts, collide more or less (so the least of several
servers counts), its allocator's caches, and how often the clock makes a key's expiry move.

Ends with 1 if a call became dearer than the tolerance allows. Another processor may choose other variants of memcpy and
the like, so a baseline is good for machines like the one it was taken on.
"""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

from cases import cases

sys.path.append(str(Path(__file__).resolve().parent.parent))

from started import MODULE, ROOT, redis, started  # noqa: E402

BASELINE = Path(__file__).resolve().parent / "baseline.json"
VALGRIND = ROOT / ".cache/valgrind/valgrind"
# Counting begins and ends with a handler. PING has none of ours, so it separates one case from the next.
CALLGRIND = [
    VALGRIND.as_posix(),
    "--tool=callgrind",
    "--trace-children=yes",  # the server may be started by a script
    "--collect-atstart=no",
    "--toggle-collect=*::callback::trampoline*",
    "--dump-before=pingCommand*",
    "--compress-strings=no", "--compress-pos=no",  # each profile can be read without those before it
    "--callgrind-out-file={folder}/profile.%p",
]


class Profiler:
    """Counts what happens between two PINGs."""

    def __init__(self, server):
        self.server = server
        self.dumps = 0

    def dump(self):
        """The profile of what happened since the last dump."""
        self.server.client.ping()
        self.dumps += 1
        return self.server.folder / f"profile.{self.server.process.pid}.{self.dumps}"

    def send(self, commands):
        pipe = self.server.client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        return pipe.execute()

    def profile(self, case):
        """The profile of the calls of a case, or none if this module does not know one of its commands."""
        self.server.client.flushall()
        try:
            self.send(case.prepare)
            self.dump()
            replies = self.send(case.calls)
        except redis.ResponseError as error:
            if "unknown command" in str(error):
                return None
            raise
        profile = self.dump()
        unexpected = [reply for reply in replies if case.verdict is not None and reply[0] != case.verdict]
        if unexpected:
            sys.exit(f"{case.name}: expected verdict {case.verdict}, but got {unexpected[0]}")
        return profile


def total(profile):
    """The instructions in a profile."""
    return int(re.search(r"^totals: (\d+)", profile.read_text(), re.MULTILINE)[1])


def measure(module, only, profiles):
    """Instructions a call by the case's name, none where the module lacks the command; and the server's version."""
    counts = {}
    for with_aof in (False, True):
        more, version = measure_on(module, with_aof, only, profiles)
        counts.update(more)
    return counts, version


def measure_on(module, with_aof, only, profiles):
    """Instructions a call of the cases without an append-only file, or with one; and the server's version."""
    counts = {}
    options = ["--appendonly", "yes"] if with_aof else []
    with started(module, ["allow-at", "yes"], CALLGRIND, options=options) as server:
        profiler = Profiler(server)
        seconds, micros = server.client.time()
        for case in cases(seconds * 1_000_000 + micros):
            if case.with_aof != with_aof:
                continue
            if not re.search(only, case.name):
                continue
            profile = profiler.profile(case)
            counts[case.name] = profile and round(total(profile) / len(case.calls))
            if profile and profiles:
                shutil.copy(profile, profiles / f"{re.sub('[^A-Za-z0-9]+', '-', case.name)}.callgrind")
        version = server.client.info("server")["redis_version"]
    return counts, version


def least(rounds):
    """The least count of each case."""
    return {name: count and min(counts[name] for counts in rounds) for name, count in rounds[0].items()}


def compiler(module):
    """The rustc that built the module, as it says itself."""
    found = re.search(rb"rustc version ([^\0(]+\([^)]*\))", module.read_bytes())
    return found[1].decode() if found else "unknown"


def compare(counts, baseline, tolerance):
    """Prints the table, and returns the names of those that became too dear."""
    dearer = []
    print(f"{'call':44} {'instructions':>12} {'baseline':>9} {'change':>8}")
    for name, count in counts.items():
        before = baseline.get(name)
        if count is None:
            print(f"{name:44} {'-':>12} {before or '-':>9}  this module has no such command")
        elif before is None:
            print(f"{name:44} {count:12} {'-':>9}")
        else:
            change = 100 * (count - before) / before
            print(f"{name:44} {count:12} {before:9} {change:+7.1f}%")
            if change > tolerance:
                dearer.append(name)
    return dearer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="make these counts the baseline")
    parser.add_argument("--tolerance", type=float, default=3, metavar="PERCENT", help="how much dearer is too dear (3)")
    parser.add_argument("--servers", type=int, default=3, metavar="N", help="how many servers the least is taken of (3)")
    parser.add_argument("--only", default="", metavar="REGEX", help="count only the calls whose name matches")
    parser.add_argument("--module", type=Path, default=MODULE, help="another build of the module")
    parser.add_argument("--profiles", type=Path, metavar="FOLDER", help="keep the profiles, for callgrind_annotate")
    options = parser.parse_args()

    if options.profiles:
        options.profiles.mkdir(parents=True, exist_ok=True)
    rounds = [measure(options.module, options.only, options.profiles) for _ in range(options.servers)]
    counts, version = least([counts for counts, _ in rounds]), rounds[0][1]
    found = {"rustc": compiler(options.module), "server": f"redis {version}"}
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {**found, "instructions": {}}
    dearer = compare(counts, baseline["instructions"], options.tolerance)
    for what in found:
        if found[what] != baseline[what]:
            print(f"The baseline was taken with {what} {baseline[what]}, this is {found[what]}: compare with care.")
    if options.update:
        kept = {**baseline["instructions"], **{name: count for name, count in counts.items() if count is not None}}
        BASELINE.write_text(json.dumps({**found, "instructions": kept}, indent=2) + "\n")
        print(f"{BASELINE.relative_to(ROOT)} has these counts now.")
        return 0
    if dearer:
        print(f"More than {options.tolerance:g} % dearer: {'; '.join(dearer)}.")
    return bool(dearer)


if __name__ == "__main__":
    sys.exit(main())
