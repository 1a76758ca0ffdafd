"""Clocks: four callers, one of them on a machine whose clock is 5 s ahead. Admitted over what the peer's algorithm admits."""

from .adapter import hits
from .admits import CALLERS, of_model, steady
from .setting import RULE, Setting


def measure(peer):
    with Setting(peer) as setting:
        callers = [setting.caller(ahead=at == 0) for at in range(CALLERS)]
        for caller in callers:
            caller.hit("warm", RULE)
        return {"clock": of_model(peer, hits(callers, "clock", [RULE], steady()), RULE)}
