"""A middleware for Django. Its settings:

RL_LIMITS = {
    "URL": "redis://localhost",             # of the server, as redis-py reads it
    "OPTIONS": {"socket_timeout": 1},       # for `redis.Redis.from_url`; may be left out
    "LIMITS": "shop.limits.of",             # a function: what a request must keep to
    "ON_ERROR": "shop.limits.unanswered",   # a function, called while the server cannot be asked; may be left out
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
from redis import Redis, RedisError

from ._commands import Limit
from .http import PROBLEM_TYPE, fields, problem, status
from .limiter import RateLimiter


class RateLimitMiddleware:
    """Lets requests pass as the rules say, and sets RateLimit, RateLimit-Policy and Retry-After.

    Several limits are decided at once, so that all of them consume, or none; a request without limits passes. Views
    find the report in `request.rate_limit`. Without `ON_ERROR` a request fails while the server cannot be asked; with
    it a request passes unless that function raises.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self.limits: Callable[[HttpRequest], Sequence[Limit]] = import_string(setting("LIMITS"))
        path = _settings().get("ON_ERROR")
        self.on_error: Callable[[RedisError, HttpRequest], None] | None = path and import_string(path)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        wanted = self.limits(request)
        if not wanted:
            return self.get_response(request)
        try:
            report = limiter().check_all(wanted)
        except RedisError as error:
            if self.on_error is None:
                raise
            self.on_error(error, request)
            return self.get_response(request)
        request.rate_limit = report
        if report.allowed:
            time.sleep(report.wait_ms / 1000)  # its turn under a `leaky` rule, or 0
            response = self.get_response(request)
        else:
            response = JsonResponse(problem(report), status=status(report), content_type=PROBLEM_TYPE)
        for name, value in fields(report).items():
            response[name] = value
        return response


@functools.cache
def limiter() -> RateLimiter:
    """The limiter of this process, as the settings say."""
    return RateLimiter(Redis.from_url(setting("URL"), **_settings().get("OPTIONS", {})))


def setting(name: str) -> Any:
    try:
        return _settings()[name]
    except KeyError:
        raise ImproperlyConfigured(f"RL_LIMITS needs {name!r}: see rl_limits.django") from None


def _settings() -> dict[str, Any]:
    return getattr(settings, "RL_LIMITS", {})


def _forget_limiter(*, setting: str, **_: Any) -> None:
    if setting == "RL_LIMITS":
        limiter.cache_clear()


setting_changed.connect(_forget_limiter)
