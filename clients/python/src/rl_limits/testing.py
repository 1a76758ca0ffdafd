"""A server with the module, for tests: a context manager, and fixtures of pytest for a conftest.py that says
`pytest_plugins = ["rl_limits.testing"]`. Needs the extra `testing`, which is for Linux.

A server listens on a free port of this machine and saves nothing. It ends with its block or with pytest. Should this
process be killed, it ends too, unless a process that was forked meanwhile lives on: it ends once nothing holds the pipe
to it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

import pytest
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from ._commands import Rules, texts

PROGRAM = "redis_ratelimit_server"
READY_S = 30
#: How often another process may take the free port first.
TRIES = 5


@contextmanager
def run_server(policies: Mapping[str, Rules] | None = None, *arguments: str) -> Iterator[str]:
    """Runs a server with these policies for the block, which gets its URL. `arguments` are further ones of the server,
    such as "--maxmemory", "10mb"."""
    if importlib.util.find_spec(PROGRAM) is None:
        raise RuntimeError("redis-ratelimit-server is not installed: pip install 'rl-limits[testing]'")
    command = [sys.executable, "-m", PROGRAM, "--port", "0", "--until-stdin-ends", "--", *arguments]
    for _ in range(TRIES):
        # The file has no name, so nothing stays behind if this process is killed.
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)
            try:
                url = _url(process, log)
                if url is None:
                    continue
                with Redis.from_url(url) as client:
                    for name, rules in (policies or {}).items():
                        client.execute_command("RL.POLICY", "SET", name, *" ".join(texts(rules)).split())
                yield url
                return
            finally:
                _stop(process)
    raise RuntimeError(f"no server started: another process took its port, {TRIES} times")


def _url(process: subprocess.Popen[bytes], log: IO[bytes]) -> str | None:
    """The URL of a server, once it answers; None if another process took its port first."""
    late = time.monotonic() + READY_S
    while time.monotonic() < late:
        ended = process.poll() is not None
        said = os.pread(log.fileno(), 1 << 16, 0).decode(errors="replace")
        if ended and "Address already in use" in said:
            return None
        if ended:
            raise RuntimeError(f"the server ended:\n{said}")
        named = re.search(r"redis://\S+:\d+", said)
        if named and _answers(named[0], process.pid):
            return named[0]
        time.sleep(0.01)
    raise RuntimeError(f"the server did not answer within {READY_S} s")


def _stop(process: subprocess.Popen[bytes]) -> None:
    with process:  # which closes the pipe too
        process.terminate()
        try:
            process.wait(READY_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _answers(url: str, pid: int) -> bool:
    """Whether this process answers at the URL, and not another that took its port."""
    try:
        with Redis.from_url(url, socket_timeout=1, retry=Retry(NoBackoff(), 0)) as client:
            return bool(client.info("server")["process_id"] == pid)
    except RedisError:
        return False


@pytest.fixture(scope="session")
def ratelimit_policies() -> Mapping[str, Rules]:
    """Override it in conftest.py to give the server policies: `{"free": "3/m"}`."""
    return {}


@pytest.fixture(scope="session")
def ratelimit_server(ratelimit_policies: Mapping[str, Rules]) -> Iterator[str]:
    """The URL of a server that all tests share, in each process of pytest-xdist another one."""
    with run_server(ratelimit_policies) as url:
        yield url


@pytest.fixture
def ratelimit_url(ratelimit_server: str) -> str:
    """The URL of that server, emptied for the test. Its policies stay."""
    with Redis.from_url(ratelimit_server) as client:
        client.flushall()
    return ratelimit_server
