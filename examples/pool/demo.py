#!/usr/bin/env python3
"""Starts a server with the module, a stand-in for a limited service and a pool of workers, and shows their progress.

Called by `make pool`, which builds the module and fetches the server first. A page shows it, during the
demonstration and then until Ctrl-C. PORT chooses its port.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent.parent / "benches")]

from running import running  # noqa: E402  runs a program for a `with` block
from started import started  # noqa: E402  runs a server for a `with` block

JOBS = 150
WORKERS = 8
LEASE_MS = 4_000
# The service allows 4 at once and 20 a second. The longer period tolerates requests that arrive
# up to 200 ms late.
RULES = ["slots:4,name=slots", "20/1200ms,name=rate"]


def holds(server):
    """The holders of the slots: id and seconds left."""
    info = server.client.execute_command("RL.INFO", "upstream")
    return {hold[b"id"].decode(): hold[b"ttl_ms"] / 1000 for hold in info[b"next_holds"]} if info else {}


def show(server, log, since):
    waiting = server.client.info("ratelimit")["ratelimit_waiting_clients"]
    done = server.client.llen("upstream:done")
    refused = log.read_text().count(" refused ")
    held = ", ".join(f"{id} ({left_s:.1f} s)" for id, left_s in holds(server).items())
    print(f"{time.monotonic() - since:4.1f} s: {done:3} done, {refused} refused, {waiting} wait, slots: {held}", flush=True)
    return done


def kill_one(server):
    """Kills a worker that has a slot, as a crash does."""
    while not (held := holds(server)):
        time.sleep(0.01)
    id = list(held)[-1]
    os.kill(int(id.split(".")[1]), signal.SIGKILL)
    print(f"... {id} is killed with SIGKILL, amid its job: its slot is taken until its hold ends", flush=True)


def play(server, log):
    """Shows the progress of the jobs each second, until all are done."""
    since, is_killed = time.monotonic(), False
    while (done := show(server, log, since)) < JOBS:
        if done > JOBS / 4 and not is_killed:
            kill_one(server)
            is_killed = True
        time.sleep(1)
    events = log.read_text()
    began, refused = events.count(" begin "), events.count(" refused ")
    print(f"The service saw {began} requests and refused {refused}. The killed worker's job was done again.")


def main():
    with started() as server:
        log = server.folder / "upstream.log"
        redis = ["--redis", f"unix://{server.folder / 'socket'}"]
        server.client.rpush("upstream:jobs", *(f"job-{number}" for number in range(1, JOBS + 1)))
        print(f"{JOBS} jobs, {WORKERS} workers, a service that allows 4 at once and 20 a second: {' '.join(RULES)}")
        with (
            running(HERE / "board.py", *redis, "--port", os.environ.get("PORT", 0), *RULES) as (_, board),
            running(HERE / "upstream.py", "--log", log) as (_, port),
        ):
            page = f"http://127.0.0.1:{board}/"
            print(f"A page shows it: {page}", flush=True)
            line = [*redis, "--upstream", port, "--workers", WORKERS, "--lease-ms", LEASE_MS]
            with running(HERE / "pool.py", *line, *RULES) as (pool, _), contextlib.suppress(KeyboardInterrupt):
                try:
                    play(server, log)
                    print(f"The pool waits for more jobs, which {page} gives. Ctrl-C stops all.", flush=True)
                    while True:
                        time.sleep(1)
                finally:
                    pool.terminate()
                    pool.wait()


if __name__ == "__main__":
    main()
