"""throttlecrab-server for a `with` block: on a free port of the loopback, pinned to the server's core."""

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path

from benches.server import Failed, machine
from benches.server.servers import ROOT, START_S, free_port

PROGRAM = Path(os.environ.get("RATELIMIT_THROTTLECRAB", ROOT / ".cache/throttlecrab/bin/throttlecrab-server"))


class Crab:
    """The attributes of a server that points.py needs."""

    client = None

    def __init__(self, process, port):
        self.process, self.port = process, port


def wait_until_ready(process, port):
    deadline = time.monotonic() + START_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failed("throttlecrab-server did not start") from error
            time.sleep(0.02)


@contextlib.contextmanager
def started(core):
    port = free_port()
    command = [PROGRAM, "--redis", "--redis-host", "127.0.0.1", "--redis-port", str(port), "--log-level", "error"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=lambda: machine.pin(core))
    try:
        wait_until_ready(process, port)
        yield Crab(process, port)
    finally:
        process.kill()  # it has nothing to save
        process.wait()
