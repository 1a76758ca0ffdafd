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

from rl_limits import Limit
from servers import Server

README = (Path(__file__).parents[1] / "README.md").read_text()
LIMITER, FASTAPI, FLASK, DJANGO = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def run(code: str, server: Server) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "readme"}
    # A busy machine may take longer than an application should wait.
    patient = re.sub(r'(timeout"?[=:] ?)0\.1', r"\g<1>5", code)
    exec(patient.replace("redis://localhost", server.url), names)
    return names


def test_the_limiter_prints_what_its_comment_says(server: Server) -> None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        run(LIMITER, server)
    assert printed.getvalue().strip() == re.search(r"# (.*)", LIMITER)[1]


def test_fastapi(newest: Server) -> None:
    with TestClient(run(FASTAPI, newest)["app"]) as client:
        answers = [client.get("/") for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 200, 429]
    assert answers[0].headers["ratelimit-policy"] == '"burst";q=10;w=1, "address";q=240;w=3600, "user";q=30;w=60'


def test_flask(newest: Server) -> None:
    client = run(FLASK, newest)["app"].test_client()
    assert [client.get("/").status_code for _ in range(6)] == [200] * 5 + [429]


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
