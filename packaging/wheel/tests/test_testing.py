"""`rl_limits.testing`, with the wheel in an empty environment beside redis-py and pytest."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import servers

from rl_limits.testing import run_server

README = (servers.ROOT / "clients/python/README.md").read_text()
SNIPPET = next(
    code for code in re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE) if "testing" in code
)

CONFTEST = """
import pytest

pytest_plugins = ["rl_limits.testing"]


@pytest.fixture(scope="session")
def ratelimit_policies():
    return {"free": "3/m 800/d", "pro": ["200/m", "bucket:10/s,burst=50"]}
"""
TESTS = """
import pytest
from rl_limits import AsyncRateLimiter, RateLimiter
from rl_limits.testing import run_server

seen = set()


@pytest.mark.parametrize("policy, remaining", [("@free", 2), ("@free", 2), ("@pro", 49)])
def test_each_test_finds_an_empty_server(ratelimit_url, policy, remaining):
    seen.add(ratelimit_url)
    assert RateLimiter.from_url(ratelimit_url, timeout=5).check("user:42", policy).remaining == remaining


def test_all_tests_share_the_server(ratelimit_server):
    assert seen == {ratelimit_server}


async def test_a_block_has_a_server_of_its_own(ratelimit_server):
    with run_server({"free": ["1/m"]}, "--maxmemory", "10mb") as url:
        assert url != ratelimit_server
        limiter = AsyncRateLimiter.from_url(url, timeout=5)
        assert [(await limiter.check("k", "@free")).verdict for _ in range(2)] == ["allowed", "limited"]
        await limiter.aclose()
"""
SERVES = """
import time
from rl_limits.testing import run_server

with run_server() as url:
    print(url, flush=True)
    time.sleep(60)
"""


def environment(folder: Path) -> dict[str, str]:
    """With pytest, redis-py and the client, but nothing of the wheel."""
    (folder / "tmp").mkdir()
    return {**os.environ, "TMPDIR": str(folder / "tmp")}


def nothing_is_left(folder: Path) -> bool:
    return not [path for path in (folder / "tmp").iterdir() if not path.name.startswith("pytest-of-")]


def test_tests_of_an_application_get_servers(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_application.py").write_text(TESTS)
    (tmp_path / "test_readme.py").write_text(SNIPPET)
    words = ["-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_application.py", "test_readme.py"]
    command = [programs / "python", *words]
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout
    assert nothing_is_left(tmp_path)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_the_server_ends_with_the_process_of_the_tests(programs: Path, tmp_path: Path, end: signal.Signals) -> None:
    command = [programs / "python", "-B", "-c", SERVES]
    with subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as process:
        port = int(process.stdout.readline().rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port)).close()
        process.send_signal(end)
    servers.until(lambda: not is_open(port))
    assert nothing_is_left(tmp_path)


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_what_the_server_says_is_in_the_error(programs: Path, tmp_path: Path) -> None:
    code = 'from rl_limits.testing import run_server\nwith run_server(None, "--maxmemory", "lots"): pass'
    command = [programs / "python", "-B", "-c", code]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True)
    assert "RuntimeError: the server ended:" in done.stderr
    assert "argument must be a memory value" in done.stderr


def test_a_missing_program_is_an_error() -> None:
    assert "redis_ratelimit_server" not in sys.modules
    with pytest.raises(RuntimeError, match=r"pip install 'rl-limits\[testing\]'"), run_server():
        pass
