"""Runs a server with the module during a `with` block, in a new temporary folder that has its Unix socket too."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".cache/python"))

import redis  # noqa: E402  where scripts/fetch.py put it

MODULE = Path(os.environ.get("RATELIMIT_MODULE", ROOT / "target/release/libredis_ratelimit.so"))
SERVERS = Path(os.environ.get("RATELIMIT_SERVERS", ROOT / ".cache/servers"))
READY_S = 30


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen
    client: redis.Redis
    folder: Path


def wait_until_ready(process, client, log):
    give_up = time.monotonic() + READY_S
    while True:
        try:
            return client.time()
        except (redis.ConnectionError, redis.BusyLoadingError):
            if process.poll() is not None or time.monotonic() > give_up:
                sys.exit(f"the server did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)


@contextlib.contextmanager
def started(module=MODULE, settings=(), under=(), name="redis-7.0", options=()):
    """Starts a server. `under` are the words of a program that runs the server; {folder} in them is the server's
    folder."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends with us
    with tempfile.TemporaryDirectory(prefix="ratelimit-") as scratch:
        folder = Path(scratch)
        under = [word.format(folder=folder) for word in under]
        command = [*under, SERVERS / name / "server", "--port", "0", "--unixsocket", folder / "socket", "--dir", folder]
        command += ["--save", "", *options, "--loadmodule", module, *settings]
        with (folder / "log").open("w") as log:
            # In a new session, so that Ctrl-C reaches only this script, which stops the server
            # once.
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            client = redis.Redis(unix_socket_path=str(folder / "socket"))
            wait_until_ready(process, client, folder / "log")
            yield Server(process, client, folder)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
