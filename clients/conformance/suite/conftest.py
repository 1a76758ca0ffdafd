from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import drivers
import servers
from drivers import Driver, Limiter
from proxy import Proxy

_KEYS = itertools.count()


@pytest.fixture(scope="session", params=drivers.NAMES)
def shared(request: pytest.FixtureRequest) -> Iterator[Driver]:
    """Every driver in turn, for tests that leave it as it was."""
    with drivers.started(request.param) as driver:
        yield driver


@pytest.fixture(params=drivers.NAMES)
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    """Every driver in turn, new."""
    with drivers.started(request.param) as driver:
        yield driver


@pytest.fixture(scope="session")
def server() -> Iterator[servers.Server]:
    """The newest server."""
    with servers.start() as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[servers.Server]:
    """A server that the test may stop."""
    with servers.start() as server:
        yield server


@pytest.fixture
def proxy(server: servers.Server) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return f"key-{next(_KEYS)}"


@pytest.fixture(scope="session")
def dead() -> str:
    """A URL at which nobody listens."""
    return f"redis://127.0.0.1:{servers.free_port()}"


@pytest.fixture
def limiter(shared: Driver, server: servers.Server) -> Iterator[Limiter]:
    limiter = shared.limiter(server.url)
    yield limiter
    limiter.close()
