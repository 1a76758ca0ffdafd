#!/usr/bin/env python3
"""Shows what each algorithm admits of the same requests under the same limit: a table, and docs/images/accuracy.svg.

A real server decides each request at that request's time (`AT`), so the numbers are the same in each run. A request of
a leaky bucket counts at its turn, because that is when it goes ahead.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from arrivals import MINUTE_US, START_US, arrivals

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path += [str(ROOT / "benches"), str(ROOT / ".cache/plots")]

from picture import draw  # noqa: E402  it needs matplotlib, which is in .cache/plots
from started import started  # noqa: E402

PICTURE = ROOT / "docs/images/accuracy.svg"
LIMIT = 100
RULES = ["log:100/m", "window:100/m", "fixed:100/m", "bucket:100/m", "leaky:100/m"]


@dataclass(frozen=True)
class Result:
    """The requests that passed under a rule: their times in microseconds since the start."""

    rule: str
    times: list

    def in_last_minute(self):
        """For each request that passed: how many passed in the minute that ends with it."""
        first, counts = 0, []
        for last, time in enumerate(self.times):
            while self.times[first] <= time - MINUTE_US:
                first += 1
            counts.append(last - first + 1)
        return counts

    def in_minute_of_clock(self):
        minutes = [time // MINUTE_US for time in self.times]
        return max(map(minutes.count, set(minutes)))


def ask(client, rule, times):
    """Sends the requests, each with its time."""
    pipe = client.pipeline(transaction=False)
    for time in times:
        pipe.execute_command("RL.CHECK", rule, "AT", START_US + time, rule)
    replies = zip(times, pipe.execute(), strict=True)
    return Result(rule, sorted(time + wait_ms * 1000 for time, (verdict, _, _, wait_ms, _) in replies if verdict == 0))


def print_table(times, results):
    print(f"{len(times)} requests in {(times[-1] + MINUTE_US - 1) // MINUTE_US} minutes, {LIMIT} a minute")
    print(f"{'rule':14} {'let through':>11} {'most in any minute':>20} {'most in a minute of the clock':>31}")
    for result in results:
        most, by_clock = max(result.in_last_minute()), result.in_minute_of_clock()
        print(f"{result.rule:14} {len(result.times):11} {most:20} {by_clock:31}")


def main():
    times = arrivals()
    with started(settings=["allow-at", "yes"]) as server:
        results = [ask(server.client, rule, times) for rule in RULES]
    print_table(times, results)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    draw(times, results, LIMIT, PICTURE)
    print(f"{PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
