"""Runs programs, and a server with the module, for a `with` block of a demonstration."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "benches"))

from started import redis, started  # runs a server for a `with` block


@contextlib.contextmanager
def serving(*patterns):
    """Yields a client and the URL of a new server. If REDIS_URL names a server, yields that one, and first deletes its
    keys that match the patterns."""
    if url := os.environ.get("REDIS_URL"):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the programs end with us
        with redis.Redis.from_url(url) as client:
            for pattern in patterns:
                for key in client.scan_iter(pattern):
                    client.delete(key)
            yield client, url
    else:
        with started() as server:
            yield server.client, f"unix://{server.folder / 'socket'}"


@contextlib.contextmanager
def running(program, *options):
    """Runs a program, and yields its process and its first line of output."""
    command = [sys.executable, str(program), *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        line = process.stdout.readline()
        if not line:
            sys.exit(f"{program} did not start")
        yield process, line.strip()
    finally:
        process.kill()
        process.wait()
