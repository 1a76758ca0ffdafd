"""Over and under: how much a peer admits under overload, by four callers.

over     the most requests that were asked and answered within one period of the rule, and admitted, over the limit. The
         server decided between question and answer, so this is certain, and may be a little too low.
under    admitted over what the peer's algorithm, by its definition, admits of the same arrivals.
"""

import random
import time

from . import models
from .adapter import hits
from .setting import RULE, WALL_S, Setting

CALLERS = 4
STEADY_S = 6.0
#: Requests a second of each caller.
RATE = 25
BURSTS, BURST = 12, 10
STALL_S = 0.2


def steady(seconds=STEADY_S, rate=RATE):
    """Times of each caller, a tenth of a second from now."""
    begins = time.monotonic() + 0.1
    return [[begins + (i + caller / CALLERS) / rate for i in range(int(seconds * rate))] for caller in range(CALLERS)]


def bursts():
    begins, starts = time.monotonic() + 0.1, [0.0]
    for _ in range(BURSTS - 1):
        starts.append(starts[-1] + random.uniform(0.2, 0.9))
    return [[begins + start for start in starts for _ in range(BURST)] for _ in range(CALLERS)]


def undisturbed(callers, key, rules, times):
    """Requests at the times that a function makes; all again, on another key, if one took so long that the machine stood
    still, at most three times."""
    for attempt in range(4):
        for caller in callers:
            caller.hit(f"warm {key}", *rules)
        made = hits(callers, f"{key} {attempt}", rules, times())
        if max(hit.got - hit.sent for hit in made) < STALL_S:
            break
    return made


def most_within(made, period_s):
    """The most admitted requests that were asked and answered within one period."""
    passed = [hit for hit in made if hit.ok]
    return max(
        (sum(hit.sent <= other.sent and other.got < hit.sent + period_s for other in passed) for hit in passed), default=0
    )


def arrivals(made):
    """When each request came to the server, as well as a caller knows, by the wall clock."""
    return sorted((hit.sent + hit.got) / 2 + WALL_S for hit in made)


def of_model(peer, made, *rules):
    """Admitted, over what the peer's algorithm admits."""
    return sum(bool(hit.ok) for hit in made) / models.admitted(peer.algorithm, rules, arrivals(made))


def measure(peer):
    limit, period_ms = RULE
    with Setting(peer) as setting:
        callers = setting.callers(CALLERS)
        evenly = undisturbed(callers, "steady", [RULE], steady)
        crowded = undisturbed(callers, "bursts", [RULE], bursts)
    return {
        "over_steady": most_within(evenly, period_ms / 1000) / limit,
        "over_bursts": most_within(crowded, period_ms / 1000) / limit,
        "under": of_model(peer, evenly, RULE),
    }
