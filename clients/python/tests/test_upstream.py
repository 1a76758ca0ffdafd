"""What an upstream's answers say, and keys that follow them, on every server."""

import asyncio
import json
import threading
import time
from email.message import Message
from email.utils import formatdate
from typing import Any

import pytest

import servers
from rl_limits import AsyncRateLimiter, Denied, Limit, RateLimiter, is_outage
from rl_limits import _upstream as upstream
from servers import Server, until
from test_holds import left, waiting

NOW_S = 1_800_000_000
DAYS_366_S = 366 * 86_400
REMAINING = "x-ratelimit-remaining"
SHARED = json.loads((servers.ROOT / "clients/cases/upstream.json").read_text())


def date(after_s: int) -> str:
    return formatdate(NOW_S + after_s, usegmt=True)


@pytest.mark.parametrize(
    "status, headers, pause_ms",
    [
        (429, {"retry-after": "30"}, 30_000),
        (503, {"retry-after": " 0.25 "}, 250),
        (200, {"retry-after": "30"}, 0),
        (429, {"retry-after": date(30)}, 30_000),
        (429, {"retry-after": date(30), "date": date(10)}, 20_000),
        (429, {"retry-after": str(DAYS_366_S)}, DAYS_366_S * 1000),
        (429, {"retry-after": str(DAYS_366_S + 1)}, 0),
        (429, {"retry-after": date(DAYS_366_S + 1)}, 0),
        (429, {"retry-after": date(-1)}, 0),
        (429, {"retry-after": "0", "x-ratelimit-reset": "30"}, 0),
        (429, {"retry-after": "-30"}, 0),
        (429, {"retry-after": "soon"}, 0),
        (429, {"retry-after": "soon", "x-ratelimit-reset": "7"}, 7_000),
        (429, {}, 0),
        (429, {"ratelimit": '"burst";r=0;t=30'}, 30_000),
        (429, {"ratelimit": '"a,;t=9";r=0;t=1, "b";t=60;r=0;pk=:YQ==:, "c";r=5;t=3600'}, 60_000),
        (429, {"ratelimit": '"burst";r=0;t=-30'}, 0),
        (429, {"ratelimit": '"burst";r=0;t=1e9'}, 0),
        (429, {"ratelimit-reset": "2"}, 2_000),
        (429, {"x-ratelimit-reset": str(NOW_S + 90)}, 90_000),
        (429, {"x-ratelimit-reset": str(NOW_S - 90)}, 0),
        (503, {"x-ratelimit-reset": "7"}, 0),
    ],
)
def test_fields_say_how_long_to_pause(status: int, headers: dict[str, str], pause_ms: int) -> None:
    assert upstream.pause_ms(status, headers, NOW_S) == pause_ms


@pytest.mark.parametrize("case", SHARED["cases"], ids=lambda case: f"{case['status']} {case['headers']}")
def test_answers_pause_a_key_as_in_all_languages(case: dict[str, Any]) -> None:
    told = upstream.fields(case["headers"])
    assert upstream.pause_ms(case["status"], told, SHARED["now_s"]) == case["pause_ms"]


@pytest.mark.parametrize(
    "text, remaining",
    [("12", 12), (" 0 ", 0), ('"a";r=9;t=60, "b;r=1";r=7', 7), ('"a";t=60', None)]
    + [(text, None) for text in ("", "-1", "many", "1.5", "9" * 40, '"a";r=-3', '"a";r=many', "٣")],
)
def test_fields_say_what_remains(text: str, remaining: int | None) -> None:
    assert upstream.remaining(text) == remaining


def test_headers_of_one_name_are_joined() -> None:
    message = Message()
    message["RateLimit"] = '"a";r=9'
    message["ratelimit"] = '"b";r=7'
    assert upstream.fields(message) == {"ratelimit": '"a";r=9, "b";r=7'}


def test_a_pause_denies_until_it_ends(server: Server) -> None:
    limiter = server.limiter()
    assert limiter.pause("k", 30, "429") == 30_000
    assert 29_000 < limiter.pause("k", 5) <= 30_000, "it only grows"
    denied = limiter.check("k", "10/s")
    assert denied.verdict == "limited" and 29_000 < denied.wait_ms <= 30_000
    with server.client() as client:
        assert "429" in str(client.execute_command("RL.INFO", "k"))
    assert limiter.resume("k") and not limiter.resume("k")
    assert limiter.check("k", "10/s").remaining == 9


def test_a_sync_only_lowers(server: Server) -> None:
    limiter = server.limiter()
    assert limiter.check("k", "100/m").remaining == 99
    assert limiter.sync("k", 12, "100/m") == 87 and limiter.sync("k", 50, "100/m") == 0
    assert left(server) == 12


def test_the_line_stands_until_a_pause_ends(newest: Server) -> None:
    limiter = newest.limiter()
    limiter.pause("k", 20)
    served = []
    thread = threading.Thread(target=lambda: served.append(limiter.wait("k", "1/s", 30)))
    thread.start()
    until(lambda: waiting(newest) == 1)
    limiter.resume("k")
    thread.join()
    assert served[0].allowed


def test_flows_take_turns_and_a_priority_goes_first(server: Server) -> None:
    limiter, served = server.limiter(), []

    def work(n: int, flow: str, turn: dict[str, int]) -> None:
        with limiter.hold("k", "slots:1", ttl=30, wait=30, flow=flow, **turn):
            served.append(flow)
            if n == len(line):
                until(lambda: waiting(server) == 0)

    line: list[tuple[str, dict[str, int]]] = [("a", {}), ("a", {}), ("a", {}), ("b", {}), ("c", {"priority": 5})]
    threads = [threading.Thread(target=work, args=(n, *one)) for n, one in enumerate(line)]
    with limiter.hold("k", "slots:1", ttl=30):
        for n, thread in enumerate(threads, 1):
            thread.start()
            until(lambda n=n: waiting(server) == n)
    for thread in threads:
        thread.join()
    assert served == ["c", "a", "b", "a", "a"]
    with pytest.raises(Exception, match="FLOW"), limiter.hold("k", "slots:1", ttl=30, flow="a"):
        pass  # without `wait` there is no line


async def test_weights_with_asyncio(server: Server) -> None:
    async with server.async_limiter() as limiter:
        served: list[str] = []

        async def work(flow: str, weight: int) -> None:
            assert (await limiter.wait("k", "1/50ms", 30, flow=flow, weight=weight)).allowed
            served.append(flow)

        await limiter.pause("k", 20)
        line = [asyncio.create_task(work(flow, weight)) for flow, weight in [("a", 1), ("b", 3)] for _ in range(6)]
        await asyncio.to_thread(until, lambda: waiting(server) == len(line))
        assert await limiter.resume("k")
        await asyncio.gather(*line)
        assert served[:8].count("b") == 6


def test_a_key_follows_its_upstream(server: Server) -> None:
    limiter = server.limiter()
    rules = {"X-RateLimit-Remaining-Requests": "100/m", "RateLimit": "bucket:500/d"}
    told = {"x-ratelimit-remaining-requests": "12", "ratelimit": '"day";r=40;t=60'}
    assert limiter.follow("k", 200, told, rules) == 0
    assert (left(server), left(server, rule="bucket:500/d")) == (12, 40)
    assert limiter.follow("k", 429, {"Retry-After": "30"}, rules) == 30_000
    assert limiter.check("k", "100/m").wait_ms > 29_000
    assert limiter.follow("k", 200, {REMAINING: "5"}, {REMAINING: "100/m"}) == 0
    limiter.resume("k")
    assert left(server) == 5, "also while it is paused"


def test_nonsense_changes_nothing(server: Server) -> None:
    limiter = server.limiter()
    limiter.check("k", "100/m")
    limiter.call("RL.POLICY", "SET", "p", "100/m")
    for rule in ("100/m", "@p"):
        for text in ("-1", "many", "101", "9" * 12, "9" * 40, ""):
            assert limiter.follow("k", 429, {REMAINING: text, "retry-after": f"-{text}"}, {REMAINING: rule}) == 0
        assert limiter.follow("k", 200, {}, {REMAINING: rule}) == 0
    assert limiter.peek("k", "100/m").remaining == 99


async def test_a_key_follows_with_asyncio(server: Server) -> None:
    async with server.async_limiter() as limiter:
        assert await limiter.follow("k", 200, {REMAINING: "5"}, {REMAINING: "100/m"}) == 0
        assert await limiter.sync("k", 3, "100/m") == 2
        assert await limiter.follow("k", 503, {"retry-after": "30"}) == 30_000
        assert not (await limiter.check("k", "100/m")).allowed


def test_a_pause_that_others_end_is_not_remembered_for_long(newest: Server) -> None:
    limiter = newest.limiter(remember_denials=10)
    other = newest.limiter()
    for check in (lambda: limiter.check("k", "1/m"), lambda: limiter.check_all([Limit("k", "1/m")])):
        other.check("k", "1/m")
        other.pause("k", 120)
        assert check().source == "server" and check().source == "denial"
        other.resume("k")
        time.sleep(1)
        assert check().source == "server"
        limiter.pause("k", 60)
        assert not limiter.check("k", "5/m").allowed and limiter.resume("k")
        assert limiter.check("k", "5/m").source == "server", "the limiter that ends the pause asks at once"
        limiter.reset("k")


def test_without_the_server_the_process_keeps_a_pause(stopped: Server) -> None:
    local = RateLimiter.from_url(stopped.url, outage="local")
    with local.hold("k", "5/m", ttl=30, id="before"):
        assert local.follow("k", 429, {"retry-after": "0.5"}, {REMAINING: "5/m"}) == 500
        denied = local.check("k", "5/m")
        assert (denied.verdict, denied.source) == ("limited", "local") and 0 < denied.wait_ms <= 500
        assert local.check_all([Limit("other", "5/m"), Limit("k", "5/m")]).wait_ms > 0
        assert local.hold("k", "5/m", ttl=30, id="before").__enter__().reply.allowed, "a repeat"
        with pytest.raises(Exception) as raised:
            local.reset("k")
        assert is_outage(raised.value) and not local.check("k", "5/m").allowed
    time.sleep(0.6)
    assert local.check("k", "5/m").remaining == 4
    assert local.pause("k", 30) == 30_000
    with pytest.raises(type(raised.value)):
        local.resume("k")
    assert local.check("k", "1/s").allowed
    local.pause("k", 30)
    with pytest.raises(Denied) as denied, local.hold("k", "1/s", ttl=30):
        pass
    assert 29_000 < denied.value.reply.wait_ms <= 30_000, "longer than the rule's"


@pytest.mark.parametrize("outage", ["raise", "allow", "deny"])
async def test_without_the_server_only_follow_raises_nothing(stopped: Server, outage: Any) -> None:
    limiter = RateLimiter.from_url(stopped.url, outage=outage)
    asynchronous = AsyncRateLimiter.from_url(stopped.url, outage=outage)
    sends = [lambda: limiter.pause("k", 1), lambda: limiter.resume("k"), lambda: limiter.sync("k", 1, "5/m")]
    for send in sends:
        with pytest.raises(Exception) as raised:
            send()
        assert is_outage(raised.value)
    headers = {"retry-after": "30", REMAINING: "1"}
    assert limiter.follow("k", 429, headers, {REMAINING: "5/m"}) == 0
    assert await asynchronous.follow("k", 429, headers, {REMAINING: "5/m"}) == 0
