"""A limiter in this process, and what a fork, a loop and an outage leave of it."""

import asyncio
import os
import time
from typing import Any

import pytest
import redis
import redis.asyncio
from servers import Server

import limiters
from rl_limits import AsyncRateLimiter, DecisionEvent, Denied, Lease, Limit, OutageEvent, RateLimiter


def test_a_limiter_in_the_process_asks_no_server() -> None:
    limiter = RateLimiter.in_process({"free": ["2/m", "9/d"]})
    replies = [limiter.check("k", "@free") for _ in range(3)]
    assert [reply.verdict for reply in replies] == ["allowed", "allowed", "limited"]
    assert {reply.source for reply in replies} == {"local"} and 0 < replies[2].wait_ms <= 60_000
    assert limiter.reset("k") and limiter.check("k", "@free").allowed
    assert limiter.refund("k", 1, "2/m") == 1
    with limiter.hold("k", "slots:1", ttl=60) as hold:
        with pytest.raises(Denied), limiter.hold("k", "slots:1", ttl=60):
            pass
        assert not hold.lost.is_set()
    assert limiter.check_all([Limit("a", "1/m"), Limit("b", "1/m")]).allowed
    assert limiter.pause("a", 9) <= 9000 and not limiter.check("a", "5/m").allowed
    assert limiter.resume("a") and not limiter.settle("k", "nothing")
    with pytest.raises(ValueError, match=r"RL\.SYNC needs a server"):
        limiter.sync("k", 1, "5/m")
    assert (limiter.outages, limiter.away) == (0, False)
    limiter.close()


async def test_a_limiter_in_the_process_with_asyncio() -> None:
    async with AsyncRateLimiter.in_process() as limiter:
        assert [(await limiter.check("k", "1/m")).verdict for _ in range(2)] == ["allowed", "limited"]
        assert (await limiter.wait("k", "1/m", 1)).verdict == "limited"


def in_child(work: Any) -> bytes:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as sent:
        text = sent.read()
    os.waitpid(child, 0)
    return text


def test_a_child_has_its_own_connections_places_and_leases(newest: Server) -> None:
    limiter = limiters.of(newest, concurrency=2)
    lease = Lease(limiter, "leased", "1000/h", ttl=60)
    for _ in range(20):
        lease.take()
    room, units = limiter._room, lease._book.taken
    assert units is not None
    with limiter._room._places, limiter._room._places:  # as if threads of the parent had them
        assert in_child(lambda: limiter.check("k", "5/m").remaining) == b"4"
    assert in_child(lambda: (lease._book.taken, limiter._room is room)) == b"(None, False)"
    assert limiter.check("k", "5/m").remaining == 3
    lease.close()


def test_an_async_limiter_goes_from_loop_to_loop(newest: Server) -> None:
    limiter = AsyncRateLimiter.from_url(newest.url, timeout=5)

    async def cut_short() -> None:
        hold = limiter.hold("k", "slots:1", ttl=600)
        taking = asyncio.create_task(hold.__aenter__())
        while not taking.done():
            await asyncio.sleep(0)
            if limiters.of(newest).peek("k", "slots:1").remaining == 0:
                taking.cancel()  # and the loop ends

    asyncio.run(cut_short())
    assert asyncio.run(limiter.check("a", "5/m")).remaining == 4

    async def settle() -> None:
        while limiters.of(newest).peek("k", "slots:1").remaining == 0:
            await limiter.check("a", "1000/m")
        await limiter.aclose()

    asyncio.run(asyncio.wait_for(settle(), 10))


def test_a_decision_is_told_with_its_rule(newest: Server, stopped: Server) -> None:
    told: list[DecisionEvent] = []
    limiter = limiters.of(newest, on_decision=told.append, remember_denials=10)
    for _ in range(3):
        limiter.check("a", "1/m,name=login")
    limiter.check_all([Limit("b", ["5/m", "1/h"])])
    limiter.check_all([Limit("b", ["5/m", "1/h"])])
    limiters.of(stopped, outage="allow", on_decision=told.append).check("a", ["1/m", "2/h"])
    seen = [(event.source, event.verdict, event.rule) for event in told]
    assert seen == [
        ("server", "allowed", "login"),
        ("server", "limited", "login"),
        ("denial", "limited", "login"),
        ("server", "allowed", None),
        ("server", "limited", "log:1/1h"),
        ("outage", "allowed", None),
    ]
    assert all(event.ms >= 0 for event in told)


async def test_a_client_of_the_application_gives_its_options_and_no_connection(newest: Server) -> None:
    """redis-py's own defaults would try eleven times."""
    told: list[OutageEvent] = []
    client = redis.Redis(port=newest.port, max_connections=1, client_name="ours", decode_responses=True)
    taken = client.connection_pool.get_connection()
    limiter = RateLimiter(client, on_outage=told.append)
    assert limiter.check("k", "5/m").remaining == 4
    assert [one["name"] for one in client_list(newest)].count("ours") == 2
    client.connection_pool.release(taken)
    asynchronous = AsyncRateLimiter(redis.asyncio.Redis(port=1), outage="allow")
    began_s = time.monotonic()
    assert (await asynchronous.check("k", "5/m")).source == "outage"
    assert time.monotonic() - began_s < 1 and asynchronous.away
    await asynchronous.aclose()
    assert not asynchronous.away and not told


def client_list(server: Server) -> list[dict[str, str]]:
    with server.client() as client:
        return client.client_list()  # type: ignore[no-any-return]
