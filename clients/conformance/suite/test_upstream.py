"""What an upstream's answer says: pause the key, or lower a rule."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import Any

import pytest

from drivers import Driver, Failed, Limiter

YEAR_S = 366 * 86_400


def date(in_s: float) -> str:
    return formatdate(time.time() + in_s, usegmt=True)


def rfc850(in_s: float) -> str:
    return time.strftime("%A, %d-%b-%y %H:%M:%S GMT", time.gmtime(time.time() + in_s))


def asctime(in_s: float) -> str:
    return time.asctime(time.gmtime(time.time() + in_s))


#: Status, fields, and the pause in seconds.
CASES: list[tuple[int, dict[str, Any], float]] = [
    (429, {"retry-after": "30"}, 30),
    (503, {"Retry-After": "30"}, 30),
    (529, {"retry-after": "30"}, 30),
    (403, {"retry-after": "30"}, 30),
    (429, {"retry-after": " 30 "}, 30),
    (429, {"retry-after": "0.5"}, 0.5),
    (429, {"retry-after": "0"}, 0),
    (200, {"retry-after": "30"}, 0),
    (500, {"retry-after": "30"}, 0),
    (429, {"retry-after": lambda: date(30)}, 30),
    (429, {"retry-after": lambda: rfc850(30)}, 30),
    (429, {"retry-after": lambda: asctime(30)}, 30),
    (429, {"retry-after": lambda: date(30).replace("GMT", "+0000")}, 30),
    (429, {"retry-after": lambda: date(-30)}, 0),
    (429, {"retry-after": lambda: date(30), "date": lambda: date(20)}, 10),
    (429, {"retry-after": lambda: rfc850(30), "date": lambda: asctime(20)}, 10),
    (429, {"retry-after": lambda: date(30).replace(" GMT", "")}, 0),
    (429, {"retry-after": lambda: date(30).replace("GMT", "EST")}, 0),
    (429, {"retry-after": lambda: date(30).replace("GMT", "+9999999999")}, 0),
    (429, {"retry-after": "9" * 40}, 0),
    (429, {"retry-after": "Sun, 31 Feb 2094 08:49:37 GMT"}, 0),
    (429, {"retry-after": "Sun, 06 Nov 2094 25:49:37 GMT"}, 0),
    *((429, {"retry-after": text}, 0) for text in ("soon", "-1", "1e3", "1994-11-06T08:50:07Z", str(YEAR_S + 1))),
    (429, {"retry-after": str(YEAR_S)}, YEAR_S),
    (429, {}, 0),
    (403, {}, 0),
    (429, {"ratelimit": '"a";r=0;t=7'}, 7),
    (429, {"ratelimit": "a;r=0;t=7"}, 7),
    (429, {"ratelimit": '"a";t=7;r=0'}, 7),
    (429, {"ratelimit": '"a";r=0;pk=:QQ==:;t=7'}, 7),
    (403, {"ratelimit": '"a";r=0;t=7'}, 7),
    (403, {"ratelimit": '"a";r=1;t=7'}, 0),
    (429, {"ratelimit": '"a";r=1;t=7'}, 0),
    (429, {"ratelimit": '"a";r=0;t=7, "b";r=0;t=9'}, 9),
    (429, {"ratelimit": '"a;r=0;t=99";r=4990;t=1200, "b";r=0;t=9'}, 9),
    (429, {"ratelimit": '"day";r=4990;t=1200'}, 0),
    (429, {"x-ratelimit-reset": "30"}, 30),
    (429, {"x-ratelimit-reset": lambda: str(int(time.time()) + 30)}, 30),
    (429, {"x-ratelimit-remaining": "4990", "x-ratelimit-reset": "1200"}, 0),
    (429, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "12"}, 12),
    (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "12"}, 12),
    (403, {"x-ratelimit-remaining": "4", "x-ratelimit-reset": "12"}, 0),
    (503, {"x-ratelimit-reset": "30"}, 0),
    (429, {"retry-after": "soon", "x-ratelimit-reset": "30"}, 30),
]


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{CASES[n][0]}-{list(CASES[n][1])}-{n}")
def test_an_answer_pauses_its_key(limiter: Limiter, key: str, number: int) -> None:
    status, fields, pause_s = CASES[number]
    headers = [[name, value() if callable(value) else value] for name, value in fields.items()]
    paused_ms = limiter("follow", key=key, status=status, headers=headers)
    tolerance = 0 if pause_s in (0, YEAR_S) else 2000
    assert pause_s * 1000 - tolerance <= paused_ms <= pause_s * 1000 + tolerance / 2
    assert limiter.check(key, "5/s")["verdict"] == ("limited" if pause_s else "allowed")


def test_a_field_that_says_what_remains_lowers_its_rule(limiter: Limiter, key: str) -> None:
    fields = {
        "x-ratelimit-remaining-requests": "fixed:100/d",
        "X-RateLimit-Remaining-Tokens": "bucket:5000/d,name=tokens",
    }
    headers = [["X-Ratelimit-Remaining-Requests", "7"], ["x-ratelimit-remaining-tokens", "3000"]]
    assert limiter("follow", key=key, status=200, headers=headers, fields=fields) == 0
    assert limiter.peek(key, "fixed:100/d")["remaining"] == 7
    assert limiter.peek(key, "bucket:5000/d,name=tokens")["remaining"] == 3000
    for nonsense in "-1", "many", "1.5", "", "9" * 30:
        limiter("follow", key=key, status=200, headers=[["x-ratelimit-remaining-requests", nonsense]], fields=fields)
    assert limiter.peek(key, "fixed:100/d")["remaining"] == 7


def test_a_longer_pause_stays(limiter: Limiter, key: str) -> None:
    assert limiter("follow", key=key, status=429, headers=[["retry-after", "60"]]) > 50_000
    assert limiter("follow", key=key, status=429, headers=[["retry-after", "5"]]) > 50_000


@pytest.mark.parametrize("outage", ["raise", "allow", "local"])
def test_an_outage_raises_nothing(shared: Driver, dead: str, key: str, outage: str) -> None:
    limiter = shared.limiter(dead, outage=outage)
    limiter("follow", key=key, status=429, headers=[["retry-after", "60"]])
    if outage == "local":
        assert limiter.check(key, "5/s")["verdict"] == "limited"
    limiter.close()


def test_a_wrong_rule_is_raised(limiter: Limiter, key: str) -> None:
    with pytest.raises(Failed, match="nonsense"):
        limiter("follow", key=key, status=200, headers=[["x-left", "1"]], fields={"x-left": "nonsense"})
