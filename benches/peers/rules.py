"""Two rules at once, 10 a second and 60 a minute, in both orders: admitted over what both allow.

What both allow is what the peer's algorithm admits of the same arrivals if a request that one rule denies consumes nothing
of the other.
"""

from .admits import CALLERS, of_model, steady, undisturbed
from .setting import LONGER, RULE, Setting

SECONDS = 8.0
RATE = 15


def measure(peer):
    found = {}
    with Setting(peer) as setting:
        callers = setting.callers(CALLERS)
        for name, rules in (("short_first", (RULE, LONGER)), ("long_first", (LONGER, RULE))):
            made = undisturbed(callers, name, rules, lambda: steady(SECONDS, RATE))
            found[name] = of_model(peer, made, *rules)
    return found
