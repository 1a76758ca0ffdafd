"""What an error says of the server: that it is away, that it is set up wrongly, or that this process asks too much."""

from __future__ import annotations

import logging
import re

LOG = logging.getLogger("rl_limits")


class Saturated(Exception):
    """This process asks for more at once than its connections carry, so no place became free in time. The error says
    nothing of the server: it is no outage, and the option `outage` does not answer it."""


class UnreadableReply(Exception):
    """The reply does not have the shape of the command's replies: another program answers, or another version."""

    def __init__(self, reply: object) -> None:
        super().__init__(f"unreadable reply {str(reply)[:100]!r}")


# Classes of redis-py and valkey-py by name, because an application may have only one of them. redis-py removes the code
# from errors that have a class.
NO_REPLY = {"ConnectionError", "TimeoutError", "OSError", "ClusterError", "SlotNotCoveredError"}
NOT_NOW = {"OutOfMemoryError", "ReadOnlyError", "TryAgainError", "MasterDownError", "ClusterDownError"}
LOADING = "BusyLoadingError"
#: Errors that send the next connection to another server: a replica answered.
STALE = {"ReadOnlyError", "MasterDownError"}
#: Most of these are ConnectionErrors, too.
UNKNOWN_CLIENT = {
    "AuthenticationError",
    "AuthorizationError",
    "AuthenticationWrongNumberOfArgsError",
    "ExternalAuthProviderError",
}
#: Classes of errors that the server sent. Some are ConnectionErrors, too.
REPLIES = {"ResponseError", LOADING, *UNKNOWN_CLIENT}
#: What a parser raises about bytes that are no reply.
GARBLED = {"InvalidResponse", "ProtocolError"}

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

#: Commands that these clients send. An application may misspell any other.
OWN = r"RL\.(?:M?CHECK|PEEK|WAIT|SETTLE|RENEW|REFUND|RESET|PAUSE|RESUME|SYNC|INFO)"
NO_MODULE = re.compile(rf"unknown command ['`]{OWN}\b", re.IGNORECASE)
#: A missing right to a command that is no check says nothing about checks.
NOT_A_CHECK = re.compile(r"run the 'rl\.(?!(?:m?check|peek|wait)')", re.IGNORECASE)
LOAD_THE_MODULE = "load the module: loadmodule libredis_ratelimit.so, see INSTALL.md; or choose engine='script'"
GIVE_THE_PASSWORD = "give the client the password"
GIVE_THE_RIGHTS = "give the user the rights +@ratelimit ~keys, see SECURITY.md"
GIVE_THE_SCRIPTS_RIGHTS = "give the user the rights +eval +evalsha +get +set +del +time ~keys, see clients.md"
ASK_THE_MODULE = "ask a server with this module: the replies are those of another program, or of another version"


def is_outage(error: BaseException) -> bool:
    """Whether the server gave no decision, and may give one later: it is away, or does not limit. A fault of the
    request is no outage: the request would fail again."""
    return is_away(error) or advice(error) is not None


def is_away(error: BaseException) -> bool:
    """Whether no reply came, or the server cannot serve now."""
    classes, text = _classes(error), _text(error)
    if advice(error):
        return False
    if classes & NO_REPLY or classes & NOT_NOW:
        return True
    return "ResponseError" in classes and (text.partition(" ")[0] in CODES or text.startswith(TEXTS))


def advice(error: BaseException) -> str | None:
    """What to do about a server that answers but does not limit: it lacks the module, or the client its rights."""
    if isinstance(error, UnreadableReply):
        return ASK_THE_MODULE
    classes, text = _classes(error), _text(error)
    if classes & UNKNOWN_CLIENT or text.startswith(("NOAUTH", "WRONGPASS")):
        return GIVE_THE_PASSWORD
    if ("NoPermissionError" in classes or text.startswith("NOPERM")) and not NOT_A_CHECK.search(text):
        return GIVE_THE_SCRIPTS_RIGHTS if "run the 'eval" in text else GIVE_THE_RIGHTS
    return LOAD_THE_MODULE if NO_MODULE.match(text) else None


def is_undecided(error: BaseException) -> bool:
    """Whether the request was right, but got no decision."""
    return isinstance(error, Saturated) or is_outage(error)


def is_answer(error: BaseException) -> bool:
    """Whether the error is a reply of the server."""
    return not _classes(error).isdisjoint(REPLIES)


def is_in_order(error: BaseException) -> bool:
    """Whether the error is a reply after which the library goes on using the connection."""
    return "ResponseError" in (classes := _classes(error)) and "ConnectionError" not in classes


def is_lost(error: BaseException) -> bool:
    """Whether no reply came."""
    return not is_answer(error) and not _classes(error).isdisjoint(NO_REPLY)


def is_garbled(error: BaseException) -> bool:
    return not _classes(error).isdisjoint(GARBLED)


def is_late(error: BaseException) -> bool:
    return "TimeoutError" in _classes(error)


def is_stale(error: BaseException) -> bool:
    return not _classes(error).isdisjoint(STALE) or _text(error).startswith(("READONLY", "MASTERDOWN"))


def has_too_many_holds(error: BaseException) -> bool:
    return is_answer(error) and "in the key already (" in str(error)


def described(error: BaseException) -> str:
    """The error for a log, without a key, a rule or a command, which some texts name."""
    name = type(error).__name__
    tells = _classes(error) & {"ConnectionError", "TimeoutError"} and not is_answer(error)
    return f"{name}: {error}".rstrip(": ") if tells else name


def _classes(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _text(error: BaseException) -> str:
    return str(error).removeprefix("ERR ")
