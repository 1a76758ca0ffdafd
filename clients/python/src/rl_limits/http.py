"""What clients are told: the fields of draft-ietf-httpapi-ratelimit-headers-11, `Retry-After`, problems of RFC 9457."""

from __future__ import annotations

from typing import Any, Literal, get_args

from . import _given as given
from ._commands import Held, texts
from ._core import Core, why_not_held
from ._errors import LOG, described, is_answer, is_outage, is_undecided
from ._replies import Report, RuleReport

#: The type of the body that refuses a request.
PROBLEM_TYPE = "application/problem+json"

#: Which fields clients get. `legacy`: X-RateLimit-Limit, -Remaining and -Reset, in seconds from now.
Headers = Literal["draft-11", "legacy", "none"]

#: Which requests count: all, or those whose answers have a status of 400 and above, or below.
Count = Literal["all", "failed", "successful"]

#: A request that takes longer than this to answer counts, whatever its answer is.
ANSWER_MS = 3_600_000

#: The answer to a request if neither the server nor a stand-in decided.
UNDECIDED = Report("limited", 1000, (), source="outage")

TITLES = {403: "Forbidden", 500: "Internal Server Error", 503: "Service Unavailable"}


def check_options(count: Any, headers: Any) -> None:
    given.one_of("count", count, get_args(Count))
    given.one_of("headers", headers, get_args(Headers))


def check_rules(name: str, rules: Any, count: Count = "all") -> None:
    """Refuses what is surely no rule, slots, which only the application's own hold can free, and bans of requests that
    may not count."""
    given.rules(name, rules)
    for text in texts(rules):
        if (wrong := why_not_held(text)) and (count != "all" or text.startswith("slots:")):
            raise ValueError(f"{name} has {wrong}")


def check_engine(core: Core, count: Count, limits: Any) -> None:
    """Refuses rules that the limiter's engine lacks. Limits that a function returns are known only at a request."""
    if count != "all":
        core.need_module(f"count={count!r}")
    if not callable(limits):
        core.test_rules(limits)


def status_of(core: Core, error: Exception) -> int:
    """The status that answers a request whose check failed: 503 if it got no decision, 500 if its limits are wrong. Any
    other error is raised. The log gets a line for each, but not for each request."""
    if is_undecided(error):
        if is_outage(error) and core.events.is_due(f"refused: {described(error)}"):
            LOG.warning("requests are refused: the server gives no decision (%s)", described(error))
        return 503
    if not is_answer(error) and not isinstance(error, (TypeError, ValueError)):
        raise error
    if core.events.is_due(text := str(error)[:300]):
        LOG.error("requests are refused: their limits are wrong: %s", text)
    return 500


def held_by(count: Count) -> Held | None:
    """The hold by which a check can be given back once the answer is known."""
    return None if count == "all" else Held.new(ANSWER_MS)


def fields(report: Report, headers: Headers = "draft-11") -> dict[str, str]:
    """What clients are told of the limits, and `Retry-After` if a wait helps."""
    rules = [rule for rule in report.rules if not rule.shadow]
    found = {}
    if rules and headers == "draft-11":
        found["RateLimit-Policy"] = ", ".join(map(_policy, rules))
        found["RateLimit"] = ", ".join(map(_state, rules))
    elif headers == "legacy" and (rule := report.deciding()):
        found["X-RateLimit-Limit"] = str(rule.limit)
        found["X-RateLimit-Remaining"] = str(rule.remaining)
        if rule.reset_ms >= 0:
            found["X-RateLimit-Reset"] = str(seconds(rule.reset_ms))
    if not report.allowed and report.wait_ms >= 0:
        found["Retry-After"] = str(seconds(report.wait_ms))
    return found


def status(report: Report) -> int:
    """The status that refuses a request: 403 if its key is blocked, 429 if a rule denies it, 503 if nobody could
    decide."""
    if report.source == "outage":
        return 503
    return 403 if report.verdict == "blocked" else 429


def problem(report: Report, code: int | None = None) -> dict[str, Any]:
    """The body that refuses a request, with the status of its verdict or another."""
    code = code or status(report)
    if code in TITLES:
        return {"title": TITLES[code], "status": code}
    return {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too many requests",
        "status": code,
        "violated-policies": [_name(rule) for rule in report.rules if rule.denies and not rule.shadow],
    }


def counts(count: Count, status: int) -> bool:
    """Whether a request that was answered with this status counts."""
    return count == "all" or (count == "failed") == (status >= 400)


def seconds(ms: int) -> int:
    """Whole seconds, rounded up: a client that waits that long is not too early."""
    return -(-ms // 1000)


def _policy(rule: RuleReport) -> str:
    if rule.period_ms == 0:
        return f'"{_name(rule)}";q={rule.limit};qu="concurrent-requests"'
    window = f";w={rule.period_ms // 1000}" if rule.period_ms % 1000 == 0 else ""
    return f'"{_name(rule)}";q={rule.quota}{window}'


def _state(rule: RuleReport) -> str:
    # The time until more units remain. It is omitted if nothing is consumed, or no wait helps.
    until_ms = rule.wait_ms if rule.denies else rule.next_ms
    time = f";t={seconds(until_ms)}" if until_ms > 0 else ""
    return f'"{_name(rule)}";r={rule.remaining}{time}'


def _name(rule: RuleReport) -> str:
    return rule.name or rule.rule
