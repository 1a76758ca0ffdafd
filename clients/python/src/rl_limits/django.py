"""A middleware for Django. Its settings; all but LIMITS, and URL or LIMITER, may be left out:

RL_LIMITS = {
    "URL": "redis://localhost",              # of the server
    "OPTIONS": {"outage": "local"},          # of `RateLimiter.from_url`
    "LIMITER": "shop.limits.limiter",        # or a RateLimiter of the application: of a cluster, of sentinels
    "LIMITS": "shop.limits.of",              # rules for each network, or a function: what a request must keep to
    "KEY": "shop.limits.key_of",             # a function: the key of rules
    "PREFIX": 64,                            # of an IPv6 network
    "SKIP": "shop.limits.is_free",           # a function: which requests pass without a check
    "COUNT": "all",                          # or "failed", "successful": give back what other answers have consumed
    "HEADERS": "draft-11",                   # or "legacy", "none"
    "REFUSAL": "shop.limits.refuse",         # a function: the response to a request and its report
}
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.module_loading import import_string

from ._commands import Limit
from ._replies import Report
from .address import network
from .http import PROBLEM_TYPE, counts, fields, problem, status
from .limiter import RateLimiter


class RateLimitMiddleware:
    """Lets requests pass as the rules say, and sets RateLimit, RateLimit-Policy and Retry-After.

    Several limits are decided at once, so that all of them consume, or none; a request without limits passes. Views
    find the report in `request.rate_limit`. While the server cannot be asked, the limiter's `outage` decides.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self.limits = limits_of(setting("LIMITS"))
        self.skip = named("SKIP") or (lambda request: False)
        self.refusal = named("REFUSAL") or (lambda request, report: _refuse(report))

    def __call__(self, request: HttpRequest) -> HttpResponse:
        wanted = () if self.skip(request) else self.limits(request)
        if not wanted:
            return self.get_response(request)
        report = request.rate_limit = limiter().check_all(wanted)
        if report.allowed:
            time.sleep(report.wait_ms / 1000)  # its turn under a `leaky` rule, or 0
            response = self.get_response(request)
            if not counts(optional("COUNT", "all"), response.status_code):
                limiter().give_back(report)
        else:
            response = self.refusal(request, report)
        for name, value in fields(report, optional("HEADERS", "draft-11")).items():
            response[name] = value
        return response


def limits_of(limits: Any) -> Callable[[HttpRequest], Sequence[Limit]]:
    """What the setting says of each request. A text with a slash or a policy's `@` is a rule, any other names a
    function."""
    if not limits:
        return lambda request: []
    if isinstance(limits, str) and "/" not in limits and not limits.startswith("@"):
        found: Callable[[HttpRequest], Sequence[Limit]] = import_string(limits)
        return found
    key = named("KEY") or (lambda request: f"ip:{network(request.META.get('REMOTE_ADDR'), optional('PREFIX', 64))}")
    return lambda request: [Limit(key(request), limits)]


def _refuse(report: Report) -> HttpResponse:
    return JsonResponse(problem(report), status=status(report), content_type=PROBLEM_TYPE)


@functools.cache
def limiter() -> RateLimiter:
    """The limiter of this process, as the settings say."""
    made = named("LIMITER")
    return made if made is not None else RateLimiter.from_url(setting("URL"), **optional("OPTIONS", {}))


def setting(name: str) -> Any:
    try:
        return _settings()[name]
    except KeyError:
        raise ImproperlyConfigured(f"RL_LIMITS needs {name!r}: see rl_limits.django") from None


def optional(name: str, default: Any) -> Any:
    return _settings().get(name, default)


def named(name: str) -> Any:
    """What a setting names, or nothing."""
    path = optional(name, None)
    return path and import_string(path)


def _settings() -> dict[str, Any]:
    return getattr(settings, "RL_LIMITS", {})


def _forget_limiter(*, setting: str, **_: Any) -> None:
    if setting == "RL_LIMITS":
        limiter.cache_clear()


setting_changed.connect(_forget_limiter)
