"""Throttle classes for Django REST framework, in place of those of the same names in `rest_framework.throttling`.

They need no cache, only `RL_LIMITS = {"URL": ...}` or `{"LIMITER": ...}` (`rl_limits.django`). `DEFAULT_THROTTLE_RATES`
takes the framework's own rates, such as `"5/min"`, which become exact sliding logs, and rules of the server, such as
`"5/15m 20/d"`, `"bucket:30/m,burst=5"`, `"@free"`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rest_framework import throttling
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.settings import api_settings

from ._replies import Reply
from .django import checked_rules, limiter, networks
from .http import status_of

if TYPE_CHECKING:  # rest_framework.views imports the throttles that the settings name
    from rest_framework.views import APIView

# A rate as the framework reads it: only the first letter of the period matters.
OWN_RATE = re.compile(r"(\d+)/([smhd])[a-z]*")


class RateLimitThrottle(throttling.SimpleRateThrottle):  # type: ignore[misc]
    reply: Reply | None = None

    def parse_rate(self, rate: str | None) -> tuple[None, None]:
        if rate is not None:
            checked_rules("DEFAULT_THROTTLE_RATES", rules_of(rate))
        return None, None  # the server reads it

    def allow_request(self, request: Request, view: APIView) -> bool:
        key = self.get_cache_key(request, view)
        if self.rate is None or key is None:
            return True
        try:
            self.reply = limiter().check(key, rules_of(self.rate))
        except Exception as error:
            raise (Undecided if status_of(limiter().core, error) == 503 else Misused) from None
        if self.reply.source == "outage" and not self.reply.allowed:
            raise Undecided
        return self.reply.allowed

    def wait(self) -> float | None:
        return self.reply.wait_ms / 1000 if self.reply and self.reply.wait_ms >= 0 else None

    def get_ident(self, request: Request) -> str:
        """The client's network. Without `NUM_PROXIES` the framework believes any X-Forwarded-For, which a client may
        invent for each request. So without it this class counts the address of the connection."""
        behind_proxies = api_settings.NUM_PROXIES is not None
        return networks()(super().get_ident(request) if behind_proxies else request.META.get("REMOTE_ADDR"))


class Undecided(APIException):  # type: ignore[misc]
    """The server gave no decision, and the limiter's `outage` is "raise" or "deny"; or this process asks too much."""

    status_code = 503
    default_detail = "Service Unavailable"
    wait = 1


class Misused(APIException):  # type: ignore[misc]
    """The limits of the request are wrong. The log says how."""

    status_code = 500


class AnonRateThrottle(throttling.AnonRateThrottle, RateLimitThrottle):  # type: ignore[misc]
    """Limits clients that have not logged in, by address."""


class UserRateThrottle(throttling.UserRateThrottle, RateLimitThrottle):  # type: ignore[misc]
    """Limits each user, and by address each client that has not logged in."""


class ScopedRateThrottle(throttling.ScopedRateThrottle, RateLimitThrottle):  # type: ignore[misc]
    """Limits each part of an API by its `throttle_scope`."""


def rules_of(rate: Any) -> list[str]:
    """The rules that a rate stands for."""
    own = OWN_RATE.fullmatch(rate)
    return [f"log:{own[1]}/1{own[2]}"] if own else rate.split()
