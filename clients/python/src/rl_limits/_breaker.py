"""Decides when to stop asking a server that gives no decision, and reports it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from ._errors import LOG, described


class OutageEvent(NamedTuple):
    """The limiter has stopped asking the server, or asks again."""

    away: bool
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


class Breaker:
    """Stops asking for a second after three failures in a row, then lets one request a second try."""

    FAILURES = 3
    PAUSE_S = 1.0
    #: How often a wrong configuration is reported while it lasts, even if the server answers for other keys.
    REPORT_S = 60.0

    def __init__(
        self,
        on_outage: Callable[[OutageEvent], object] | None = None,
        on_misconfigured: Callable[[MisconfiguredEvent], object] | None = None,
    ) -> None:
        self.on_outage = on_outage or _log_outage
        self.on_misconfigured = on_misconfigured or _log_misconfigured
        #: How many requests got no decision from the server.
        self.outages = 0
        #: Called when the limiter stops asking, to end the commands under way.
        self.stopped: Callable[[], object] = lambda: None
        self.away = False
        self.error: Exception = ConnectionError()
        self._lock = threading.Lock()
        self._failures = 0
        self._gone_at = 0
        self._reported = 0
        #: When to report each advice again.
        self._report_at_s: dict[str, float] = {}
        self._until_s = 0.0

    def rests(self, now_s: float) -> bool:
        """Whether no request may ask the server now."""
        return self.away and now_s < self._until_s

    def may_ask(self, now_s: float) -> bool:
        if not self.away:
            return True
        with self._lock:
            if now_s < self._until_s:
                return False
            self._until_s = now_s + self.PAUSE_S  # for all requests but this one
            return True

    def count(self) -> None:
        """Counts a request that got no decision from the server."""
        with self._lock:
            self.outages += 1

    def failed(self, error: Exception, now_s: float, advice: str | None = None) -> None:
        """`advice`: what to do about a server that does not limit, or None if the server is away."""
        with self._lock:
            self.error = error
            self._failures += 1
            report = self._report(error, advice, now_s)
            event = None
            if self._failures >= self.FAILURES:
                if not self.away:  # a later failure, such as that of a wait, does not delay the next try
                    self._until_s = now_s + self.PAUSE_S
                event = self._turn(True)
        if report:
            _tell(self.on_misconfigured, report)
        if event:
            self.stopped()
            _tell(self.on_outage, event)

    def served(self) -> None:
        if not self._failures:
            return
        with self._lock:
            self._failures = 0
            event = self._turn(False)
        if event:
            _tell(self.on_outage, event)

    def _turn(self, away: bool) -> OutageEvent | None:
        if away == self.away:
            return None
        self.away = away
        if away:
            self._gone_at = self.outages
        return OutageEvent(away, self.error, self.outages - self._gone_at)

    def _report(self, error: Exception, advice: str | None, now_s: float) -> MisconfiguredEvent | None:
        if advice is None or now_s < self._report_at_s.get(advice, now_s):
            return None
        self._report_at_s[advice] = now_s + self.REPORT_S
        event = MisconfiguredEvent(error, advice, self.outages - self._reported)
        self._reported = self.outages
        return event


def _tell(listener: Callable[[Any], object], event: OutageEvent | MisconfiguredEvent) -> None:
    try:
        listener(event)
    except Exception:
        LOG.exception("the listener of a limiter failed")


def _log_outage(event: OutageEvent) -> None:
    if event.away:
        LOG.warning("the limiter stops asking its server for now (%s)", described(event.error))
    else:
        LOG.warning("the limiter asks its server again, after %d requests without it", event.answered)


def _log_misconfigured(event: MisconfiguredEvent) -> None:
    error = type(event.error).__name__
    LOG.error("the server does not limit (%s): %s; %d requests without it", error, event.advice, event.answered)
