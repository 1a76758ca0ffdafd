"""A middleware for Django. LIMITS and either URL or LIMITER are required, other settings are not:

RL_LIMITS = {
    "URL": "redis://localhost",              # of the server
    "OPTIONS": {"outage": "local"},          # of `RateLimiter.from_url`
    "LIMITER": "shop.limits.limiter",        # or a RateLimiter that the application makes, as for a cluster
    "LIMITS": "shop.limits.of",              # rules for each network, or a function: the limits of a request
    "KEY": "shop.limits.key_of",             # a function: the key of a request, if LIMITS is rules
    "PREFIX": 64,                            # of an IPv6 network
    "SKIP": "shop.limits.is_free",           # a function: which requests pass without a check
    "COUNT": "all",                          # or "failed", "successful": other answers give their units back
    "HEADERS": "draft-11",                   # or "legacy", "none"
    "REFUSE": "shop.limits.refuse",          # a function: the response to a request and its report
}
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.module_loading import import_string

from . import _given as given
from . import http
from ._commands import Held, Limit
from ._replies import Report
from .address import Networks
from .limiter import RateLimiter

SETTINGS = ("URL", "OPTIONS", "LIMITER", "LIMITS", "KEY", "PREFIX", "SKIP", "COUNT", "HEADERS", "REFUSE")


class RateLimitMiddleware:
    """Lets requests pass as the rules say, and sets RateLimit, RateLimit-Policy and Retry-After.

    Several limits are decided at once, so that all of them consume, or none; a request without limits passes. Views
    find the report in `request.rate_limit`. While the server cannot be asked, the limiter's `outage` decides.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self.skip = named_function("SKIP") or (lambda request: False)
        self.refuse = named_function("REFUSE") or (lambda request, report: _refuse(report, http.status(report)))
        self.count = optional("COUNT", "all")
        self.headers = optional("HEADERS", "draft-11")
        with configuration():
            http.check_options(self.count, self.headers)
        self.limits = limits_of(setting("LIMITS"), self.count)
        self.limiter = limiter()
        with configuration():
            http.check_engine(self.limiter.core, self.count, self.limits)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        wanted = () if self.skip(request) else self.limits(request)
        if not wanted:
            return self.get_response(request)
        held = http.held_by(self.count)
        try:
            report = self.limiter.run(self.limiter.core.check_held(wanted, 1, held))
        except Exception as error:
            failed = http.status_of(self.limiter.core, error)
            return with_fields(_refuse(http.UNDECIDED, failed), http.fields(http.UNDECIDED) if failed == 503 else {})
        request.rate_limit = report
        response = self._answer(request, report, wanted, held) if report.allowed else self.refuse(request, report)
        return with_fields(response, http.fields(report, self.headers))

    def _answer(self, request: HttpRequest, report: Report, wanted: Sequence[Limit], held: Held | None) -> HttpResponse:
        status = 500
        try:
            time.sleep(report.wait_ms / 1000)  # its turn under a `leaky` rule, or 0
            response = self.get_response(request)
            status = response.status_code
            return response
        finally:
            if held:
                refund = not http.counts(self.count, status)
                self.limiter.run(self.limiter.core.end_all([limit.key for limit in wanted], held, refund=refund))


def limits_of(limits: Any, count: Any) -> Callable[[HttpRequest], Sequence[Limit]]:
    """The limits of each request, as the setting says. A text with a slash or a leading `@` is a rule. Any other text
    names a function."""
    if isinstance(limits, str) and "." in limits and "/" not in limits and not limits.startswith("@"):
        found: Callable[[HttpRequest], Sequence[Limit]] = named_function("LIMITS")
        return found
    with configuration():
        http.check_rules("LIMITS", limits, count)
        limiter().core.test_rules(limits)
    counted = networks()
    key = named_function("KEY") or (lambda request: f"ip:{counted(request.META.get('REMOTE_ADDR'))}")
    return lambda request: [Limit(key(request), limits)]


def with_fields(response: HttpResponse, told: dict[str, str]) -> HttpResponse:
    for name, value in told.items():
        response[name] = value
    return response


def _refuse(report: Report, status: int) -> HttpResponse:
    return JsonResponse(http.problem(report, status), status=status, content_type=http.PROBLEM_TYPE)


@functools.cache
def limiter() -> RateLimiter:
    """The limiter of this process, as the settings say."""
    made = named("LIMITER")
    if isinstance(made, RateLimiter):
        return made
    if made is not None:
        raise ImproperlyConfigured(f"RL_LIMITS: LIMITER is {made!r}, expected a RateLimiter")
    with configuration():
        return RateLimiter.from_url(setting("URL"), **optional("OPTIONS", {}))


@functools.cache
def networks() -> Networks:
    with configuration():
        return Networks(optional("PREFIX", 64))


def checked_rules(name: str, rules: Any) -> None:
    with configuration():
        given.rules(name, rules)


@contextlib.contextmanager
def configuration() -> Iterator[None]:
    """Raises an error in the settings as Django's own."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"RL_LIMITS: {error}") from error


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


def named_function(name: str) -> Any:
    found = named(name)
    with configuration():
        given.function(name, found)
    return found


def _settings() -> dict[str, Any]:
    found: dict[str, Any] = getattr(settings, "RL_LIMITS", {})
    with configuration():
        given.known(found, SETTINGS)
    return found


def _forget_settings(*, setting: str, **_: Any) -> None:
    if setting == "RL_LIMITS":
        limiter.cache_clear()
        networks.cache_clear()


setting_changed.connect(_forget_settings)
