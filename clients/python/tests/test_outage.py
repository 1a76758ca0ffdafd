"""Real servers that cannot decide, and real clients of redis-py and valkey-py that ask them."""

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import redis
import valkey
import valkey.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

import outages
import servers
from rl_limits import AsyncRateLimiter, Limit, OutageEvent, RateLimiter, is_outage
from servers import Server

#: How long a request may take while the limiter asks the server: the time-out, and some time for a busy machine.
SOON_S = 0.25 + 1.75


@pytest.fixture(scope="module", params=outages.ALL)
def away(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server that cannot decide, for each reason in turn."""
    with outages.ALL[request.param]() as url:
        yield url


def test_a_limiter_in_the_process_stands_in(away: str) -> None:
    told: list[OutageEvent] = []
    limiter = RateLimiter.from_url(away, outage="local", on_outage=told.append)
    answers, longest_s = [], 0.0
    for _ in range(4):
        began_s = time.monotonic()
        answers.append(limiter.check("a", "2/m"))
        longest_s = max(longest_s, time.monotonic() - began_s)
    assert [answer.verdict for answer in answers] == ["allowed", "allowed", "limited", "limited"]
    assert {answer.source for answer in answers} == {"local"}
    assert longest_s < SOON_S
    assert [event[::2] for event in told] == [(True, 0)] and is_outage(told[0].error)
    assert (limiter.outages, limiter.away) == (4, True)
    began_s = time.monotonic()
    for _ in range(100):
        limiter.check_all([Limit("b", "2/m"), Limit("c", "5/m")])
    assert time.monotonic() - began_s < SOON_S, "nobody asks a server that is away"


@pytest.mark.parametrize("outage, verdict, wait_ms", [("allow", "allowed", 0), ("deny", "limited", 1000)])
def test_allow_passes_all_requests_and_deny_none(away: str, outage: Any, verdict: str, wait_ms: int) -> None:
    limiter = RateLimiter.from_url(away, outage=outage)
    for answer in (limiter.check("a", "2/m"), limiter.check_all([Limit("a", "2/m")])):
        assert (answer.verdict, answer.wait_ms, answer.source) == (verdict, wait_ms, "outage")
    assert limiter.check("a", "2/m", cost=(1, 10)).granted == (10 if outage == "allow" else 0)


def test_errors_are_raised_by_default_and_at_once_after_three(away: str) -> None:
    limiter = RateLimiter.from_url(away)
    for _ in range(3):
        with pytest.raises(Exception) as raised:
            limiter.check("a", "2/m")
        assert is_outage(raised.value)
    began_s = time.monotonic()
    for send in (lambda: limiter.check("a", "2/m"), lambda: limiter.settle("a", "id"), lambda: limiter.reset("a")):
        with pytest.raises(type(raised.value)):
            send()
    assert time.monotonic() - began_s < 0.1
    assert limiter.outages == 4, "only checks count"


async def test_a_limiter_in_the_process_stands_in_with_asyncio(away: str) -> None:
    limiter = AsyncRateLimiter.from_url(away, outage="local")
    longest_s = 0.0
    for verdict in ("allowed", "allowed", "limited", "limited"):
        began_s = time.monotonic()
        answer = await limiter.check("a", "2/m")
        longest_s = max(longest_s, time.monotonic() - began_s)
        assert (answer.verdict, answer.source) == (verdict, "local")
    assert longest_s < SOON_S and limiter.away
    await limiter.client.aclose()


async def test_longer_time_outs_of_the_client_delay_no_answer_with_asyncio(newest: Server) -> None:
    client = redis.asyncio.Redis(port=newest.port, retry=AsyncRetry(NoBackoff(), 10), socket_timeout=5)
    assert (await AsyncRateLimiter(client, timeout=5).check("a", "2/m")).source == "server"
    limiter = AsyncRateLimiter(client, outage="allow")
    with newest.paused():
        began_s = time.monotonic()
        assert (await limiter.check("a", "2/m")).source == "outage"
        assert time.monotonic() - began_s < SOON_S
    await client.aclose()


def test_the_server_is_asked_again_when_it_is_back(newest: Server) -> None:
    told: list[OutageEvent] = []
    limiter = RateLimiter.from_url(newest.url, outage="local", on_outage=told.append)
    with newest.paused():
        for _ in range(5):
            limiter.check("a", "1/m")
    time.sleep(1)
    assert limiter.check("a", "1/m").source == "server"
    assert [(event.away, event.answered) for event in told] == [(True, 0), (False, 3)]
    assert not limiter.away


def clients(server: Server) -> Iterator[Any]:
    yield redis.Redis(port=server.port, socket_timeout=1, retry=Retry(NoBackoff(), 0))
    yield valkey.Valkey(port=server.port, socket_timeout=1)


def test_faults_of_a_request_are_raised_whatever_was_chosen(newest: Server) -> None:
    for client in clients(newest):
        limiter = RateLimiter(client, outage="allow")
        client.set("text", "of somebody else")
        for key, rule in (("a", "5/x"), ("text", "5/m"), ("a", "@nobody"), ("a", "slots:1")):
            for _ in range(4):
                with pytest.raises(Exception) as raised:
                    limiter.check(key, rule)
                assert not is_outage(raised.value)
        assert limiter.check("a", "5/m").source == "server", "faults are no reason to stop asking"


@pytest.mark.parametrize("code", outages.REPLIES)
def test_a_reply_of_a_server_that_cannot_serve_now_is_an_outage(code: str) -> None:
    with outages.REPLIES[code]() as url, socket.create_connection(url.removeprefix("redis://").split(":")) as plain:
        plain.sendall(b"RL.MCHECK 2 {a}1 {a}2 1/m NEXT 1/m\r\n")
        assert plain.recv(1000).startswith(f"-{code} ".encode())
        for library in (redis.Redis, valkey.Valkey):
            limiter = RateLimiter(library.from_url(url, socket_timeout=5), outage="local")
            for _ in range(3):
                assert limiter.check_all([Limit("{a}1", "9/m"), Limit("{a}2", "9/m")]).source == "local"
            assert limiter.away


@pytest.mark.parametrize("text", ["UNBLOCKED x", "internal error, see the log"])
def test_other_outages_are_recognized_by_their_text(text: str) -> None:
    assert is_outage(redis.ResponseError(text)) and is_outage(valkey.ResponseError(text))
    assert not is_outage(redis.ResponseError("rule 'BUSY ': no such algorithm")) and not is_outage(ValueError(text))


async def test_outages_of_valkey_py_are_recognized_too(newest: Server, stopped: Server) -> None:
    assert [RateLimiter(client).check("a", "5/m").remaining for client in clients(newest)] == [4, 3]
    for client in clients(stopped):
        assert RateLimiter(client, outage="allow").check("a", "5/m").source == "outage"
    with newest.paused():
        for client in clients(newest):
            assert RateLimiter(client, outage="allow").check("a", "5/m").source == "outage"
    async with valkey.asyncio.Valkey(port=stopped.port) as client:
        assert (await AsyncRateLimiter(client, outage="allow").check("a", "5/m")).source == "outage"
    async with valkey.asyncio.Valkey(port=newest.port) as client:
        limiter = AsyncRateLimiter(client, timeout=5)
        assert (await limiter.check("a", "5/m")).remaining == 2
        assert (await limiter.wait("a", "5/m", 1)).remaining == 1


@pytest.mark.parametrize("library, name", [(redis, "Redis"), (valkey, "Valkey")])
async def test_a_cluster_whose_nodes_are_all_dead_is_an_outage(library: Any, name: str) -> None:
    with outages.cluster() as nodes:
        sync = getattr(library, f"{name}Cluster")(host="127.0.0.1", port=nodes[0].port, socket_timeout=0.25)
        aio = getattr(library.asyncio, f"{name}Cluster")(host="127.0.0.1", port=nodes[0].port)
        limiter, async_limiter = RateLimiter(sync, outage="allow"), AsyncRateLimiter(aio, outage="allow", timeout=5)
        assert limiter.check("a", "5/m").source == (await async_limiter.check("a", "5/m")).source == "server"
        for node in nodes:
            node.stop()
        assert limiter.check("a", "5/m").source == (await async_limiter.check("a", "5/m")).source == "outage"
        with pytest.raises(Exception) as raised:
            getattr(library, f"{name}Cluster")(host="127.0.0.1", port=nodes[0].port)
        assert is_outage(raised.value), "the constructor's error is an outage, too"
        await aio.aclose()


async def test_a_cluster_whose_nodes_all_hang_costs_each_thread_one_time_out_per_node() -> None:
    with outages.cluster() as nodes, ExitStack() as hung:
        url = nodes[0].url.replace("redis:", "redis+cluster:")
        limiter = RateLimiter.from_url(url, outage="allow")
        async_limiter = AsyncRateLimiter.from_url(url, outage="allow")
        assert limiter.check("a", "5/m").source == (await async_limiter.check("a", "5/m")).source == "server"
        for node in nodes:
            hung.enter_context(node.paused())
        began_s = time.monotonic()
        assert (await async_limiter.check("a", "5/m")).source == "outage"
        assert time.monotonic() - began_s < SOON_S
        began_s = time.monotonic()
        with ThreadPoolExecutor(10) as threads:
            answers = list(threads.map(lambda _: limiter.check("a", "5/m"), range(10)))
        assert {answer.source for answer in answers} == {"outage"}
        assert time.monotonic() - began_s < 10 * 4 * 0.1 + SOON_S, "redis-py asks for the map in one thread at a time"
        began_s = time.monotonic()
        assert limiter.away and limiter.check("a", "5/m").source == "outage"
        assert time.monotonic() - began_s < SOON_S
        await async_limiter.aclose()


async def test_a_cluster_is_followed_when_a_hung_node_is_replaced() -> None:
    with outages.cluster(replica=True) as nodes:
        url = nodes[0].url.replace("redis:", "redis+cluster:")
        limiter = RateLimiter.from_url(url, outage="allow")
        async_limiter = AsyncRateLimiter.from_url(url, outage="allow")
        assert limiter.check("a", "5/m").source == (await async_limiter.check("a", "5/m")).source == "server"
        with nodes[2].paused(), nodes[3].client() as client:
            servers.until(lambda: client.role()[0] == "master")
            servers.until(lambda: limiter.check("a", "5/m").source == "server")
            late_s = time.monotonic() + servers.READY_S
            while (await async_limiter.check("a", "5/m")).source != "server":
                assert time.monotonic() < late_s
                await asyncio.sleep(0.02)
        await async_limiter.client.aclose()
