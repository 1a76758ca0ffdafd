"""Rate limits that redis-ratelimit, a module of Redis and Valkey, decides inside the server."""

from ._commands import Cost, Limit, Rules
from ._outage import Outage, is_outage
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
    "Outage",
    "RateLimiter",
    "Reply",
    "Report",
    "RuleReport",
    "Rules",
    "Verdict",
    "is_outage",
    "network",
]
