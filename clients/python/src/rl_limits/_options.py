"""The options of a limiter, and those of the clients that it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from . import _given as given
from ._commands import Rules
from ._events import DecisionEvent, MisconfiguredEvent, OutageEvent

#: What a check answers if the server gives no decision: its error, a pass, a denial, or what a limiter in this process
#: decides.
Mode = Literal["raise", "allow", "deny", "local"]

MODES: tuple[Mode, ...] = ("raise", "allow", "deny", "local")

#: Who decides: the module, or a script, for servers that load no module.
Engine = Literal["module", "script"]

ENGINES: tuple[Engine, ...] = ("module", "script")

#: The time-out of a command, from when it has its place.
TIMEOUT_S = 0.25


class Options(TypedDict, total=False):
    """The options of a limiter."""

    outage: Mode
    """What a check answers if the server gives no decision: `"raise"` its error, `"allow"`, `"deny"`, or `"local"`,
    what a limiter in this process decides. Errors of a wrong request are always raised."""
    processes: int
    """How many processes share each limit while each decides `"local"`: each then has its part, at least one unit."""
    policies: Mapping[str, Rules] | None
    """The rules of each policy for `"local"`."""
    on_outage: Callable[[OutageEvent], object] | None
    """Called when a server goes away, and when it is back; without it a warning is logged."""
    on_misconfigured: Callable[[MisconfiguredEvent], object] | None
    """Called when the server answers but does not limit, at once and then each minute; without it an error is
    logged."""
    on_decision: Callable[[DecisionEvent], object] | None
    """Called after each check that got an answer."""
    separately: bool
    """`check_all` asks key by key, not atomically: in a cluster keys in different slots cannot be decided at once."""
    remember_denials: int
    """How many denials by a rate to remember: the limiter repeats them itself until their waits are over."""
    concurrency: int
    """The most commands to send at once: others wait for a place."""
    engine: Engine
    """Who decides: the `"module"`, or `"script"`, for servers that load no module. Each has its own counts. With the
    script `check_all` asks key by key, as `separately` does; after a denial, refunds give back the newest units.
    A call that needs the module, such as `hold`, is a `ValueError`."""
    queue_timeout: float
    """The seconds to wait for a place before `Saturated` is raised; 0: no command waits."""


class UrlOptions(Options, total=False):
    """The options of `from_url`: those of the limiter, `timeout`, and those of redis-py."""

    timeout: float
    username: str | None
    password: str | None
    credential_provider: Any
    client_name: str | None
    protocol: int | None
    decode_responses: bool
    encoding: str
    encoding_errors: str
    health_check_interval: float
    max_connections: int
    retry: Any
    retry_on_error: Any
    socket_connect_timeout: float | None
    socket_keepalive: bool | None
    socket_keepalive_options: Any
    socket_read_size: int
    socket_timeout: float | None
    ssl_ca_certs: str | None
    ssl_ca_data: str | bytes | None
    ssl_ca_path: str | None
    ssl_cert_reqs: str | None
    ssl_certfile: str | None
    ssl_check_hostname: bool
    ssl_ciphers: str | None
    ssl_keyfile: str | None
    ssl_min_version: Any
    ssl_password: str | None
    # Of a cluster:
    address_remap: Any
    dynamic_startup_nodes: bool
    reinitialize_steps: int
    require_full_coverage: bool


@dataclass(frozen=True)
class Settings:
    """The options, tested."""

    outage: Mode = "raise"
    processes: int = 1
    policies: Mapping[str, Rules] | None = field(default_factory=dict)
    on_outage: Callable[[OutageEvent], object] | None = None
    on_misconfigured: Callable[[MisconfiguredEvent], object] | None = None
    on_decision: Callable[[DecisionEvent], object] | None = None
    separately: bool = False
    remember_denials: int = 0
    concurrency: int = 50
    queue_timeout: float = 5.0
    engine: Engine = "module"

    def __post_init__(self) -> None:
        given.one_of("outage", self.outage, MODES)
        given.whole("processes", self.processes, 1)
        given.mapping("policies", self.policies)
        for name, rules in (self.policies or {}).items():
            given.rules(f"the policy {name!r}", rules)
            given.no_policies(f"the policy {name!r}", rules)
        given.function("on_outage", self.on_outage)
        given.function("on_misconfigured", self.on_misconfigured)
        given.function("on_decision", self.on_decision)
        given.yes_or_no("separately", self.separately)
        given.whole("remember_denials", self.remember_denials, 0)
        given.whole("concurrency", self.concurrency, 1)
        given.seconds("queue_timeout", self.queue_timeout, from_0=True)
        given.one_of("engine", self.engine, ENGINES)


def settings(options: Options) -> Settings:
    given.known(options, Options.__annotations__)
    return Settings(**options)
