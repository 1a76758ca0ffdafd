"""examples/fastapi, as its clients and a real browser see it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from servers import LONG, ROOT, Server, until

ANN = {"authorization": "Bearer token-of-ann"}


@contextmanager
def started(server: Server) -> Iterator[str]:
    env = {**os.environ, "PORT": "0", "REDIS_URL": server.url}
    program = [sys.executable, "-B", ROOT / "examples/fastapi/app.py"]
    with subprocess.Popen(program, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as app:
        try:
            yield app.stdout.readline().strip()
        finally:
            app.kill()


def visit(url: str, *steps: str) -> None:
    """What a browser sees; steps as tests/browser/visit.py takes them."""
    done = subprocess.run(
        ["python3", "-B", ROOT / "tests/browser/visit.py", url, *steps], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def shows(name: str, quota: str) -> list[str]:
    return ["see", f"#{name} td:nth-child(2)", quota]


def test_clients_are_limited_by_address_and_by_user_and_told_so(newest: Server) -> None:
    with started(newest) as url, httpx.Client(base_url=url) as client:
        first = client.post("/ask", headers=ANN)
        assert (first.status_code, first.text) == (200, "42")
        assert first.headers["ratelimit-policy"] == '"address";q=20;w=60, "user";q=5;w=60'
        assert first.headers["ratelimit"] == '"address";r=19;t=60, "user";r=4;t=60'
        for _ in range(4):
            client.post("/ask", headers={**ANN, "x-forwarded-for": "203.0.113.9"})
        denied = client.post("/ask", headers={**ANN, "x-forwarded-for": "198.51.100.7"})
        assert denied.status_code == 429, "another address is no way around the limit of a user"
        assert 0 < int(denied.headers["retry-after"]) <= 60
        assert client.get("/quota", headers=ANN).json() == [
            {"name": "address", "remaining": 19, "limit": 20},
            {"name": "user", "remaining": 0, "limit": 5},
        ]
        other = {"x-forwarded-for": "198.51.100.7"}
        assert client.get("/quota", headers=other).json() == [{"name": "address", "remaining": 20, "limit": 20}]
        with newest.client() as redis:
            redis.execute_command("RL.BLOCK", "web:ip:198.51.100.7")
        assert client.post("/ask", headers=other).status_code == 403


@pytest.mark.skipif(not LONG, reason="`make test-long` has a browser")
def test_a_browser_shows_what_is_left_and_when_more_comes(newest: Server) -> None:
    ask = ["click", "#ask"]
    left = [step for n in (3, 2, 1, 0) for step in (*ask, *shows("user", f"{n} of 5"))]
    denied = [*ask, "match", "#answer", r"^Too many requests, ask again in \d+ s\.$"]
    with started(newest) as url:
        visit(
            url,
            *("see", "h1", "Your quota", *shows("address", "20 of 20")),
            *(*ask, "see", "#answer", "The answer is 42.", *shows("address", "19 of 20")),
            *("fill", "#token", "token-of-ann", *ask, *shows("user", "4 of 5"), *left),
            *(*denied, *shows("user", "0 of 5"), *shows("address", "14 of 20")),
        )


@pytest.mark.skipif(not LONG, reason="`make test-long` has a browser")
def test_limits_hold_while_the_server_is_down(stopped: Server) -> None:
    with started(stopped) as url:
        visit(url, "click", "#ask", "see", "#answer", "The answer is 42.", *shows("address", "19 of 20"))


def test_clients_behind_a_unix_socket_have_no_address(newest: Server, tmp_path: Path) -> None:
    socket = str(tmp_path / "socket")
    program = [
        sys.executable,
        "-B",
        "-m",
        "uvicorn",
        "--app-dir",
        ROOT / "examples/fastapi",
        "--uds",
        socket,
        "app:app",
    ]
    env = {**os.environ, "REDIS_URL": newest.url}
    with subprocess.Popen(program, env=env, stderr=subprocess.DEVNULL) as app:
        try:
            until(lambda: os.path.exists(socket))
            with httpx.Client(base_url="http://test", transport=httpx.HTTPTransport(uds=socket)) as client:
                assert client.post("/ask").status_code == 200
        finally:
            app.kill()
    with newest.client() as redis:
        assert redis.keys() == ["web:ip:unknown"]
