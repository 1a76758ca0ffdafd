#!/usr/bin/env python3
"""A tenant's pool of workers that obeys an upstream's limit: `RL.WAIT` before each request, `RL.SETTLE` after it.

    pool.py --redis URL --upstream PORT --flow FLOW [--workers N] [--key KEY] [--lease-ms MS] rule [rule ...]

Starts each worker as a process, and starts it again when it dies. Any number of pools may share a key and its line, in
which the pools' flows take turns. Jobs come from the list KEY:FLOW:jobs and go to KEY:done; see worker.py.
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).resolve().parent / "worker.py"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--redis", required=True)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--flow", required=True)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--key", default="upstream")
    parser.add_argument("--lease-ms", default="30000")
    parser.add_argument("rules", nargs="+")
    options = parser.parse_args()
    line = ["--redis", options.redis, "--upstream", options.upstream, "--flow", options.flow]
    line += ["--key", options.key, "--lease-ms", options.lease_ms]

    def start(name):
        command = [sys.executable, "-B", WORKER, *line, "--name", name, *options.rules]
        return subprocess.Popen(command).pid

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    workers = {start(name): name for name in (f"{options.flow}-w{number}" for number in range(1, options.workers + 1))}
    print(*workers, flush=True)
    try:
        while True:
            died, _ = os.wait()
            # The new worker has the same name, so it finds the job that the old one left
            # behind.
            name = workers.pop(died)
            workers[start(name)] = name
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGKILL)


if __name__ == "__main__":
    main()
