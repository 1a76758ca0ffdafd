"""Two rules at once, 10 a second and 60 a minute, in both orders: admitted over what both allow.

What both allow is what the peer's algorithm admits of the same arrivals if a request that one rule denies consumes nothing
of the other.
"""

from .adapter import hits
from .admits import CALLERS, of_model, steady
from .setting import LONGER, RULE, Setting

SECONDS = 8.0
RATE = 15


def measure(peer):
    found = {}
    with Setting(peer) as setting:
        callers = setting.callers(CALLERS)
        for name, rules in (("short_first", (RULE, LONGER)), ("long_first", (LONGER, RULE))):
            for caller in callers:
                caller.hit(f"warm {name}", *rules)
            found[name] = of_model(peer, hits(callers, name, rules, steady(SECONDS, RATE)), *rules)
    return found
