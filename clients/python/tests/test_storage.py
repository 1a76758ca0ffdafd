"""What limits' own tests (limits_own.py) leave out: every server, blocks, prefixes, Flask-Limiter and SlowAPI."""

import time
from types import SimpleNamespace

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from flask import Flask
from flask_limiter import Limiter
from limits import RateLimitItemPerMinute
from limits.errors import StorageError
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES
from redis import RedisError
from servers import Server
from slowapi import Limiter as SlowLimiter
from slowapi import _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from valkey import Valkey

from rl_limits import RateLimiter
from rl_limits.storage import RateLimitStorage

LIMIT = RateLimitItemPerMinute(3)


def storage(server: Server, **options: object) -> RateLimitStorage:
    patient = {"socket_timeout": 5, "socket_connect_timeout": 5}
    return storage_from_string(f"ratelimit+{server.url}", **patient, **options)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_methods_of_a_strategy_agree(server: Server, strategy: str) -> None:
    limiter = STRATEGIES[strategy](storage(server))
    for left in (2, 1, 0):
        assert limiter.test(LIMIT, "ann") and limiter.hit(LIMIT, "ann")
        assert limiter.get_window_stats(LIMIT, "ann").remaining == left
    assert not limiter.test(LIMIT, "ann") and not limiter.hit(LIMIT, "ann")
    assert time.time() < limiter.get_window_stats(LIMIT, "ann").reset_time <= time.time() + 60
    assert limiter.hit(LIMIT, "bob")
    limiter.clear(LIMIT, "ann")
    assert limiter.get_window_stats(LIMIT, "ann").remaining == 3


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("end", [(), ("EX", 100)])
def test_an_operators_block_refuses_and_stays(newest: Server, strategy: str, end: tuple[object, ...]) -> None:
    store = storage(newest)
    limiter = STRATEGIES[strategy](store)
    key = f"rl:{LIMIT.key_for('ann')}"
    store.limiter.call("RL.BLOCK", key, *end)
    assert not limiter.test(LIMIT, "ann") and not limiter.hit(LIMIT, "ann")
    stats = limiter.get_window_stats(LIMIT, "ann")
    assert stats.remaining == 0 and time.time() < stats.reset_time < time.time() + 90_000
    limiter.clear(LIMIT, "ann")
    store.reset()
    assert not limiter.hit(LIMIT, "ann")
    store.limiter.call("RL.UNBLOCK", key)
    store.limiter.call("RL.EXEMPT", key)
    assert all(limiter.hit(LIMIT, "ann") for _ in range(5)) and limiter.test(LIMIT, "ann")
    assert limiter.get_window_stats(LIMIT, "ann").remaining == 3


def test_a_fixed_window_begins_with_its_first_hit(newest: Server) -> None:
    store = storage(newest)
    assert (store.get("k"), store.incr("k", 60), store.incr("k", 60, amount=5), store.get("k")) == (0, 1, 6, 6)
    assert store.get_expiry("k") == pytest.approx(time.time() + 60, abs=1)


def test_a_reset_forgets_the_keys_of_its_prefix_alone(server: Server) -> None:
    stores = [storage(server, key_prefix=prefix) for prefix in ("a*", "ab")]
    for store in stores:
        assert store.incr("k", 60) == 1
    with server.client() as client:
        client.set("a*:other", "a key of somebody else")
        assert sorted(client.keys()) == ["a*:k", "a*:other", "ab:k"]
    assert stores[0].reset() == 1
    assert [store.get("k") for store in stores] == [0, 1]


def test_a_storage_reports_its_health_and_its_errors(newest: Server, stopped: Server) -> None:
    assert storage(newest).check() and not storage(stopped).check()
    with pytest.raises(RedisError):
        storage(stopped).incr("k", 60)
    with pytest.raises(StorageError):
        storage(stopped, wrap_exceptions=True).incr("k", 60)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_flask_limiter_works_unmodified(server: Server, strategy: str) -> None:
    app = Flask(__name__)
    how = {"storage_uri": f"ratelimit+{server.url}", "strategy": strategy, "headers_enabled": True}
    Limiter(lambda: "ann", app=app, default_limits=["2 per minute"], **how)
    app.get("/")(lambda: "hello")
    client = app.test_client()
    answers = [client.get("/") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.headers["X-RateLimit-Remaining"] for answer in answers] == ["1", "0", "0"]
    assert 0 < int(answers[2].headers["Retry-After"]) <= 61


def test_slowapi_works_unmodified(server: Server) -> None:
    app = FastAPI()
    limiter = SlowLimiter(lambda: "ann", storage_uri=f"ratelimit+{server.url}", strategy="moving-window")
    app.state = SimpleNamespace(limiter=limiter)
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)

    @app.get("/")
    @limiter.limit("2/minute")
    def hello(request: Request) -> str:
        return "hello"

    client = TestClient(app)
    assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("outage, codes", [("allow", [200] * 3), ("deny", [429] * 3), ("local", [200, 200, 429])])
def test_flask_limiter_obeys_the_option_outage(stopped: Server, strategy: str, outage: str, codes: list[int]) -> None:
    app = Flask(__name__)
    how = {"storage_uri": f"ratelimit+{stopped.url}", "strategy": strategy, "headers_enabled": True}
    options = {"outage": outage, "processes": 2}
    Limiter(lambda: "ann", app=app, default_limits=["4 per minute"], storage_options=options, **how)
    app.get("/")(lambda: "hello")
    client = app.test_client()
    assert [client.get("/").status_code for _ in range(3)] == codes


def test_a_storage_takes_a_limiter_of_the_application(newest: Server) -> None:
    store = RateLimitStorage("ratelimit+redis://", limiter=RateLimiter(Valkey(port=newest.port)))
    assert (store.incr("k", 60), store.get("k")) == (1, 1)
