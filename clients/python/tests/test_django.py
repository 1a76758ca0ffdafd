"""The middleware of Django, and the throttles of its REST framework."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import django
import pytest
import servers
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.test import Client, RequestFactory
from django.test.utils import override_settings
from django.urls import path
from redis import RedisCluster
from servers import Server

from test_holds import left

RATES = {"anon": "2/min", "user": "bucket:3/m 100/d", "search": "1/hour"}
settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of a test",
    MIDDLEWARE=["rl_limits.django.RateLimitMiddleware"],
    REST_FRAMEWORK={
        "DEFAULT_THROTTLE_RATES": RATES,
        "DEFAULT_AUTHENTICATION_CLASSES": [],
        "UNAUTHENTICATED_USER": None,
    },
)
django.setup()

from rest_framework.decorators import api_view, throttle_classes  # noqa: E402  needs the settings
from rest_framework.response import Response  # noqa: E402
from rest_framework.views import APIView  # noqa: E402

from rl_limits import Limit, RateLimiter, Report  # noqa: E402
from rl_limits.django import RateLimitMiddleware  # noqa: E402
from rl_limits.rest_framework import AnonRateThrottle, ScopedRateThrottle, UserRateThrottle, rules_of  # noqa: E402


def limits_of(request: HttpRequest) -> list[Limit]:
    return [Limit("web:ip", "20/s,name=burst"), Limit("web:ann", "2/m,name=user")] if request.path == "/" else []


def is_free(request: HttpRequest) -> bool:
    return request.path == "/health"


def user_of(request: HttpRequest) -> str:
    return "user:42"


async def later(request: HttpRequest) -> str:
    return "k"


def refuse(request: HttpRequest, report: Report) -> HttpResponse:
    return HttpResponseRedirect("/wait")


def hello(request: HttpRequest) -> HttpResponse:
    report = getattr(request, "rate_limit", None)
    return JsonResponse({"verdict": report and report.verdict}, status=int(request.GET.get("status", 200)))


def throttled(*classes: type) -> object:
    return api_view()(throttle_classes(classes)(lambda request: Response("hello")))


class Search(APIView):
    throttle_classes = [ScopedRateThrottle]
    throttle_scope = "search"

    def get(self, request: HttpRequest) -> Response:
        return Response("found")


urlpatterns = [
    path("", hello),
    path("health", hello),
    path("anon", throttled(AnonRateThrottle)),
    path("user", throttled(UserRateThrottle)),
    path("search", Search.as_view()),
]


def using(server: Server, outage: str = "raise", **more: Any) -> override_settings:
    patient = {"socket_timeout": 5, "socket_connect_timeout": 5, "outage": outage}
    return override_settings(
        RL_LIMITS={"URL": server.url, "OPTIONS": patient, "LIMITS": f"{__name__}.limits_of", **more}
    )


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with using(server):
        yield Client()


def test_requests_pass_until_a_rule_denies(client: Client, server: Server) -> None:
    first = client.get("/")
    assert (first.status_code, first.json()) == (200, {"verdict": "allowed"})
    assert first["RateLimit-Policy"] == '"burst";q=20;w=1, "user";q=2;w=60'
    assert first["RateLimit"] == '"burst";r=19;t=1, "user";r=1;t=60'
    assert "Retry-After" not in first
    client.get("/")
    denied = client.get("/")
    assert (denied.status_code, denied["Content-Type"]) == (429, "application/problem+json")
    assert denied.json()["violated-policies"] == ["user"]
    assert 0 < int(denied["Retry-After"]) <= 60
    assert client.get("/health").json() == {"verdict": None}
    with server.client() as redis:
        redis.execute_command("RL.BLOCK", "web:ann", "EX", 100)
    blocked = client.get("/")
    assert (blocked.status_code, int(blocked["Retry-After"])) == (403, 100)


def test_without_the_server_the_limiter_answers_as_chosen(stopped: Server) -> None:
    with using(stopped, "allow"):
        assert [Client().get("/").status_code for _ in range(4)] == [200] * 4
    with using(stopped, "local"):
        assert [Client().get("/").status_code for _ in range(3)] == [200, 200, 429]
    for outage in ("deny", "raise"):
        with using(stopped, outage):
            refused = Client().get("/")
            assert (refused.status_code, refused["Retry-After"]) == (503, "1")


def test_a_limiter_of_the_application_is_asked(cluster: list[Server], monkeypatch: pytest.MonkeyPatch) -> None:
    client = RedisCluster(host="127.0.0.1", port=cluster[0].port)
    monkeypatch.setitem(globals(), "limiter", RateLimiter(client, separately=True))
    with override_settings(RL_LIMITS={"LIMITER": f"{__name__}.limiter", "LIMITS": f"{__name__}.limits_of"}):
        assert [Client().get("/").status_code for _ in range(3)] == [200, 200, 429]
        assert Client().get("/anon", REMOTE_ADDR="198.51.100.1").status_code == 200
    assert client.exists("web:ip", "web:ann") == 2


def test_rules_alone_limit_each_network(newest: Server) -> None:
    with using(newest, LIMITS="1/m"):
        addresses = ["203.0.113.9", "203.0.113.9", "2001:db8::1", "2001:db8::2", ""]
        codes = [Client().get("/", REMOTE_ADDR=address).status_code for address in addresses]
        assert codes == [200, 429, 200, 429, 200]
    with newest.client() as redis:
        assert sorted(redis.keys()) == ["ip:2001:db8::/64", "ip:203.0.113.9", "ip:unknown"]


def test_settings_choose_key_skip_refusal_and_fields(newest: Server) -> None:
    names = {"KEY": "user_of", "SKIP": "is_free", "REFUSE": "refuse"}
    more = {name: f"{__name__}.{function}" for name, function in names.items()}
    with using(newest, LIMITS=["1/m", "9/d"], HEADERS="legacy", **more):
        assert [Client().get("/health").status_code for _ in range(2)] == [200, 200]
        first = Client().get("/")
        assert [first[f"X-RateLimit-{name}"] for name in ("Limit", "Remaining", "Reset")] == ["1", "0", "60"]
        refused = Client().get("/")
        assert (refused.status_code, refused["Location"]) == (302, "/wait")
    with newest.client() as redis:
        assert redis.keys() == ["user:42"]


@pytest.mark.parametrize("count, left", [("all", 7), ("failed", 8), ("successful", 9)])
def test_requests_count_by_their_answers(newest: Server, count: str, left: int) -> None:
    with using(newest, LIMITS="10/m", COUNT=count, KEY=f"{__name__}.user_of"):
        for status in (200, 404, 500):
            Client().get("/", {"status": status})
    with newest.client() as redis:
        assert redis.execute_command("RL.PEEK", "user:42", "10/m")[2] == left


@pytest.mark.parametrize(
    "rule, seconds", [("5/4s", True), ("window:5/4s", True), ("fixed:5/4s", True), ("bucket:5/h", False)]
)
def test_slow_successes_across_a_boundary_allow_no_extra_tries(newest: Server, rule: str, seconds: bool) -> None:
    go, began = threading.Event(), threading.Semaphore(0)

    def login(request: HttpRequest) -> HttpResponse:
        if "slow" not in request.GET:
            return HttpResponse(status=401)
        began.release()
        go.wait()
        return HttpResponse()

    with using(newest, LIMITS=rule, COUNT="failed", KEY=f"{__name__}.user_of"), ThreadPoolExecutor(4) as threads:
        middleware = RateLimitMiddleware(login)
        slow = [threads.submit(middleware, RequestFactory().get("/?slow=1")) for _ in range(4)]
        for _ in slow:
            began.acquire()
        if seconds:
            servers.until(lambda: left(newest, "user:42", rule) == 5)
        seen = [middleware(RequestFactory().get("/")).status_code for _ in range(5)]
        go.set()
        assert {answer.result().status_code for answer in slow} == {200}
        seen += [middleware(RequestFactory().get("/")).status_code for _ in range(4)]
    assert seen.count(401) == 5


def test_a_view_that_exits_is_settled(newest: Server) -> None:
    def exits(request: HttpRequest) -> HttpResponse:
        raise SystemExit

    with using(newest, LIMITS="5/m", COUNT="successful", KEY=f"{__name__}.user_of"), pytest.raises(SystemExit):
        RateLimitMiddleware(exits)(RequestFactory().get("/"))
    assert left(newest, "user:42", "5/m") == 5


def test_without_a_place_a_request_gets_503_and_nothing_more(newest: Server) -> None:
    options = {"concurrency": 1, "queue_timeout": 0.05, "timeout": 5, "outage": "allow"}
    with using(newest, OPTIONS=options), ThreadPoolExecutor(1) as threads:
        assert Client().get("/").status_code == 200
        with newest.paused():
            first = threads.submit(Client().get, "/")
            time.sleep(0.2)
            for path_ in ("/", "/anon"):
                refused = Client().get(path_)
                assert (refused.status_code, refused["Retry-After"]) == (503, "1")
                assert "RateLimit" not in refused
        assert first.result().status_code == 200


def test_no_client_sees_a_key_a_rule_or_the_servers_text(newest: Server) -> None:
    with newest.client() as redis:
        redis.set("user:42", "of somebody else")
    with using(newest, LIMITS="5/m", KEY=f"{__name__}.user_of"):
        failed = Client(raise_request_exception=False).get("/")
    assert failed.status_code == 500
    assert not [word for word in (b"user:42", b"5/m", b"WRONGTYPE", b"rl_limits") if word in failed.content]


@pytest.mark.parametrize(
    "more, message",
    [
        ({"LIMIT": "5/m"}, "the option 'LIMIT' is unknown, expected one of URL, OPTIONS, LIMITER"),
        ({"OPTIONS": {"outage": "locl"}}, "outage is 'locl', expected one of raise"),
        ({"OPTIONS": {"share": 0.5}}, "'share' is unknown"),
        ({"COUNT": "fialed"}, "count is 'fialed'"),
        ({"HEADERS": "all"}, "headers is 'all'"),
        ({"LIMITS": "5/m", "PREFIX": 129}, "prefix is 129"),
        ({"LIMITS": ["10/s 20/m"]}, "LIMITS has '10/s 20/m'"),
        ({"LIMITS": ""}, "LIMITS is ''"),
        ({"LIMITS": None}, "LIMITS is None"),
        ({"LIMITS": ["5/m", "slots:4"]}, "LIMITS has 'slots:4', expected other rules: slots are held"),
        ({"SKIP": f"{__name__}.RATES"}, "SKIP is .*, expected a function"),
        ({"KEY": f"{__name__}.later", "LIMITS": "5/m"}, "KEY is .* not async"),
        ({"LIMITER": f"{__name__}.hello"}, "LIMITER is .*, expected a RateLimiter"),
    ],
)
def test_settings_are_tested_when_the_application_starts(newest: Server, more: dict[str, Any], message: str) -> None:
    with using(newest, **more), pytest.raises(ImproperlyConfigured, match=message):
        RateLimitMiddleware(hello)


def test_a_rate_that_is_no_rule_is_named(newest: Server) -> None:
    with using(newest), pytest.raises(ImproperlyConfigured, match="DEFAULT_THROTTLE_RATES has 'often'"):
        type("Often", (AnonRateThrottle,), {"rate": "often"})()


def test_settings_that_lack_something_are_named() -> None:
    with override_settings(RL_LIMITS={}), pytest.raises(ImproperlyConfigured, match="'LIMITS'"):
        Client().get("/")


def test_throttles_keep_to_their_rates(client: Client) -> None:
    answers = [client.get("/anon") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 0 < int(answers[2]["Retry-After"]) <= 60
    assert [client.get("/user").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert 0 < int(client.get("/user")["Retry-After"]) <= 20, "a bucket of 3 in a minute"
    assert [client.get("/search").status_code for _ in range(2)] == [200, 429]


def test_throttles_without_the_server(stopped: Server) -> None:
    for outage, codes in (("allow", [200] * 3), ("local", [200, 200, 429]), ("deny", [503] * 3), ("raise", [503] * 3)):
        with using(stopped, outage):
            answers = [Client().get("/anon") for _ in range(3)]
            assert [answer.status_code for answer in answers] == codes
    assert answers[0]["Retry-After"] == "1"


def test_throttles_count_networks(newest: Server) -> None:
    with using(newest):
        addresses = [f"2001:db8::{n}" for n in (1, 2, 3)]
        assert [Client().get("/anon", REMOTE_ADDR=address).status_code for address in addresses] == [200, 200, 429]
    with using(newest, PREFIX=128):
        assert Client().get("/anon", REMOTE_ADDR=addresses[0]).status_code == 200


def test_an_invented_x_forwarded_for_is_no_way_around_a_throttle(newest: Server) -> None:
    def codes(n: int, forwarded: str) -> list[int]:
        return [Client().get("/anon", headers={"x-forwarded-for": forwarded.format(i)}).status_code for i in range(n)]

    with using(newest):
        assert codes(50, "198.51.100.{}") == [200] * 2 + [429] * 48
    with newest.client() as redis:
        redis.flushall()
    with using(newest), override_settings(REST_FRAMEWORK={**settings.REST_FRAMEWORK, "NUM_PROXIES": 1}):
        assert codes(4, "198.51.100.{}, 203.0.113.9") == [200] * 2 + [429] * 2
        assert codes(2, "203.0.113.{}") == [200] * 2, "the address that the proxy has seen"


SETTINGS = """
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS += ["rest_framework"]
RL_LIMITS = {"URL": "%s"}
REST_FRAMEWORK = {
    "DEFAULT_THROTTLE_CLASSES": ["rl_limits.rest_framework.AnonRateThrottle"],
    "DEFAULT_THROTTLE_RATES": {"anon": "2/min"},
    "DEFAULT_AUTHENTICATION_CLASSES": [],
}
"""
URLS = """
from django.urls import path
from rest_framework.response import Response
from rest_framework.views import APIView


class Hello(APIView):
    def get(self, request):
        return Response("hello")


urlpatterns = [path("", Hello.as_view())]
"""
VISIT = """
import django, rest_framework
django.setup()
from django.test import Client, RequestFactory
print(rest_framework.VERSION, *(Client().get("/").status_code for _ in range(3)))
"""
OLDER = servers.ROOT / ".cache/clients-python/older"


@pytest.mark.parametrize("version", ["newest", *sorted(path.name for path in OLDER.glob("djangorestframework==*"))])
def test_a_new_project_starts_with_its_throttles(newest: Server, version: str, tmp_path: Path) -> None:
    paths = [str(OLDER / version), *sys.path] if version != "newest" else sys.path
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "DJANGO_SETTINGS_MODULE": "shop.settings"}

    def run(*words: str) -> str:
        command = [sys.executable, "-B", *words]
        return subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, text=True).stdout

    run("-m", "django", "startproject", "--settings=django.conf.global_settings", "shop", ".")
    with (tmp_path / "shop/settings.py").open("a") as file:
        file.write(SETTINGS % newest.url)
    (tmp_path / "shop/urls.py").write_text(URLS)
    run("manage.py", "check")
    seen, *codes = run("-c", VISIT).split()
    assert codes == ["200", "200", "429"]
    assert version == "newest" or version.endswith(f"=={seen}")


@pytest.mark.parametrize(
    "rate, rules",
    [("5/min", ["log:5/1m"]), ("1/day", ["log:1/1d"]), ("7/s", ["log:7/1s"]), ("5/15m 20/d", ["5/15m", "20/d"])],
)
def test_rates_of_the_framework_are_sliding_logs(rate: str, rules: list[str]) -> None:
    assert rules_of(rate) == rules
