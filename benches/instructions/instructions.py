#!/usr/bin/env python3
"""Counts the instructions of a call, in a real server under callgrind, and compares them with a baseline.

Counts what runs inside a command's handler, including the server's functions that it calls, but not the server's work
to read the request and to send the reply. Unlike times, the counts repeat, even on a busy machine. The server's part
still varies: each start has a new hash seed, so dictionaries collide more or less, and the allocator's caches differ.
So the module's own instructions are also counted separately: they vary only with how often a key's expiry moves, which
depends on the clock. The result is the least count of several servers.

Ends with 1 if the module's own part of a call grew by more than the tolerance, which is a fraction of the whole call.
Another processor may choose other variants of memcpy and the like, so compare only with a baseline from a similar machine.
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
# Only instructions inside a handler of the module are counted. Each PING ends a profile and is not
# counted itself, so PINGs separate the cases.
CALLGRIND = [
    VALGRIND.as_posix(),
    "--tool=callgrind",
    "--trace-children=yes",  # a script may start the server
    "--collect-atstart=no",
    "--toggle-collect=*::callback::trampoline*",
    "--dump-before=pingCommand*",
    "--compress-strings=no", "--compress-pos=no",  # each profile can be read on its own
    "--callgrind-out-file={folder}/profile.%p",
]


class Profiler:
    """Counts the instructions between two PINGs."""

    def __init__(self, server):
        self.server = server
        self.dumps = 0

    def dump(self):
        """The profile since the last dump."""
        self.server.client.ping()
        self.dumps += 1
        return self.server.folder / f"profile.{self.server.process.pid}.{self.dumps}"

    def send(self, commands):
        pipe = self.server.client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        return pipe.execute()

    def profile(self, case):
        """The profile of a case's calls; None if this module lacks one of its commands."""
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


def own(profile, module):
    """The instructions in the module's own functions."""
    instructions, in_module, is_call = 0, False, False
    with profile.open() as lines:
        for line in lines:
            if line.startswith("ob="):
                in_module = line.rstrip().endswith(module.name)
            elif line.startswith("calls="):
                is_call = True
            elif line[0].isdigit():
                # The line after a call holds the instructions of the called function.
                instructions += int(line.split()[1]) if in_module and not is_call else 0
                is_call = False
    return instructions


def measure(module, only, profiles):
    """Instructions per call, in all and in the module's own functions, by the name of the case; None if the module
    lacks the command. Also the server's version."""
    counts = {}
    for with_aof in (False, True):
        more, version = measure_on(module, with_aof, only, profiles)
        counts.update(more)
    return counts, version


def measure_on(module, with_aof, only, profiles):
    """Measures the cases with an append-only file, or the cases without one."""
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
            counts[case.name] = profile and [
                round(count / len(case.calls)) for count in (total(profile), own(profile, module))
            ]
            if profile and profiles:
                shutil.copy(profile, profiles / f"{re.sub('[^A-Za-z0-9]+', '-', case.name)}.callgrind")
        version = server.client.info("server")["redis_version"]
    return counts, version


def least(rounds):
    """The least counts of each case over all rounds."""
    return {name: first and list(map(min, zip(*(counts[name] for counts in rounds)))) for name, first in rounds[0].items()}


def compiler(module):
    """The rustc that built the module, by its own record."""
    found = re.search(rb"rustc version ([^\0(]+\([^)]*\))", module.read_bytes())
    return found[1].decode() if found else "unknown"


def compare(counts, baseline, tolerance):
    """Prints the table, and returns the names of the cases whose costs grew by more than the tolerance."""
    dearer = []
    print(f"{'call':52} {'instructions':>12} {'baseline':>9} {'own':>6} {'baseline':>9} {'change':>8}")
    for name, count in counts.items():
        whole_before, own_before = baseline.get(name) or ("-", "-")
        if count is None:
            print(f"{name:52} {'-':>12} {whole_before:>9} {'-':>6} {own_before:>9}  this module has no such command")
            continue
        line = f"{name:52} {count[0]:12} {whole_before:>9} {count[1]:6} {own_before:>9}"
        if name not in baseline:
            print(line)
            continue
        change = 100 * (count[1] - own_before) / whole_before
        print(f"{line} {change:+7.1f}%")
        if change > tolerance:
            dearer.append(name)
    return dearer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="make these counts the baseline")
    parser.add_argument("--tolerance", type=float, default=1, metavar="PERCENT", help="by how much a cost may grow (1)")
    parser.add_argument("--servers", type=int, default=3, metavar="N", help="how many servers; the least count is used (3)")
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
        kept = {**baseline["instructions"], **{name: count for name, count in counts.items() if count}}
        rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(count)}" for name, count in kept.items())
        head = json.dumps(found, indent=2).removesuffix("\n}")
        BASELINE.write_text(f'{head},\n  "instructions": {{\n{rows}\n  }}\n}}\n')
        print(f"{BASELINE.relative_to(ROOT)} has these counts now.")
        return 0
    if dearer:
        print(f"Costs grew by more than {options.tolerance:g} %: {'; '.join(dearer)}.")
    return bool(dearer)


if __name__ == "__main__":
    sys.exit(main())
