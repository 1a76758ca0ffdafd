#!/usr/bin/env python3
"""Starts a server with the module, a stand-in for a limited service and two tenants' pools, and shows their progress.

Called by `make pool`, which builds the module and fetches the server first. A page, on port PORT, shows the progress
until Ctrl-C. With REDIS_URL it starts no server, and first deletes the keys `upstream` and `upstream:*` there, which an
earlier demonstration may have left.
"""

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

from running import running, serving  # noqa: E402  from examples

# The jobs and workers of each tenant. The first floods the line.
TENANTS = {"big": (160, 40), "small": (40, 2)}
JOBS = sum(jobs for jobs, _ in TENANTS.values())
# After this number of requests the service wants no more for two seconds.
STOP_EVERY = 80
LEASE_MS = 4_000
# The service allows 4 at once and 20 a second. The longer period tolerates requests that arrive up to 200 ms late.
RULES = ["slots:4,name=slots", "20/1200ms,name=rate"]


def holds(redis):
    """The holders of the slots: id and seconds left."""
    info = redis.execute_command("RL.INFO", "upstream")
    return {hold[b"id"].decode(): hold[b"ttl_ms"] / 1000 for hold in info[b"next_holds"]} if info else {}


def show(redis, log, since):
    waiting = redis.info("ratelimit")["ratelimit_waiting_clients"]
    jobs = redis.lrange("upstream:done", 0, -1)
    done = Counter(job.decode().rpartition("-")[0] for job in jobs)
    shares = ", ".join(f"{tenant} {done[tenant]:3}" for tenant in TENANTS)
    stopped = log.read_text().count(" stop ")
    held = ", ".join(f"{id} ({left_s:.1f} s)" for id, left_s in holds(redis).items())
    now_s = time.monotonic() - since
    print(f"{now_s:4.1f} s: done: {shares}; {stopped} stops, {waiting} wait, slots: {held}", flush=True)
    return len(jobs)


def kill_one(redis):
    """Kills a worker that has a slot, as a crash does."""
    while not (held := holds(redis)):
        time.sleep(0.01)
    id = list(held)[-1]
    os.kill(int(id.split(".")[1]), signal.SIGKILL)
    print(f"... {id} is killed with SIGKILL during its job: its slot is taken until its hold ends", flush=True)


def play(redis, log):
    """Shows the progress of the jobs each second, until all are done."""
    since, is_killed = time.monotonic(), False
    while (done := show(redis, log, since)) < JOBS:
        if done > JOBS / 4 and not is_killed:
            kill_one(redis)
            is_killed = True
        time.sleep(1)
    events = log.read_text()
    began, refused, stops, early = (events.count(f" {event} ") for event in ("begin", "refused", "stop", "early"))
    print(f"The service served {began} requests and refused {refused}. It said stop {stops} times; {early} came too early.")
    print("The killed worker's job was done again.")


def main():
    with serving("upstream", "upstream:*") as (redis, url), tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "upstream.log")
        server = ["--redis", url]
        flows = [word for tenant in TENANTS for word in ("--flow", tenant)]
        for tenant, (jobs, workers) in TENANTS.items():
            redis.rpush(f"upstream:{tenant}:jobs", *(f"{tenant}-{number}" for number in range(1, jobs + 1)))
            print(f"{tenant}: {jobs} jobs, {workers} workers")
        print(f"A service that allows 4 at once and 20 a second: {' '.join(RULES)}")
        with (
            running(HERE / "board.py", *server, *flows, "--port", os.environ.get("PORT", 0), *RULES) as (_, board),
            running(HERE / "upstream.py", "--stop-every", STOP_EVERY, "--log", log) as (_, port),
            contextlib.ExitStack() as stack,
        ):
            page = f"http://127.0.0.1:{board}/"
            print(f"A page shows it: {page}", flush=True)
            stack.enter_context(contextlib.suppress(KeyboardInterrupt))
            for tenant, (_, workers) in TENANTS.items():
                line = [*server, "--upstream", port, "--flow", tenant, "--workers", workers, "--lease-ms", LEASE_MS]
                pool, _ = stack.enter_context(running(HERE / "pool.py", *line, *RULES))
                stack.callback(pool.wait)
                stack.callback(pool.terminate)
            play(redis, log)
            print(f"Add jobs at {page}: the pools wait for them. Ctrl-C stops all.", flush=True)
            while True:
                time.sleep(1)


if __name__ == "__main__":
    main()
