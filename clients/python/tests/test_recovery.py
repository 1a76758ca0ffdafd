"""How soon the server decides again."""

import asyncio
import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import servers
from rl_limits import AsyncRateLimiter, RateLimiter
from servers import Server
from test_holds import waiting

#: The second between tries, and some time for a busy machine.
BACK_S = 1.1 + 0.9


class Relay:
    """Stands between a client and its server. `drop` leaves connections open but unanswered, as if the host were
    gone."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.listener = socket.create_server(("127.0.0.1", servers.free_port()))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}"
        self.dropped: list[socket.socket] = []
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._closed = False
        self._drop = False
        self._thread = threading.Thread(target=self._run)

    def drop(self) -> None:
        self._drop = True
        servers.until(lambda: not self._drop)

    def _run(self) -> None:
        while not self._closed:
            if self._drop:
                self.dropped += self._pairs
                self._pairs.clear()
                self._drop = False
            for ready in select.select([self.listener, *self._pairs], [], [], 0.01)[0]:
                if ready is self.listener:
                    near = self.listener.accept()[0]
                    far = socket.create_connection(("127.0.0.1", self.server.port))
                    self._pairs |= {near: far, far: near}
                elif ready in self._pairs:
                    self._pass(ready)

    def _pass(self, ready: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if data := ready.recv(65536):
                self._pairs[ready].sendall(data)
                return
        other = self._pairs.pop(ready)
        self._pairs.pop(other, None)
        ready.close()
        other.close()

    @contextmanager
    def serving(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._closed = True
            self._thread.join()
            for one in (self.listener, *self.dropped, *self._pairs):
                one.close()


def stop(limiter: RateLimiter | AsyncRateLimiter) -> None:
    for _ in range(limiter.core.breaker.FAILURES):
        limiter.core.breaker.failed(TimeoutError(), time.monotonic())
    assert limiter.away


def test_the_first_try_connects_anew(newest: Server) -> None:
    relay = Relay(newest)
    with relay.serving(), RateLimiter.from_url(relay.url, outage="allow", timeout=2) as limiter:

        def at_once(n: int) -> set[str]:
            with ThreadPoolExecutor(20) as threads:
                return {answer.source for answer in threads.map(lambda _: limiter.check("k", "1000/m"), range(n))}

        for _ in range(5):
            assert at_once(100) == {"server"}
        relay.drop()
        stop(limiter)
        began_s = time.monotonic()
        servers.until(lambda: limiter.check("k", "1000/m").source == "server")
        assert time.monotonic() - began_s < BACK_S
        assert at_once(20) == {"server"}, "no connection from before the outage is left"


async def test_the_first_try_connects_anew_with_asyncio(newest: Server) -> None:
    relay = Relay(newest)
    with relay.serving():
        async with AsyncRateLimiter.from_url(relay.url, outage="allow", timeout=2) as limiter:

            async def at_once(n: int) -> set[str]:
                return {one.source for one in await asyncio.gather(*(limiter.check("k", "1000/m") for _ in range(n)))}

            assert await at_once(100) == {"server"}
            relay.drop()
            stop(limiter)
            began_s = time.monotonic()
            while (await limiter.check("k", "1000/m")).source != "server":
                assert time.monotonic() - began_s < BACK_S
                await asyncio.sleep(0.02)
            assert await at_once(20) == {"server"}, "no connection from before the outage is left"


async def test_commands_under_way_end_when_the_limiter_stops_asking(newest: Server) -> None:
    async with AsyncRateLimiter.from_url(newest.url, outage="allow", timeout=5) as limiter:
        await limiter.check("k", "5/m")
        with newest.paused():
            began_s = time.monotonic()
            checks = [asyncio.create_task(limiter.check("k", "5/m")) for _ in range(20)]
            await asyncio.sleep(0.1)
            stop(limiter)
            assert {answer.source for answer in await asyncio.gather(*checks)} == {"outage"}
            assert time.monotonic() - began_s < 2, "their time-outs are longer"


async def test_a_try_that_waits_in_line_delays_no_other_request(newest: Server) -> None:
    """Even if all requests wait in line."""
    async with newest.async_limiter(outage="allow") as limiter, limiter.hold("jobs", "slots:1", ttl=60):
        stop(limiter)
        await asyncio.sleep(limiter.core.breaker.PAUSE_S + 0.01)
        hold = limiter.hold("jobs", "slots:1", ttl=60, wait=60)
        task = asyncio.create_task(hold.__aenter__())
        await asyncio.to_thread(servers.until, lambda: waiting(newest) == 1)
        assert not limiter.away and (await limiter.check("k", "1/m")).source == "server"
        task.cancel()
        await asyncio.wait([task])
