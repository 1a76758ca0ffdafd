"""A primary, its replica, and a sentinel that tells clients which server is the primary."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import servers
from redis import ResponseError
from servers import Server

GROUP = "limits"


class Watched(NamedTuple):
    primary: Server
    replica: Server
    sentinel: Server

    def fail_over(self) -> None:
        """Begins to promote the replica, once the sentinel knows enough of it."""
        with self.sentinel.client() as client:

            def begins() -> bool:
                with contextlib.suppress(ResponseError):
                    return bool(client.execute_command("SENTINEL FAILOVER", GROUP))
                return False

            servers.until(begins)


@contextmanager
def start() -> Iterator[Watched]:
    """The sentinel does not start a failover by itself: no primary is away for an hour."""
    newest = servers.NAMES[-1]
    with ExitStack() as stack:
        primary = stack.enter_context(servers.start(newest, "--repl-diskless-sync-delay", 0))
        replica = stack.enter_context(servers.start(newest, "--replicaof", f"127.0.0.1 {primary.port}"))
        with primary.client() as client:
            servers.until(lambda: client.info("replication").get("slave0", {}).get("state") == "online")
        watches = [f"monitor {GROUP} 127.0.0.1 {primary.port} 1", f"down-after-milliseconds {GROUP} 3600000"]
        config = "".join(f"sentinel {line}\n" for line in watches)
        sentinel = stack.enter_context(servers.start(newest, "--sentinel", module=False, config=config))
        yield Watched(primary, replica, sentinel)
