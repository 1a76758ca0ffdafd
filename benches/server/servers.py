"""A server for a `with` block: on a free port of the loopback, in a new temporary folder, pinned to one core.

A server starts in a new session, so that Ctrl-C reaches the benchmark alone, which then stops its servers in order.
Where the system supports it, the kernel ends a server when the process that started it is killed.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import redis

from . import Failed, machine

ROOT = Path(__file__).resolve().parents[2]
SERVERS = Path(os.environ.get("RATELIMIT_SERVERS", ROOT / ".cache/servers"))
MODULE = Path(os.environ.get("RATELIMIT_MODULE", ROOT / "target/release/libredis_ratelimit.so"))
FLOOR = ROOT / "target/bench/floor.so"
REDIS_CELL = Path(os.environ.get("RATELIMIT_REDIS_CELL", ROOT / ".cache/redis-cell/libredis_cell.so"))

# Where results and pictures go, and the folder of the documents' pictures.
OUTPUT = ROOT / "target/bench"
PUBLISHED = ROOT / "docs/images"

# AT fills logs with entries of the past.
LOAD_OURS = f'loadmodule "{MODULE}" allow-at yes'
LOAD_REDIS_CELL = f'loadmodule "{REDIS_CELL}"'
LOAD_FLOOR = f'loadmodule "{FLOOR}"'

AOF = ["appendonly yes", "appendfsync everysec", "auto-aof-rewrite-percentage 0"]

START_S = 10
PR_SET_PDEATHSIG = 1


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    def __init__(self, name, core, lines=()):
        self.program = SERVERS / name / "server"
        self.core = core
        self.lines = lines
        self.process = self.folder = self.client = self.port = None

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="bench-"))
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self, tries=3):
        self.port = free_port()
        lines = [f"port {self.port}", "bind 127.0.0.1", f'dir "{self.folder}"', 'save ""', "repl-diskless-sync-delay 0"]
        # wire.fill waits for a replica that falls behind; the primary must not cut it off.
        lines += ["client-output-buffer-limit replica 0 0 0", *self.lines]
        config = self.folder / "server.conf"
        config.write_text("\n".join(lines) + "\n")
        libc = ctypes.CDLL(None) if sys.platform == "linux" else None

        def settle():
            machine.pin(self.core)
            if libc:
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [self.program, config], stdout=log, stderr=log, start_new_session=True, preexec_fn=settle
            )
        self.client = redis.Redis(port=self.port, protocol=2, decode_responses=True, socket_timeout=120)
        if not self.answers():
            if self.process.poll() is not None and tries > 1 and "Address already in use" in self.log():
                return self.start(tries - 1)
            raise Failed(f"{self.program} did not start:\n{self.log()}")

    def answers(self):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                return self.client.ping()
            except redis.ConnectionError:
                time.sleep(0.02)
        return False

    def log(self):
        """The last lines of the server's log."""
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-15:])

    def stop(self):
        if self.client:
            self.client.close()
        if self.process:
            self.process.kill()  # it has nothing to save
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def version(name):
    with Server(name, None) as server:
        info = server.client.info("server")
        return info.get("valkey_version") or info["redis_version"]


def replica_of(primary, core, lines=()):
    return Server(primary.program.parent.name, core, [*lines, f"replicaof 127.0.0.1 {primary.port}"])


def wait_for_link(replica):
    """Waits until the replica has its primary's data and follows it."""
    deadline = time.monotonic() + START_S
    while replica.client.info("replication")["master_link_status"] != "up":
        if time.monotonic() > deadline:
            raise Failed(f"the replica does not follow:\n{replica.log()}")
        time.sleep(0.05)
