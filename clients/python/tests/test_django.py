"""The middleware of Django, and the throttles of its REST framework."""

from collections.abc import Iterator

import django
import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.test.utils import override_settings
from django.urls import path
from redis import RedisError

from servers import Server

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

from rl_limits import Limit  # noqa: E402
from rl_limits.rest_framework import AnonRateThrottle, ScopedRateThrottle, UserRateThrottle, rules_of  # noqa: E402

seen: list[RedisError] = []


def limits_of(request: HttpRequest) -> list[Limit]:
    return [Limit("web:ip", "20/s,name=burst"), Limit("web:ann", "2/m,name=user")] if request.path == "/" else []


def unanswered(error: RedisError, request: HttpRequest) -> None:
    seen.append(error)


def hello(request: HttpRequest) -> HttpResponse:
    report = getattr(request, "rate_limit", None)
    return JsonResponse({"verdict": report and report.verdict})


def throttled(*classes: type) -> object:
    return api_view()(throttle_classes(classes)(lambda request: Response("hello")))


class Search(APIView):
    throttle_classes = [ScopedRateThrottle]
    throttle_scope = "search"

    def get(self, request: HttpRequest) -> Response:
        return Response("found")


class Open(AnonRateThrottle):
    def on_error(self, error: RedisError) -> bool:
        return True


urlpatterns = [
    path("", hello),
    path("health", hello),
    path("anon", throttled(AnonRateThrottle)),
    path("user", throttled(UserRateThrottle)),
    path("open", throttled(Open)),
    path("search", Search.as_view()),
]


def using(server: Server, **more: object) -> override_settings:
    return override_settings(RL_LIMITS={"URL": server.url, "LIMITS": f"{__name__}.limits_of", **more})


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


def test_without_the_server_requests_fail_or_pass_as_chosen(stopped: Server) -> None:
    with using(stopped), pytest.raises(RedisError):
        Client().get("/")
    with using(stopped, ON_ERROR=f"{__name__}.unanswered"):
        assert Client().get("/").json() == {"verdict": None}
    assert len(seen) == 1


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
    with using(stopped), pytest.raises(RedisError):
        Client().get("/anon")
    with using(stopped):
        assert Client().get("/open").status_code == 200


@pytest.mark.parametrize(
    "rate, rules",
    [("5/min", ["log:5/1m"]), ("1/day", ["log:1/1d"]), ("7/s", ["log:7/1s"]), ("5/15m 20/d", ["5/15m", "20/d"])],
)
def test_rates_of_the_framework_are_sliding_logs(rate: str, rules: list[str]) -> None:
    assert rules_of(rate) == rules
