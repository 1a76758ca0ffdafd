"""Clean-ups complete even if the task that asks for them is cancelled."""

import asyncio
import random
from typing import Any

import pytest
from servers import Server, until

import limiters
from rl_limits import AsyncLease, AsyncRateLimiter, Limit
from test_holds import holds, left, waiting

#: Longer than the tests take: a slot that is not given back stays taken.
TTL_S = 600


async def cancel(tasks: list[asyncio.Task[Any]], at_once: int = 20) -> None:
    for n in range(0, len(tasks), at_once):
        for task in tasks[n : n + at_once]:
            task.cancel()
        await asyncio.sleep(0.001)
        for task in tasks[n : n + at_once]:
            task.cancel()  # a second time, amid its clean-up
    await asyncio.gather(*tasks, return_exceptions=True)


def begin(n: int, work: Any) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(work(n)) for n in range(n)]


async def until_free(server: Server, rule: str, units: int) -> None:
    await asyncio.to_thread(until, lambda: left(server, rule=rule) == units)


async def test_cancelled_holds_give_their_slots_back(newest: Server) -> None:
    async with limiters.async_of(newest) as limiter:

        async def work(n: int) -> None:
            async with limiter.hold("k", "slots:100", ttl=TTL_S):
                await asyncio.sleep(TTL_S)

        tasks = begin(100, work)
        await until_free(newest, "slots:100", 0)
        await cancel(tasks)
        await until_free(newest, "slots:100", 100)


async def test_holds_cancelled_while_they_are_taken_give_their_slots_back(newest: Server) -> None:
    async with limiters.async_of(newest) as limiter:
        for _ in range(5):

            async def work(n: int) -> None:
                async with limiter.hold("k", ["slots:100,cost=1", "1000/d"], ttl=TTL_S):
                    await asyncio.sleep(TTL_S)

            tasks = begin(100, work)
            await asyncio.sleep(random.uniform(0, 0.02))
            await cancel(tasks, 100)
            await until_free(newest, "slots:100", 100)


async def test_holds_cancelled_while_they_are_taken_cost_nothing(newest: Server) -> None:
    async with limiters.async_of(newest) as limiter:
        tasks = begin(100, lambda n: limiter.hold("k", "1000/d", ttl=TTL_S).__aenter__())
        await asyncio.sleep(0)
        await cancel(tasks, 100)
        await until_free(newest, "1000/d", 1000)


async def test_holds_cancelled_in_line_give_their_slots_back(newest: Server) -> None:
    async with limiters.async_of(newest) as limiter:

        async def work(n: int) -> None:
            async with limiter.hold("k", "slots:10", ttl=TTL_S, wait=TTL_S):
                await asyncio.sleep(0.002)

        tasks = begin(100, work)
        await asyncio.to_thread(until, lambda: waiting(newest) > 20)
        await cancel(tasks)
        await until_free(newest, "slots:10", 10)
        await asyncio.to_thread(until, lambda: waiting(newest) == 0)


async def test_leases_whose_takers_are_cancelled_stay_whole(newest: Server) -> None:
    async with limiters.async_of(newest) as limiter, AsyncLease(limiter, "k", "1000/d", ttl=TTL_S) as lease:
        for _ in range(30):
            tasks = begin(20, lambda n: lease.take())
            await asyncio.sleep(random.uniform(0, 0.002))
            await cancel(tasks)
        assert (await lease.take()).allowed
        closing: asyncio.Task[None] = asyncio.create_task(lease.aclose())
        await asyncio.sleep(0)
        await cancel([closing])
    assert holds(newest, "k") == 0
    assert left(newest, rule="1000/d") >= 1000 - 601, "each taker costs at most a unit"


async def test_settlements_are_made_before_the_limiter_closes(newest: Server) -> None:
    limiter = AsyncRateLimiter.from_url(newest.url, timeout=5)

    async def work() -> None:
        async with limiter.hold("k", "slots:1", ttl=TTL_S):
            await asyncio.sleep(TTL_S)

    task = asyncio.create_task(work())
    await until_free(newest, "slots:1", 0)
    await cancel([task])
    await limiter.aclose()
    assert left(newest, rule="slots:1") == 1


def test_ctrl_c_while_a_hold_is_taken_gives_it_back(newest: Server) -> None:
    limiter = limiters.of(newest)
    send = limiter._room.exchange
    sent: list[object] = []

    def interrupted(*exchange: Any) -> Any:
        reply = send(*exchange)
        sent.append(reply)
        if len(sent) == 1:
            raise KeyboardInterrupt
        return reply

    limiter._room.exchange = interrupted
    try:
        with limiter.hold("k", "slots:1", ttl=TTL_S):
            raise AssertionError
    except KeyboardInterrupt:
        pass
    assert left(newest, rule="slots:1") == 1


async def test_holds_interrupted_before_their_turn_are_given_back(
    newest: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = "leaky:1/m"
    async with limiters.async_of(newest) as limiter:
        await limiter.check("k", rule)
        task = asyncio.create_task(limiter.hold("k", rule, ttl=TTL_S).__aenter__())
        await asyncio.to_thread(until, lambda: holds(newest, "k") == 1)
        await cancel([task])
        await asyncio.to_thread(until, lambda: holds(newest, "k") == 0)
        assert (await limiter.peek("k", rule)).remaining == 1

    def interrupted(s: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rl_limits.holds.time.sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        limiters.of(newest).hold("k", rule, ttl=TTL_S).__enter__()
    assert holds(newest, "k") == 0 and left(newest, rule=rule) == 1


async def test_a_denial_gives_charges_back_even_if_its_task_is_cancelled(newest: Server) -> None:
    async with limiters.async_of(newest, separately=True) as limiter:
        await limiter.check("full", "1/d")
        limits = [Limit(name, "1000/d") for name in ("k", "l", "m")] + [Limit("full", "1/d")]
        for _ in range(20):
            tasks = [asyncio.create_task(limiter.check_all(limits)) for _ in range(8)]
            await asyncio.sleep(random.uniform(0, 0.008))
            await cancel(tasks)
    for key in ("k", "l", "m"):
        assert left(newest, key, "1000/d") == 1000
