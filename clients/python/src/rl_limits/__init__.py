"""Rate limits that redis-ratelimit, a module of Redis and Valkey, decides inside the server."""

from ._commands import Cost, Limit, Rules
from ._replies import Reply, Report, RuleReport, Verdict
from .address import network
from .limiter import AsyncRateLimiter, RateLimiter

__all__ = [
    "AsyncRateLimiter",
    "Cost",
    "Limit",
    "RateLimiter",
    "Reply",
    "Report",
    "RuleReport",
    "Rules",
    "Verdict",
    "network",
]
