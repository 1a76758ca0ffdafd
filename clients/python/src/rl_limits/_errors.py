"""What an error says of the server: that it is away, that it is set up wrongly, or that this process asks too much."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

LOG = logging.getLogger("rl_limits")


class Saturated(Exception):
    """This process asks for more at once than its connections carry, so no place became free in time. The error says
    nothing of the server: it is no outage, and the option `outage` does not answer it."""


class NotAsked(Exception):
    """The limiter has stopped asking while a command waited for its place."""


# Classes of redis-py and valkey-py by name, because an application may have only one of them. redis-py removes the code
# from errors that have a class.
NO_REPLY = {"ConnectionError", "TimeoutError", "OSError", "BusyLoadingError", "ClusterError", "SlotNotCoveredError"}
NOT_NOW = {"OutOfMemoryError", "ReadOnlyError", "TryAgainError", "MasterDownError", "ClusterDownError"}
#: Most of these are ConnectionErrors, too.
UNKNOWN_CLIENT = {
    "AuthenticationError",
    "AuthorizationError",
    "AuthenticationWrongNumberOfArgsError",
    "ExternalAuthProviderError",
}

CODES = [
    "LOADING",
    "BUSY",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "READONLY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "UNBLOCKED",
]
TEXTS = ("max number of clients", "internal error", "this replica skipped")
CLUSTER_EXCEPTIONS = {"RedisClusterException", "ValkeyClusterException"}
# What errors of CLUSTER_EXCEPTIONS say if the cluster is at fault. Other errors of these classes are faults of the
# application, such as keys in two slots.
AWAY = ("cannot be connected", "slots are not covered", "not agree", "No targets", "doesn't exist in the cluster")

#: What the pools of both libraries say if all of their connections are in use. Not all versions have a class for it.
EXHAUSTED = ("Too many connections", "No connection available")

#: Commands that these clients send. An application may misspell any other.
OWN = r"RL\.(?:M?CHECK|PEEK|WAIT|SETTLE|RENEW|REFUND|RESET|PAUSE|RESUME|SYNC|INFO)"
NO_MODULE = re.compile(rf"unknown command ['`]{OWN}\b|{OWN} command doesn't exist in", re.IGNORECASE)
NO_COMMAND = re.compile(r"unknown command ['`]RL\.|RL\.\w+ command doesn't exist in", re.IGNORECASE)
#: A missing right to a command that is no check says nothing about checks.
NOT_A_CHECK = re.compile(r"run the 'rl\.(?!(?:m?check|peek|wait)')", re.IGNORECASE)
LOAD_THE_MODULE = "load the module: loadmodule libredis_ratelimit.so, see INSTALL.md; or choose engine='script'"
GIVE_THE_PASSWORD = "give the client the password"
GIVE_THE_RIGHTS = "give the user the rights +@ratelimit ~keys, see SECURITY.md"
GIVE_THE_SCRIPTS_RIGHTS = "give the user the rights +eval +evalsha +get +set +del +time ~keys, see clients.md"


def is_outage(error: BaseException) -> bool:
    """Whether the server gave no decision, and may give one later: it is away, or does not limit. A fault of the
    request is no outage: the request would fail again."""
    return is_away(error) or advice(error) is not None


def is_away(error: BaseException) -> bool:
    """Whether no reply came, or the server cannot serve now."""
    classes, text = _classes(error), _text(error)
    if is_exhausted(error) or is_refusal(error):
        return False
    if classes & CLUSTER_EXCEPTIONS and "SlotNotCoveredError" not in classes:
        cause = error.__cause__
        return any(part in text for part in AWAY) and (cause is None or is_away(cause))
    if classes & (NO_REPLY | NOT_NOW):
        return True
    return "ResponseError" in classes and (text.partition(" ")[0] in CODES or text.startswith(TEXTS))


def advice(error: BaseException) -> str | None:
    """What to do about a server that answers but does not limit: it lacks the module, or the client its rights."""
    for one in _reasons(error):
        classes, text = _classes(one), _text(one)
        if classes & UNKNOWN_CLIENT or text.startswith(("NOAUTH", "WRONGPASS")):
            return GIVE_THE_PASSWORD
        if ("NoPermissionError" in classes or text.startswith("NOPERM")) and not NOT_A_CHECK.search(text):
            return GIVE_THE_SCRIPTS_RIGHTS if "run the 'eval" in text else GIVE_THE_RIGHTS
        if NO_MODULE.match(text):
            return LOAD_THE_MODULE
    return None


def is_refusal(error: BaseException) -> bool:
    """Whether the server refuses a command, be it a check or another."""
    if advice(error):
        return True
    reasons = [(_classes(one), _text(one)) for one in _reasons(error)]
    return any(
        "NoPermissionError" in classes or text.startswith("NOPERM") or NO_COMMAND.match(text)
        for classes, text in reasons
    )


def is_exhausted(error: BaseException) -> bool:
    """Whether a pool has no connection left, also if a cluster client names that as the cause."""
    return any(
        "MaxConnectionsError" in _classes(one)
        or ("ConnectionError" in _classes(one) and str(one).startswith(EXHAUSTED))
        for one in _reasons(error)
    )


def is_undecided(error: BaseException) -> bool:
    """Whether the request was right, but got no decision."""
    return isinstance(error, Saturated) or is_outage(error)


def is_answer(error: BaseException) -> bool:
    """Whether the error is a reply: then the server is there."""
    return "ResponseError" in _classes(error)


def has_too_many_holds(error: BaseException) -> bool:
    return is_answer(error) and "in the key already (" in str(error)


def described(error: BaseException) -> str:
    """The error for a log, without a key, a rule or a command, which some texts name."""
    name = type(error).__name__
    tells = _classes(error) & {"ConnectionError", "TimeoutError"} and not is_answer(error)
    return f"{name}: {error}".rstrip(": ") if tells else name


def _reasons(error: BaseException) -> Iterator[BaseException]:
    """The error, and the cause that a cluster client names."""
    yield error
    if _classes(error) & CLUSTER_EXCEPTIONS and (cause := error.__cause__ or error.__context__):
        yield from _reasons(cause)


def _classes(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _text(error: BaseException) -> str:
    return str(error).removeprefix("ERR ")
