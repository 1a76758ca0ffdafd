"""Connections that TLS protects. Of the servers to test, Debian's Redis 7.0 is the one that is built with it."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import servers

from rl_limits import AsyncRateLimiter, RateLimiter, is_outage

CERTIFICATE, KEY = (servers.ROOT / "tests/fixtures/tls" / name for name in ("cert.pem", "key.pem"))
TRUSTED = {"ssl_ca_certs": str(CERTIFICATE)}
TIMEOUTS = {"socket_timeout": 10, "socket_connect_timeout": 10}
#: The certificate is for `localhost`, and no authority has signed it.
DISTRUSTED: list[tuple[str, dict[str, Any]]] = [
    ("localhost", {}),
    ("127.0.0.1", TRUSTED | {"ssl_check_hostname": True}),
]


class Encrypted(NamedTuple):
    server: servers.Server
    port: int

    def url(self, host: str = "localhost") -> str:
        return f"rediss://{host}:{self.port}"


@pytest.fixture(scope="module")
def encrypted() -> Iterator[Encrypted]:
    port = servers.free_port()
    files = "--tls-cert-file", CERTIFICATE, "--tls-key-file", KEY, "--tls-ca-cert-file", CERTIFICATE
    with servers.start("redis-7.0", "--tls-port", port, *files, "--tls-auth-clients", "no") as server:
        yield Encrypted(server, port)


def test_commands_are_encrypted(encrypted: Encrypted) -> None:
    with RateLimiter.from_url(encrypted.url(), **TIMEOUTS, **TRUSTED) as limiter:
        assert limiter.check("a", "3/h").remaining == 2
        with limiter.hold("a", "3/h", ttl=60) as hold:
            assert hold.settle()
        assert limiter.wait("a", "3/h", 1).remaining == 0


async def test_commands_are_encrypted_with_asyncio(encrypted: Encrypted) -> None:
    async with AsyncRateLimiter.from_url(encrypted.url(), timeout=10, **TIMEOUTS, **TRUSTED) as limiter:
        assert (await limiter.check("b", "3/h")).remaining == 2
        async with limiter.hold("b", "3/h", ttl=60) as hold:
            assert await hold.settle()
        assert (await limiter.wait("b", "3/h", 1)).remaining == 0


@pytest.mark.parametrize("host, options", DISTRUSTED)
async def test_a_certificate_that_is_not_trusted_is_an_outage(
    encrypted: Encrypted, host: str, options: dict[str, Any]
) -> None:
    began_s = time.monotonic()
    of_all = TIMEOUTS | options
    with RateLimiter.from_url(encrypted.url(host), outage="allow", **of_all) as limiter:
        assert limiter.check("c", "1/h").source == limiter.wait("c", "1/h", 1).source == "outage"
    with RateLimiter.from_url(encrypted.url(host), **of_all) as limiter, pytest.raises(Exception) as raised:
        limiter.check("c", "1/h")
    assert is_outage(raised.value) and "certificate verify failed" in str(raised.value)
    async with AsyncRateLimiter.from_url(encrypted.url(host), outage="allow", timeout=10, **of_all) as patient:
        assert (await patient.check("c", "1/h")).source == (await patient.wait("c", "1/h", 1)).source == "outage"
    assert time.monotonic() - began_s < TIMEOUTS["socket_timeout"], "no time-out is waited for"
    with encrypted.server.client() as plain:
        assert not plain.exists("c"), "nothing is sent"
