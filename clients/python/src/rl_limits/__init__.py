"""Rate limits that redis-ratelimit, a module of Redis and Valkey, decides inside the server."""

from ._breaker import Misconfigured, Outage
from ._commands import Cost, Limit, Rules
from ._errors import Saturated, is_outage
from ._replies import Reply, Report, RuleReport, Verdict
from .address import network
from .holds import AsyncHold, Denied, Hold
from .lease import AsyncLease, Lease
from .limiter import AsyncRateLimiter, RateLimiter

__all__ = [
    "AsyncHold",
    "AsyncLease",
    "AsyncRateLimiter",
    "Cost",
    "Denied",
    "Hold",
    "Lease",
    "Limit",
    "Misconfigured",
    "Outage",
    "RateLimiter",
    "Reply",
    "Report",
    "RuleReport",
    "Rules",
    "Saturated",
    "Verdict",
    "is_outage",
    "network",
]
