"""What one can see: each decision, and errors that name what happened."""

from __future__ import annotations

import pytest

import servers
from drivers import Driver, Failed
from proxy import Proxy

TLS = servers.ROOT / "tests/fixtures/tls"


def test_each_decision_is_told(driver: Driver, proxy: Proxy, key: str) -> None:
    limiter = driver.limiter(proxy.url, outage="allow", remember_denials=10)
    for _ in range(2):
        limiter.check(key, "1/d,name=login")
    limiter.check(key, "1/d,name=login")
    limiter("check_all", limits=[[f"{key}:b", ["9/d,name=a", "0/d,name=b"]]])
    limiter("lease", lease="l", key=f"{key}:l", rules=["9/d"], ttl_ms=2000, most=10)
    limiter("take", lease="l", units=1)
    with proxy.refused():
        limiter.check(f"{key}:c", "9/d")
    told = [event for event in limiter.events("decision")]
    seen = [(event["source"], event["verdict"], event["rule"]) for event in told]
    assert seen[:4] == [
        ("server", "allowed", "login"),
        ("server", "limited", "login"),
        ("denial", "limited", "login"),
        ("server", "limited", "b"),
    ]
    assert [one[:2] for one in seen[-1:]] == [("outage", "allowed")]
    assert all(0 <= event["ms"] < 2000 for event in told)
    assert not any(key in str(event) for event in told)


def test_decisions_of_a_lease_are_told(driver: Driver, server: servers.Server, key: str) -> None:
    limiter = driver.limiter(server.url)
    limiter("lease", lease="l", key=key, rules=["9/d"], ttl_ms=60_000, most=4)
    for _ in range(9):
        limiter("take", lease="l", units=1)
    sources = [event["source"] for event in limiter.events("decision")]
    assert "lease" in sources
    assert set(sources) <= {"lease", "server"}


def test_refused_is_said(shared: Driver, dead: str, key: str) -> None:
    limiter = shared.limiter(dead)
    with pytest.raises(Failed, match=r"(?i)refused") as raised:
        limiter.check(key, "5/s")
    assert raised.value.outage
    limiter.close()


def test_a_time_out_is_said(driver: Driver, own_server: servers.Server, key: str) -> None:
    limiter = driver.limiter(own_server.url)
    limiter.check(key, "5/s")
    with own_server.paused(), pytest.raises(Failed, match=r"(?i)time.?out|1000 ms|timed out") as raised:
        limiter.check(key, "5/s")
    assert raised.value.outage


def test_a_wrong_certificate_is_said(shared: Driver, key: str) -> None:
    port = servers.free_port()
    files = (
        "--tls-cert-file",
        TLS / "cert.pem",
        "--tls-key-file",
        TLS / "key.pem",
        "--tls-ca-cert-file",
        TLS / "cert.pem",
    )
    with servers.start("redis-7.0", "--tls-port", port, *files, "--tls-auth-clients", "no"):
        limiter = shared.limiter(f"rediss://localhost:{port}")
        for _ in range(3):
            with pytest.raises(Failed, match=r"(?i)certificate|self.signed|unknown ?issuer") as raised:
                limiter.check(key, "5/s")
            assert raised.value.outage
        limiter.close()
