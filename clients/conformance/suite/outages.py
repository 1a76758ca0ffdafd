"""Servers that cannot decide, each for its own reason. Each yields the URL to ask."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import servers

#: The keys of the server that loads: each takes a hundredth of a second, and after each the server serves its clients.
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


def cluster(*, replica: bool = False) -> AbstractContextManager[list[servers.Server]]:
    options = "--cluster-node-timeout", 500, "--repl-diskless-sync-delay", 0
    return servers.start_cluster(servers.NAMES[-1], *options, replica=replica)


@contextmanager
def without_quorum() -> Iterator[str]:
    """A cluster with one of its three primaries left."""
    with cluster() as nodes:
        for node in nodes[1:]:
            node.stop()
        with nodes[0].client() as client:
            servers.until(lambda: client.cluster("INFO")["cluster_state"] == "fail")
        yield nodes[0].url.replace("redis:", "redis+cluster:")


@contextmanager
def busy() -> Iterator[str]:
    with servers.start(servers.NAMES[-1], "--busy-reply-threshold", 1) as server, server.client() as client:
        client.connection_pool.get_connection().send_command("EVAL", "while true do end", 0)
        servers.until(lambda: not servers.answers(server))
        yield server.url


@contextmanager
def cannot_save() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="ratelimit-") as folder,
        servers.start(servers.NAMES[-1], "--dir", folder, "--save", "3600 1000000") as server,
        server.client() as client,
    ):
        Path(folder, "dump.rdb").mkdir()
        client.bgsave()
        servers.until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
        yield server.url


@contextmanager
def without_replicas() -> Iterator[str]:
    with servers.start(servers.NAMES[-1], "--min-replicas-to-write", 1) as server:
        yield server.url


@contextmanager
def without_primary() -> Iterator[str]:
    gone = "--replicaof", f"127.0.0.1 {servers.free_port()}", "--replica-read-only", "no"
    with servers.start(servers.NAMES[-1], *gone, "--replica-serve-stale-data", "no", ready=servers.listens) as server:
        yield server.url


@contextmanager
def without_slots() -> Iterator[str]:
    with servers.start(servers.NAMES[-1], "--cluster-enabled", "yes", "--cluster-port", servers.free_port()) as server:
        yield server.url


@contextmanager
def moving() -> Iterator[str]:
    """A slot moves, and its node has only one of the keys `{a}1` and `{a}2`."""
    with cluster() as (to, _, of_a), to.client() as target, of_a.client() as source:
        source.execute_command("RL.CHECK", "{a}1", "2/m")
        slot = source.cluster("KEYSLOT", "a")
        target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source.cluster("MYID"))
        source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target.cluster("MYID"))
        yield of_a.url


#: The code that a server, or one node of a cluster, replies to a check of `{a}1` and `{a}2`.
REPLIES: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "BUSY": busy,
    "MISCONF": cannot_save,
    "NOREPLICAS": without_replicas,
    "OOM": out_of_memory,
    "LOADING": loading,
    "READONLY": failed_over,
    "MASTERDOWN": without_primary,
    "CLUSTERDOWN": without_slots,
    "TRYAGAIN": moving,
}

ALL: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "stopped": stopped,
    "down": down,
    "loading": loading,
    "out of memory": out_of_memory,
    "failed over": failed_over,
    "cluster without quorum": without_quorum,
}
