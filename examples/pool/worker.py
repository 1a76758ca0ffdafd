#!/usr/bin/env python3
"""A worker of a pool: takes a job, waits in line, asks the upstream, does what the answer says, and settles.

    worker.py --redis URL --upstream PORT --flow FLOW --name NAME [--key KEY] [--lease-ms MS] rule [rule ...]

Jobs are in the list KEY:FLOW:jobs. A worker moves a job to its own list KEY:doing:NAME, and to KEY:done when the job is
done. So a job outlives its worker: a new worker of the same name begins with the job in its list. A worker ends when
its pool does.
"""

import argparse
import http.client
import os
import sys
import time
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / folder) for folder in ("clients/python/src", ".cache/python")]

import redis  # noqa: E402  from .cache/python, where scripts/fetch.py puts it
from rl_limits import Denied, RateLimiter  # noqa: E402  from clients/python

# How long to wait for a job before checking that the pool still runs.
IDLE_S = 1
# How long to wait in line before asking again, at the end of the line.
WAIT_S = 60


class Jobs:
    def __init__(self, server, key, flow, name):
        self.server = server
        self.waiting = f"{key}:{flow}:jobs"
        self.doing = f"{key}:doing:{name}"
        self.done = f"{key}:done"

    def next(self):
        """The job that was left behind under this name, otherwise the next job; None if no job comes for a while."""
        left = self.server.lindex(self.doing, 0)
        return left or self.server.blmove(self.waiting, self.doing, IDLE_S, "LEFT", "RIGHT")

    def finish(self, job):
        self.server.pipeline().lrem(self.doing, 1, job).rpush(self.done, job).execute()


def ask(upstream, job, timeout_s):
    """The status and the headers of the upstream's answer."""
    line = http.client.HTTPConnection("127.0.0.1", upstream, timeout=timeout_s)
    try:
        line.request("POST", f"/{job}")
        answer = line.getresponse()
        answer.read()
        return answer.status, answer.headers
    finally:
        line.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--redis", required=True)
    parser.add_argument("--upstream", type=int, required=True)
    parser.add_argument("--flow", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--key", default="upstream")
    parser.add_argument("--lease-ms", type=int, default=30_000)
    parser.add_argument("rules", nargs="+")
    options = parser.parse_args()
    pool = os.getppid()
    server = redis.Redis.from_url(options.redis, socket_timeout=5, decode_responses=True)
    jobs = Jobs(server, options.key, options.flow, options.name)
    limiter = RateLimiter(server)
    # RL.INFO shows these ids, and so which worker holds a slot. Each id is used once: with the id of an attempt that
    # died, a new attempt would repeat the dead attempt's hold.
    ids = (f"{options.name}.{os.getpid()}.{number}" for number in count(1))
    lease_s = options.lease_ms / 1000
    while os.getppid() == pool:
        try:
            job = jobs.next()
            if job is None:
                continue
            with limiter.hold(
                options.key, options.rules, ttl=lease_s, id=next(ids), wait=WAIT_S, flow=options.flow
            ):
                # The request must end before the hold does: afterwards another worker may have the slot.
                status, headers = ask(options.upstream, job, lease_s / 2)
                # After a 429, this pauses the key while the slot is still taken, so no other worker asks meanwhile.
                paused_ms = limiter.follow(options.key, status, headers)
            if status == 200:
                jobs.finish(job)
            if status == 200 or paused_ms:
                continue
        except Denied as denied:
            if denied.reply.verdict == "limited" and denied.reply.wait_ms < 0:
                sys.exit(f"{' '.join(options.rules)}: nothing ever passes")
            # Otherwise the line or the pause is too long, or an operator has blocked the key.
        except (redis.RedisError, OSError):
            pass  # No server, or no answer from the upstream.
        time.sleep(1)  # The job is still in our list.


if __name__ == "__main__":
    main()
