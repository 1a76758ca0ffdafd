"""Rate limits that redis-ratelimit, a module of Redis and Valkey, decides inside the server."""

from ._commands import Cost, Limit, Rules
from ._errors import Saturated, is_outage
from ._events import DecisionEvent, MisconfiguredEvent, OutageEvent
from ._replies import Reply, Report, RuleReport, Source, Verdict
from .address import network
from .holds import AsyncHold, Denied, Hold
from .lease import AsyncLease, Lease
from .limiter import AsyncRateLimiter, RateLimiter

__all__ = [
    "AsyncHold",
    "AsyncLease",
    "AsyncRateLimiter",
    "Cost",
    "DecisionEvent",
    "Denied",
    "Hold",
    "Lease",
    "Limit",
    "MisconfiguredEvent",
    "OutageEvent",
    "RateLimiter",
    "Reply",
    "Report",
    "RuleReport",
    "Rules",
    "Saturated",
    "Source",
    "Verdict",
    "is_outage",
    "network",
]
