"""A process that has all the threads it may have: what runs in the background begins later."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from proxy import Proxy
from servers import Server, until

import limiters
from rl_limits import Lease, RateLimiter
from test_holds import holds, left

#: Longer than the tests take.
TTL_S = 600

Full = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Full:
    """Within `with full():` no thread can start."""

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    @contextmanager
    def full() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            yield

    return full


def test_a_node_comes_back_though_its_first_probe_found_no_thread(proxy: Proxy, full: Full) -> None:
    limiter = RateLimiter.from_url(proxy.url, timeout=5, outage="allow")
    with proxy.refused(), full():
        assert limiter.check("k", "5/m").source == "outage" and limiter.away
    until(lambda: limiter.peek("k", "5/m").source == "server")
    limiter.close()


def test_settlements_are_retried_though_the_first_found_no_thread(newest: Server, proxy: Proxy, full: Full) -> None:
    limiter = RateLimiter.from_url(proxy.url, timeout=5)
    taken = [limiter.hold("k", "slots:2,cost=1", ttl=TTL_S).__enter__() for _ in range(2)]
    with proxy.refused():
        with full():
            taken[0].__exit__(None, None, None)
        taken[1].__exit__(None, None, None)
    until(lambda: left(newest, rule="slots:2") == 2)
    limiter.close()


def test_a_hold_that_cannot_be_renewed_is_given_back(newest: Server, full: Full) -> None:
    limiter = limiters.of(newest)
    with pytest.raises(RuntimeError, match="thread"), full():
        limiter.hold("k", "slots:1", ttl=TTL_S).__enter__()
    assert holds(newest, "k") == 0 and left(newest, rule="slots:1") == 1


def test_a_lease_is_settled_though_its_first_taker_found_no_thread(newest: Server, full: Full) -> None:
    lease = Lease(limiters.of(newest), "k", "1000/d", ttl=3)
    with full():
        assert lease.take().allowed
    assert lease.take().allowed
    until(lambda: holds(newest, "k") == 0)
    assert left(newest, rule="1000/d") == 998
    lease.close()
