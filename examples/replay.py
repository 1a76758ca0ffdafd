#!/usr/bin/env python3
"""What would these rules have admitted? Replays the requests of a log against a server, at the times of the log.

    replay.py --redis URL rule [rule ...] < requests

Each line of requests is `unix-seconds key [cost]`, and the lines are in the order of time. The server needs
`ratelimit.allow-at yes`, and should not be the one in production: the script writes keys with the prefix `replay:`, and
deletes them at the end.

Prints how many requests passed, and the keys that were denied most often. To try a rule on live traffic instead, give
it `shadow`: it is then reported and counted, but denies nothing.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / ".cache/python"))

import redis  # noqa: E402  scripts/fetch.py puts it there

PREFIX = "replay:"


def replay(server, rules, lines):
    """Returns how many requests passed, and how often each key was denied."""
    allowed, denied, keys = 0, Counter(), set()
    try:
        for line in lines:
            seconds, key, *cost = line.split()
            keys.add(key)
            at_us = round(float(seconds) * 1_000_000)
            costs = ["COST", cost[0]] if cost else []
            verdict = server.execute_command("RL.CHECK", PREFIX + key, *costs, "AT", at_us, *rules)[0]
            allowed += verdict == 0
            denied[key] += verdict != 0
    finally:
        for key in keys:
            server.unlink(PREFIX + key)
    return allowed, denied


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--redis", required=True)
    parser.add_argument("rules", nargs="+")
    options = parser.parse_args()
    allowed, denied = replay(redis.Redis.from_url(options.redis), options.rules, filter(str.strip, sys.stdin))
    print(f"{allowed} passed, {denied.total()} denied")
    for key, count in denied.most_common(10):
        if count:
            print(f"{count:8} {key}")


if __name__ == "__main__":
    main()
