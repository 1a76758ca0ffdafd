"""The code of the README."""

import io
import os
import re
import subprocess
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
from servers import ROOT, Server

from rl_limits import Limit, RateLimiter

README = (Path(__file__).parents[1] / "README.md").read_text()
#: packaging/wheel/tests run the one about tests.
LIMITER, ANY, _, FASTAPI, ROUTE, FLASK, DJANGO, CELERY, HOLD, UPSTREAM = re.findall(
    r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE
)

#: The first program of the page that everybody reads first.
FIRST = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)[0]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than an application should wait."""
    monkeypatch.setattr("rl_limits._url.TIMEOUT_S", 5)


def run(code: str, server: Server, **given: Any) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "readme", **given}
    if code in (ANY, HOLD, UPSTREAM):  # which use the first limiter
        names["limiter"] = RateLimiter.from_url(server.url, outage="local")
    exec(code.replace("redis://localhost", server.url), names)
    return names


@pytest.mark.parametrize("code", [LIMITER, ANY, HOLD, UPSTREAM])
def test_programs_print_what_their_comments_say(server: Server, code: str) -> None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        run(code, server)
    assert printed.getvalue().strip() == re.search(r"print.*# (.*)", code)[1]


def test_the_hold_is_settled(newest: Server) -> None:
    run(HOLD, newest)
    with newest.client() as client:
        assert client.execute_command("RL.PEEK", "llm:7", "slots:20")[2] == 20
        assert 97_290 <= client.execute_command("RL.PEEK", "llm:7", "bucket:100000/m")[2] < 100_000


def test_the_fastapi_program_limits(newest: Server) -> None:
    with TestClient(run(FASTAPI, newest)["app"]) as client:
        answers = [client.get("/") for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 200, 429]
    assert answers[0].headers["ratelimit-policy"] == '"burst";q=10;w=1, "address";q=240;w=3600, "user";q=30;w=60'


def test_the_route_is_limited(newest: Server) -> None:
    with TestClient(run(FASTAPI + ROUTE, newest)["app"]) as client:
        assert [client.get("/export").status_code for _ in range(3)] == [200, 200, 429]


def test_the_program_of_the_first_page_limits(newest: Server, stopped: Server) -> None:
    slow = FIRST.replace('"10/s"', '"10/m"')  # on a busy machine, ten requests take more than a second
    for server in (newest, stopped):
        with TestClient(run(slow, server)["app"]) as client:
            assert [client.get("/").status_code for _ in range(11)] == [404] * 10 + [429]


def test_the_flask_program_limits(newest: Server) -> None:
    client = run(FLASK, newest)["app"].test_client()
    assert [client.get("/").status_code for _ in range(6)] == [200] * 5 + [429]


def test_the_task_is_limited(newest: Server) -> None:
    assert run(CELERY, newest)["fetch"].apply(("ann", "https://example.com")).result == "fetched"
    with newest.client() as client:
        assert [client.execute_command("RL.PEEK", "tenant:ann", rule)[2] for rule in ("100/m", "slots:4")] == [99, 4]


def test_snippets_go_on_without_the_server(stopped: Server) -> None:
    for code in (LIMITER, ANY, HOLD, UPSTREAM):
        run(code, stopped)
    for client in (TestClient(run(FASTAPI, stopped)["app"]), run(FLASK, stopped)["app"].test_client()):
        assert [client.get("/").status_code for _ in range(6)] == [200] * 5 + [429]


def test_links_work_where_registries_show_them() -> None:
    assert not re.findall(r"\]\((?!https://)", README)


def test_the_django_settings_limit(newest: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    import test_django  # has configured Django

    def limits_of(request: HttpRequest) -> list[Limit]:
        return [Limit("ip", "2/m")]

    shop = ModuleType("shop")
    shop.limits_of = limits_of
    monkeypatch.setitem(sys.modules, "shop", shop)
    project = ["django.middleware.security.SecurityMiddleware", "django.middleware.common.CommonMiddleware"]
    names = run(DJANGO, newest, MIDDLEWARE=list(project))
    assert names["MIDDLEWARE"] == [*project, *test_django.settings.MIDDLEWARE], "a project keeps its own"
    with override_settings(MIDDLEWARE=names["MIDDLEWARE"], RL_LIMITS=names["RL_LIMITS"]):
        assert [Client().get("/").status_code for _ in range(3)] == [200, 200, 429]
    throttle = names["REST_FRAMEWORK"]["DEFAULT_THROTTLE_CLASSES"]
    assert throttle == ["rl_limits.rest_framework.UserRateThrottle"]
    forwarded = [{"x-forwarded-for": f"198.51.100.{n}"} for n in range(10)]
    framework = {**names["REST_FRAMEWORK"], "UNAUTHENTICATED_USER": None}
    framework["DEFAULT_THROTTLE_RATES"] = {"anon": "2/min"}
    with override_settings(RL_LIMITS={"URL": newest.url}, MIDDLEWARE=[], REST_FRAMEWORK=framework):
        codes = [Client().get("/anon", headers=headers).status_code for headers in forwarded]
    assert codes == [200] * 2 + [429] * 8, "an invented address is no way around"


def test_a_new_project_of_django_takes_the_settings(tmp_path: Path, newest: Server) -> None:
    """`startproject`, the README's lines after its own, and `check`."""

    def django(*words: str) -> None:
        command = [sys.executable, "-B", "-m", "django", *words]
        subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)

    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "shop.settings"}
    django("startproject", "--settings=django.conf.global_settings", "shop", ".")
    (tmp_path / "shop/__init__.py").write_text("def limits_of(request): return []\n")
    own = (tmp_path / "shop/settings.py").read_text()
    (tmp_path / "shop/settings.py").write_text(own + DJANGO)
    django("check")
    count = "from django.conf import settings; print(len(settings.MIDDLEWARE))"
    seen = subprocess.run([sys.executable, "-B", "-c", count], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert int(seen.stdout) == own.count("Middleware'") + 1


def test_a_header_of_any_bytes_is_limited(newest: Server) -> None:
    with TestClient(run(FASTAPI, newest)["app"]) as client:
        answers = [client.get("/", headers={"x-user": b"\xff\xfe"}) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
