"""The requests that all algorithms get: ten minutes of one client's traffic, the same in each run."""

import random

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
MINUTES = 10
# Any whole minute works: windows by the clock begin there.
START_US = 28_333_334 * MINUTE_US
SEED = 7

# Phases of traffic: begin and end in seconds, and how many requests come at random times
# between them.
STEADY = (0, 60 * MINUTES, 30 * MINUTES)
ACROSS_A_MINUTE = (114, 126, 260)
FLOOD = (220, 370, 750)
BURST = (490, 500, 240)
PHASES = [STEADY, ACROSS_A_MINUTE, FLOOD, BURST]


def arrivals():
    """The time of each request, in microseconds since the start."""
    chance = random.Random(SEED)
    times = [
        int((begin + chance.random() * (end - begin)) * SECOND_US) for begin, end, count in PHASES for _ in range(count)
    ]
    return sorted(times)
