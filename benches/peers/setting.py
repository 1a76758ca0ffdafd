"""What a measurement of a peer runs: its server, its service if it has one, and callers."""

import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path

from benches.latency import crab
from benches.server import Failed, servers
from benches.server.servers import Server, free_port

from . import build
from .adapter import START_S, Adapter, end_with_parent

#: A clock that is 5 s ahead: for programs that ask the C library, and for those in Go (build.py).
AHEAD = {"LD_PRELOAD": str(build.AHEAD), "CLOCK_AHEAD_S": "5"}
MODULES = {"ours": servers.LOAD_OURS, "redis-cell": servers.LOAD_REDIS_CELL}

SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
RULE = (10, SECOND)
LONGER = (60, MINUTE)
#: Rules that admit everything, and two whose keys outlive the measurement.
AMPLE = (100_000, SECOND)
HOURLY, FEW = (100, HOUR), (20, HOUR)

NAMES = {SECOND: "second", MINUTE: "minute", HOUR: "hour"}
CONFIG = "domain: peers\ndescriptors:\n" + "".join(
    f"  - key: {NAMES[period_ms]}_{limit}\n    rate_limit: {{unit: {NAMES[period_ms]}, requests_per_unit: {limit}}}\n"
    for limit, period_ms in (RULE, LONGER, AMPLE, HOURLY, FEW)
)


class Service:
    """A rate limit service for Envoy, between the caller and the server."""

    def __init__(self, program, port, environment):
        self.folder = tempfile.TemporaryDirectory(prefix="peers-")
        config = Path(self.folder.name) / "ratelimit/config"
        config.mkdir(parents=True)
        (config / "peers.yaml").write_text(CONFIG)
        self.grpc, http, debug = free_port(), free_port(), free_port()
        ports = {"GRPC_PORT": self.grpc, "PORT": http, "DEBUG_PORT": debug, "PROMETHEUS_ADDR": f"127.0.0.1:{free_port()}"}
        hosts = {"GRPC_HOST": "127.0.0.1", "HOST": "127.0.0.1", "DEBUG_HOST": "127.0.0.1"}
        root = {"RUNTIME_ROOT": self.folder.name, "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_WATCH_ROOT": "false"}
        redis = {"REDIS_URL": f"127.0.0.1:{port}", "REDIS_SOCKET_TYPE": "tcp", "REDIS_TYPE": "SINGLE", "USE_STATSD": "false"}
        given = {**ports, **hosts, **root, **redis, "LOG_LEVEL": "error", **environment}
        self.process = subprocess.Popen(
            [program],
            env={**os.environ, **{name: str(value) for name, value in given.items()}},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        crab.wait_until_ready(self.process, self.grpc)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


class Setting:
    """Servers and callers of a peer, until `close`."""

    def __init__(self, peer, lines=(), core=None):
        self.peer, self.stack, self.services = peer, contextlib.ExitStack(), []
        loads = [MODULES[module] for module in peer.modules]
        try:
            if peer.service == "throttlecrab":
                self.server = self.stack.enter_context(crab.started(core))
            else:
                self.server = self.stack.enter_context(Server(peer.server, core, [*loads, *lines]))
        except BaseException:
            self.stack.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()

    def caller(self, ahead=False):
        """An adapter, started as an own process; `ahead`: its clock is, and that of its service."""
        return self.begun(ahead).ready()

    def callers(self, number):
        return [begun.ready() for begun in [self.begun() for _ in range(number)]]

    def begun(self, ahead=False):
        environment = AHEAD if ahead else {}
        address = f"redis://127.0.0.1:{self.server.port}"
        if self.peer.service in build.SERVICES:
            service = Service(build.SERVICES[self.peer.service], self.server.port, environment)
            self.stack.callback(service.stop)
            self.services.append(service.process)
            address = f"127.0.0.1:{service.grpc}"
        started = Adapter([*build.COMMANDS[self.peer.language], self.peer.key, address], {**build.ENVIRONMENT, **environment})
        self.stack.callback(started.stop)
        return started


def until(holds, within_s=START_S):
    deadline = time.monotonic() + within_s
    while not (value := holds()):
        if time.monotonic() > deadline:
            raise Failed(f"not within {within_s} s")
        time.sleep(0.02)
    return value


#: What to add to the monotonic clock for the time since 1970.
WALL_S = time.time() - time.monotonic()
