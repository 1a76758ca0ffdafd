"""The code of the README."""

import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import Client
from django.test.utils import override_settings
from fastapi.testclient import TestClient

from rl_limits import AsyncRateLimiter, Limit
from servers import Server

README = (Path(__file__).parents[1] / "README.md").read_text()
LIMITER, HOLD, UPSTREAM, FASTAPI, FLASK, DJANGO = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than an application should wait."""
    monkeypatch.setattr("rl_limits._url.TIMEOUT_S", 5)
    monkeypatch.setitem(AsyncRateLimiter.__init__.__kwdefaults__, "timeout", 5)


def run(code: str, server: Server) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "readme"}
    exec(code.replace("redis://localhost", server.url), names)
    return names


@pytest.mark.parametrize("code", [LIMITER, HOLD, UPSTREAM])
def test_what_is_printed_is_what_a_comment_says(server: Server, code: str) -> None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        run(code, server)
    assert printed.getvalue().strip() == re.search(r"print.*# (.*)", code)[1]


def test_the_hold_is_settled(newest: Server) -> None:
    run(HOLD, newest)
    with newest.client() as client:
        assert client.execute_command("RL.PEEK", "llm:7", "slots:20")[2] == 20
        assert 97_290 <= client.execute_command("RL.PEEK", "llm:7", "bucket:100000/m")[2] < 100_000


def test_fastapi(newest: Server) -> None:
    with TestClient(run(FASTAPI, newest)["app"]) as client:
        answers = [client.get("/") for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 200, 429]
    assert answers[0].headers["ratelimit-policy"] == '"burst";q=10;w=1, "address";q=240;w=3600, "user";q=30;w=60'


def test_flask(newest: Server) -> None:
    client = run(FLASK, newest)["app"].test_client()
    assert [client.get("/").status_code for _ in range(6)] == [200] * 5 + [429]


def test_snippets_go_on_without_the_server(stopped: Server) -> None:
    for code in (LIMITER, HOLD, UPSTREAM):
        run(code, stopped)
    for client in (TestClient(run(FASTAPI, stopped)["app"]), run(FLASK, stopped)["app"].test_client()):
        assert [client.get("/").status_code for _ in range(6)] == [200] * 5 + [429]


def test_links_work_where_registries_show_them() -> None:
    assert not re.findall(r"\]\((?!https://)", README)


def test_django(newest: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    import test_django  # has configured Django

    def limits_of(request: HttpRequest) -> list[Limit]:
        return [Limit("ip", "2/m")]

    shop = ModuleType("shop")
    shop.limits_of = limits_of
    monkeypatch.setitem(sys.modules, "shop", shop)
    names = run(DJANGO, newest)
    assert names["MIDDLEWARE"] == test_django.settings.MIDDLEWARE
    with override_settings(RL_LIMITS=names["RL_LIMITS"]):
        assert [Client().get("/").status_code for _ in range(3)] == [200, 200, 429]
    throttle = names["REST_FRAMEWORK"]["DEFAULT_THROTTLE_CLASSES"]
    assert throttle == ["rl_limits.rest_framework.UserRateThrottle"]
