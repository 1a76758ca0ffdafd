"""When the server gives no decision: which errors say so, and when to stop asking."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, NamedTuple

#: What a check answers if the server gives no decision: its error, a pass, a denial, or what a limiter in this process
#: decides.
Mode = Literal["raise", "allow", "deny", "local"]

MODES: tuple[Mode, ...] = ("raise", "allow", "deny", "local")

# Classes of redis-py and valkey-py by name, because neither needs the other to be installed. redis-py cuts the code off
# the errors that have a class.
NO_REPLY = {"ConnectionError", "TimeoutError", "OSError", "BusyLoadingError", "ClusterError", "SlotNotCoveredError"}
NOT_NOW = {"OutOfMemoryError", "ReadOnlyError", "TryAgainError", "MasterDownError", "ClusterDownError"}
WRONG = {"AuthenticationError", "AuthorizationError", "ExternalAuthProviderError"}  # these are ConnectionErrors, too

CODES = [
    "LOADING",
    "BUSY",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "READONLY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "UNBLOCKED",
]
TEXTS = ("max number of clients", "internal error", "this replica skipped")
CLUSTER_EXCEPTIONS = {"RedisClusterException", "ValkeyClusterException"}
# What these say if the cluster is the reason: they also stand for faults of the application, such as keys in two slots.
AWAY = ("cannot be connected", "slots are not covered", "not agree", "No targets", "doesn't exist in the cluster")


def is_outage(error: BaseException) -> bool:
    """Whether the server gave no decision, and may give one later. Faults of a request are none: they stay."""
    classes = {kind.__name__ for kind in type(error).__mro__}
    text = str(error).removeprefix("ERR ")
    if classes & WRONG:
        return False
    if classes & CLUSTER_EXCEPTIONS and "SlotNotCoveredError" not in classes:
        cause = error.__cause__
        return any(part in text for part in AWAY) and (cause is None or is_outage(cause))
    if classes & (NO_REPLY | NOT_NOW):
        return True
    return "ResponseError" in classes and (text.partition(" ")[0] in CODES or text.startswith(TEXTS))


class Outage(NamedTuple):
    """The limiter has stopped asking the server, or asks again."""

    away: bool
    error: Exception
    """The last error."""
    answered: int
    """How many requests were answered without the server since the last such event."""


class Breaker:
    """Stops asking for a second after three outages in a row, then lets one request a second try."""

    FAILURES = 3
    PAUSE_S = 1.0

    def __init__(self, on_outage: Callable[[Outage], object] | None = None) -> None:
        self.on_outage = on_outage
        self.outages = 0
        self.away = False
        self.error: Exception = ConnectionError()
        self._failures = 0
        self._told = 0
        self._until_s = 0.0

    def may_ask(self, now_s: float) -> bool:
        if not self.away:
            return True
        if now_s < self._until_s:
            self.outages += 1
            return False
        self._until_s = now_s + self.PAUSE_S  # for all but this one
        return True

    def failed(self, error: Exception, now_s: float) -> None:
        self.error = error
        self.outages += 1
        self._failures += 1
        if self._failures >= self.FAILURES:
            self._until_s = now_s + self.PAUSE_S
            self._tell(True)

    def served(self) -> None:
        if self._failures:
            self._failures = 0
            self._tell(False)

    def _tell(self, away: bool) -> None:
        if away == self.away:
            return
        self.away = away
        event = Outage(away, self.error, self.outages - self._told)
        self._told = self.outages
        try:
            if self.on_outage:
                self.on_outage(event)
        except Exception:
            logging.getLogger(__name__).exception("on_outage failed")
