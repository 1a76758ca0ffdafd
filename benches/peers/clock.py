"""Clocks: four callers, one of them on a machine whose clock is 5 s ahead. Admitted over what the peer's algorithm admits."""

from .admits import CALLERS, of_model, steady, undisturbed
from .setting import RULE, Setting


def measure(peer):
    with Setting(peer) as setting:
        callers = [setting.caller(ahead=at == 0) for at in range(CALLERS)]
        return {"clock": of_model(peer, undisturbed(callers, "clock", [RULE], steady), RULE)}
