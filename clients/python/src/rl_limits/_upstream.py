"""What an upstream's answer says of its limits. Fields that make no sense are ignored."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Protocol

#: The longest pause, 366 days. A reset above that is a Unix time; any other value above it is a mistake.
LONGEST_S = 366 * 86_400

NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]*)?")
DAY, MONTH = "(Mon|Tue|Wed|Thu|Fri|Sat|Sun)", "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
TIME, GMT = "[0-9]{2}:[0-9]{2}:[0-9]{2}", r"(GMT|\+0000)"
#: The forms of a date in RFC 9110, 5.6.7: the preferred one, that of RFC 850, and that of asctime in C.
DATE = re.compile(
    f"{DAY}, [0-9]{{2}} {MONTH} [0-9]{{4}} {TIME} {GMT}"
    f"|(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, [0-9]{{2}}-{MONTH}-[0-9]{{2}} {TIME} {GMT}"
    f"|{DAY} {MONTH} [ 0-9][0-9] {TIME} [0-9]{{4}}"
)
#: A parameter of `RateLimit: "name";r=12;t=30`: what remains, or the seconds until more does.
PARAMETER = re.compile(r";\s*([rt])=([0-9]{1,12})(?=\s*(?:;|$))")


class Headers(Protocol):
    """The headers of any client: of `http.client`, requests, httpx, aiohttp, or a dict."""

    def items(self) -> Iterable[tuple[str, str]]: ...


def fields(headers: Headers) -> dict[str, str]:
    """The fields by lower-case name; those of one name are joined."""
    found: dict[str, str] = {}
    for name, text in headers.items():
        name = name.lower()
        found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def pause_ms(status: int, told: Mapping[str, str], now_s: float) -> int:
    """How long no caller should ask: what `Retry-After` says, else, of a 429 or 403, until the reset of what is used
    up."""
    if status not in (403, 429, 503, 529):
        return 0
    now_s = _date_s(told.get("date", "")) or now_s
    wait_s = _wait_s(told.get("retry-after", ""), now_s)
    if wait_s is None and status in (403, 429):
        wait_s = _reset_s(status, told, now_s)
    return math.ceil(wait_s * 1000) if wait_s and 0 < wait_s <= LONGEST_S else 0


def remaining(text: str) -> int | None:
    """A number, or the least `r=` of a RateLimit."""
    if re.fullmatch(r"[0-9]{1,12}", text.strip()):
        return int(text)
    return min((item["r"] for item in _items(text) if "r" in item), default=None)


def _wait_s(text: str, now_s: float) -> float | None:
    """`Retry-After`: seconds, or a date."""
    if NUMBER.fullmatch(text.strip()):
        return float(text)
    date_s = _date_s(text)
    return date_s and date_s - now_s


def _reset_s(status: int, told: Mapping[str, str], now_s: float) -> float | None:
    """When all windows that are used up begin anew. Each has two fields, or an item of `RateLimit`, with what remains
    and the time of its reset. A 429 that does not say what remains may give only a reset."""
    windows = [(item["r"], float(item["t"])) for item in _items(told.get("ratelimit", "")) if {"r", "t"} <= item.keys()]
    for name, text in told.items():
        if "remaining" in name and (left := remaining(text)) is not None:
            windows.append((left, _until_s(told.get(name.replace("remaining", "reset"), ""), now_s)))
    if windows:
        return max((until_s for left, until_s in windows if left == 0), default=None)
    reset = told.get("ratelimit-reset") or told.get("x-ratelimit-reset") or ""
    return _until_s(reset, now_s) if status == 429 else None


def _until_s(text: str, now_s: float) -> float:
    """Seconds, a Unix time, or a date; 0 if the text is none of them."""
    if NUMBER.fullmatch(text.strip()):
        return float(text) if float(text) <= LONGEST_S else float(text) - now_s
    return (_date_s(text) or now_s) - now_s


def _items(text: str) -> list[dict[str, int]]:
    unquoted = re.sub(r'"[^"]*"', "", text)
    return [{name: int(n) for name, n in PARAMETER.findall(item)} for item in unquoted.split(",")]


def _date_s(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).replace(tzinfo=UTC).timestamp() if DATE.fullmatch(text.strip()) else None
    except ValueError:  # such as a 31st of February
        return None
