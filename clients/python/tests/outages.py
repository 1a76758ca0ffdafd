"""Servers that cannot decide, each for its own reason. Each yields the URL to ask."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import servers

#: Keys of the server that loads, a hundredth of a second each. It looks at its clients after each of them.
KEYS = {f"key:{n}": "x" * 1024 for n in range(3000)}


@contextmanager
def fine() -> Iterator[str]:
    with servers.start() as server:
        yield server.url


@contextmanager
def stopped() -> Iterator[str]:
    with servers.start() as server, server.paused():
        yield server.url


@contextmanager
def down() -> Iterator[str]:
    with servers.start() as server:
        pass
    yield server.url


@contextmanager
def loading() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="ratelimit-") as folder:
        whole = ["--dir", folder, "--rdbcompression", "no"]
        with servers.start(servers.NAMES[-1], *whole) as server, server.client() as client:
            client.mset(KEYS)
            client.save()
        slow = ["--dir", folder, "--key-load-delay", 10_000, "--loading-process-events-interval-bytes", 1024]
        with servers.start(servers.NAMES[-1], *slow, ready=servers.loads) as server:
            yield server.url


@contextmanager
def out_of_memory() -> Iterator[str]:
    with servers.start(servers.NAMES[-1], "--maxmemory", 1) as server:
        yield server.url


@contextmanager
def failed_over() -> Iterator[str]:
    """A replica, whose primary is gone."""
    with servers.start(servers.NAMES[-1], "--replicaof", f"127.0.0.1 {servers.free_port()}") as server:
        yield server.url


def cluster() -> AbstractContextManager[list[servers.Server]]:
    return servers.start_cluster(servers.NAMES[-1], "--cluster-node-timeout", 500)


@contextmanager
def without_quorum() -> Iterator[str]:
    """A cluster, of which one in three primaries is left."""
    with cluster() as nodes:
        for node in nodes[1:]:
            node.stop()
        with nodes[0].client() as client:
            servers.until(lambda: client.cluster("INFO")["cluster_state"] == "fail")
        yield nodes[0].url.replace("redis:", "redis+cluster:")


ALL: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "stopped": stopped,
    "down": down,
    "loading": loading,
    "out of memory": out_of_memory,
    "failed over": failed_over,
    "cluster without quorum": without_quorum,
}
