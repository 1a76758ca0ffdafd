"""Real servers with the module, on free ports of this machine and in temporary folders."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from redis import BusyLoadingError, Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

ROOT = Path(__file__).resolve().parents[3]
MODULE = os.environ.get("RATELIMIT_MODULE", ROOT / "target/faulty/libredis_ratelimit.so")
SERVERS = Path(os.environ.get("RATELIMIT_SERVERS", ROOT / ".cache/servers"))
ALL = "redis-6.2 redis-7.0 redis-8.2 valkey-8.1 valkey-9.1"
#: The servers to test: all, or those that RATELIMIT_ONLY names.
NAMES = os.environ.get("RATELIMIT_ONLY", ALL).replace(",", " ").split()
#: Whether `make test-long` runs the tests.
LONG = "RATELIMIT_LONG" in os.environ
READY_S = 30
SLOTS = 16384


class Server(NamedTuple):
    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def client(self) -> Redis:
        return Redis(port=self.port, decode_responses=True, retry=Retry(NoBackoff(), 0))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stops the server for the block: it accepts connections, but answers nothing."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


Ready = Callable[[Server], bool]


@contextmanager
def start(
    name: str = NAMES[-1], *options: object, ready: Ready | None = None, module: bool = True, config: str = ""
) -> Iterator[Server]:
    """`ready`: whether the server has started, by default whether it answers. `config`: lines for its file."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ratelimit-") as folder:
        log, file = Path(folder) / "log", Path(folder) / "conf"
        file.write_text(config)
        words = [file, "--port", port, "--bind", "127.0.0.1", "--dir", folder, "--logfile", log, "--save", "", *options]
        command = [SERVERS / name / "server", *map(str, words), *(["--loadmodule", str(MODULE)] if module else [])]
        server = Server(port, subprocess.Popen(command, stdout=subprocess.DEVNULL))
        try:
            until(lambda: server.process.poll() is not None or (ready or answers)(server))
            assert server.process.poll() is None, log.read_text()
            yield server
        finally:
            server.stop()


@contextmanager
def start_cluster(
    name: str = NAMES[-1], *options: object, replica: bool = False, module: bool = True
) -> Iterator[list[Server]]:
    """Three primaries, and with `replica` a replica of the last."""
    with ExitStack() as stack:
        buses = [free_port() for _ in range(4 if replica else 3)]
        clustered = ["--cluster-enabled", "yes", *options, "--cluster-port"]
        nodes = [stack.enter_context(start(name, *clustered, bus, module=module)) for bus in buses]
        for i, node in enumerate(nodes):
            with node.client() as client:
                if i < 3:
                    first, last = i * SLOTS // 3, (i + 1) * SLOTS // 3 - 1
                    client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
                for other, bus in list(zip(nodes, buses, strict=True))[:i]:
                    client.execute_command("CLUSTER MEET", "127.0.0.1", other.port, bus)
        until(lambda: all(knows_all(node) for node in nodes))
        if replica:
            with nodes[2].client() as primary, nodes[3].client() as follower:
                follower.execute_command("CLUSTER REPLICATE", primary.cluster("MYID"))
                until(lambda: primary.info("replication").get("slave0", {}).get("state") == "online")
        yield nodes


def knows_all(node: Server) -> bool:
    with node.client() as client:
        return client.cluster("INFO")["cluster_state"] == "ok" and len(client.cluster("SLOTS")) == 3


def answers(server: Server) -> bool:
    try:
        with server.client() as client:
            return bool(client.ping())
    except RedisError:
        return False


def listens(server: Server) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", server.port)).close()
        return True
    return False


def loads(server: Server) -> bool:
    """Whether the server answers that it is loading."""
    try:
        with server.client() as client:
            client.ping()
    except BusyLoadingError:
        return True
    except RedisError:
        pass
    return False


def until(holds: Callable[[], bool]) -> None:
    late = time.monotonic() + READY_S
    while not holds():
        assert time.monotonic() < late, f"not within {READY_S} s"
        time.sleep(0.02)


_PORTS = itertools.count(os.getpid() * 997)


def free_port() -> int:
    """
    A free port below the range of outgoing connections, one of which could take the port before the server does. Each
    process begins at another port, so processes that run at once do not try the same one.
    """
    while True:
        port = 10_000 + next(_PORTS) % 20_000
        with socket.socket() as taken, contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port
