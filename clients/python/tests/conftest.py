from collections.abc import Iterator

import pytest
import servers
from proxy import Proxy


@pytest.fixture(scope="session", params=servers.NAMES)
def each_server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """Every server in turn."""
    with servers.start(request.param) as server:
        yield server


@pytest.fixture(scope="session")
def one_server() -> Iterator[servers.Server]:
    with servers.start() as server:
        yield server


@pytest.fixture
def server(each_server: servers.Server) -> servers.Server:
    """Every server in turn, empty."""
    return emptied(each_server)


@pytest.fixture
def newest(one_server: servers.Server) -> servers.Server:
    """The newest server, empty."""
    return emptied(one_server)


@pytest.fixture
def proxy(newest: servers.Server) -> Iterator[Proxy]:
    """Stands before the newest server."""
    proxy = Proxy(newest.port)
    yield proxy
    proxy.close()


@pytest.fixture
def stopped() -> servers.Server:
    """A server that has stopped."""
    with servers.start() as server:
        pass
    return server


@pytest.fixture(scope="session")
def one_cluster() -> Iterator[list[servers.Server]]:
    with servers.start_cluster() as nodes:
        yield nodes


@pytest.fixture
def cluster(one_cluster: list[servers.Server]) -> list[servers.Server]:
    """Three primaries, empty."""
    return [emptied(node) for node in one_cluster]


def emptied(server: servers.Server) -> servers.Server:
    with server.client() as client:
        client.flushall()
    return server
