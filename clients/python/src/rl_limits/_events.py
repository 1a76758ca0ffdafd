"""What a limiter tells the application, and logs where nobody listens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ._errors import LOG, advice, described
from ._replies import Source, Verdict

#: How often a wrong configuration, and whatever else would be logged at each request, is reported while it lasts.
REPORT_S = 60.0


class OutageEvent(NamedTuple):
    """A server went away, or is back."""

    away: bool
    node: str
    """The server, or the node of a cluster."""
    error: Exception
    """The last error."""
    answered: int
    """How many requests were answered without the server since it went away."""


class MisconfiguredEvent(NamedTuple):
    """The server answers, but does not limit."""

    error: Exception
    advice: str
    """What to do."""
    answered: int
    """How many requests were answered without the server since the last such event."""


class DecisionEvent(NamedTuple):
    """A check got its answer."""

    source: Source
    verdict: Verdict
    rule: str | None
    """The name or the text of the rule that decided: the first that denies, or the only one that was given."""
    ms: float


class Events:
    def __init__(
        self,
        on_outage: Callable[[OutageEvent], object] | None = None,
        on_misconfigured: Callable[[MisconfiguredEvent], object] | None = None,
        on_decision: Callable[[DecisionEvent], object] | None = None,
    ) -> None:
        self.on_outage = on_outage or _log_outage
        self.on_misconfigured = on_misconfigured or _log_misconfigured
        self.on_decision = on_decision
        #: How many requests got no decision from the server.
        self.outages = 0
        #: The nodes that were told to be away, and how many requests had got no decision then.
        self.gone: dict[str, int] = {}
        self._reported = 0
        #: When to report each text again.
        self._again_s: dict[str, float] = {}
        self.renew()

    def renew(self) -> None:
        """Another process may have held the lock when this one was forked from it."""
        self._lock = threading.Lock()

    def undecided(self) -> None:
        """Counts a request that got no decision from the server."""
        with self._lock:
            self.outages += 1

    def outage(self, away: bool, node: str, error: Exception) -> None:
        """Tells that a node is away or back, once for all event loops."""
        with self._lock:
            if away == (node in self.gone):
                return
            answered = 0 if away else self.outages - self.gone.pop(node)
            if away:
                self.gone[node] = self.outages
        tell(self.on_outage, OutageEvent(away, node, error, answered))

    def failed(self, error: Exception) -> None:
        """Reports a server that does not limit."""
        what = advice(error)
        if what and self.is_due(what):
            event = MisconfiguredEvent(error, what, self.outages - self._reported)
            self._reported = self.outages
            tell(self.on_misconfigured, event)

    def is_due(self, text: str) -> bool:
        """Whether to report a text now: once in REPORT_S."""
        with self._lock:
            now_s = time.monotonic()
            if now_s < self._again_s.get(text, now_s):
                return False
            if len(self._again_s) > 100:
                self._again_s.clear()
            self._again_s[text] = now_s + REPORT_S
            return True


def tell(listener: Callable[[Any], object], event: Any) -> None:
    try:
        listener(event)
    except Exception:
        LOG.exception("the listener of a limiter failed")


def _log_outage(event: OutageEvent) -> None:
    if event.away:
        LOG.warning("%s is away (%s)", event.node, described(event.error))
    else:
        LOG.warning("%s is back, after %d requests without it", event.node, event.answered)


def _log_misconfigured(event: MisconfiguredEvent) -> None:
    error = type(event.error).__name__
    LOG.error("the server does not limit (%s): %s; %d requests without it", error, event.advice, event.answered)
