"""What both drivers of Python share: arguments and results as lines of JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path += [str(ROOT / "clients/python/src"), str(ROOT / ".cache/clients-python")]

from rl_limits import Limit, is_outage  # noqa: E402

SPECIAL = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf, "undefined": None, "object": {}}
#: Arguments that have other names in Python.
NAMES = {"timeout_ms": "timeout", "queue_timeout_ms": "queue_timeout", "ttl_ms": "ttl", "own_id": "id"}
#: What the driver itself reads.
OWN = {"id", "call", "limiter", "hold", "lease", "url"}

OUTPUT = threading.Lock()


def write(line: dict[str, Any]) -> None:
    """Also from a child of `fork`: a line is one write."""
    text = json.dumps(line, default=_plain) + "\n"
    with OUTPUT:
        os.write(1, text.encode())


def _plain(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else repr(value)


def value(sent: Any) -> Any:
    if isinstance(sent, list):
        return [value(one) for one in sent]
    if not isinstance(sent, dict):
        return sent
    if sent.get("is") == "bytes":
        return bytes.fromhex(sent["hex"])
    if "is" in sent:
        return SPECIAL[sent["is"]]
    return {name: value(one) for name, one in sent.items()}


def seconds(ms: Any) -> Any:
    return ms / 1000 if type(ms) in (int, float) else ms


def arguments(call: dict[str, Any]) -> dict[str, Any]:
    given = {}
    for name, sent in call.items():
        if name not in OWN:
            given[NAMES.get(name, name)] = seconds(value(sent)) if name.endswith("_ms") else value(sent)
    if "own_id" in call:
        given["id"] = value(call["own_id"])
    if isinstance(given.get("cost"), list):
        given["cost"] = tuple(given["cost"])
    if "limits" in given:
        given["limits"] = [Limit(*pair) for pair in given["limits"]]
    return given


def options(call: dict[str, Any]) -> dict[str, Any]:
    """The options of a limiter, with hooks that write lines."""

    def hook(event: str) -> Any:
        def tell(told: Any) -> None:
            fields = told._asdict()
            if "error" in fields:
                fields["error"] = str(fields["error"])
            write({"event": event, "limiter": call["limiter"], **fields})

        return tell

    hooks = {f"on_{event}": hook(event) for event in ("outage", "misconfigured", "decision")}
    return {**hooks, **arguments(call.get("options", {}))}


def method(name: str, given: dict[str, Any]) -> tuple[str, list[Any], dict[str, Any]]:
    """A method of the limiter, and its arguments: those that Python's users give by position come first."""
    first = {
        "settle": ["key", "id"],
        "renew": ["key", "id", "ttl"],
        "refund": ["key", "units", "rules"],
        "pause": ["key", "time_ms", "reason"],
        "plan": ["key", "policy", "time_ms"],
        "sync": ["key", "remaining", "rule"],
        "follow": ["key", "status", "headers", "fields"],
        "wait": ["key", "rules", "timeout"],
        "check_all": ["limits"],
        "check_any": ["limits"],
    }.get(name, ["key", "rules"])
    if name == "enter":
        name = "hold"
        if "timeout" in given:
            given["wait"] = given.pop("timeout")
    if "headers" in given:
        given["headers"] = Pairs(given["headers"])
    return name, [given.pop(word) for word in first if word in given], given


class Pairs:
    """Headers, of which two may have one name."""

    def __init__(self, pairs: list[list[str]]) -> None:
        self._pairs = pairs

    def items(self) -> list[list[str]]:
        return self._pairs


def result(answer: Any) -> Any:
    return dataclasses.asdict(answer) if dataclasses.is_dataclass(answer) else answer


def error(raised: BaseException) -> dict[str, Any]:
    said = {"kind": type(raised).__name__, "text": str(raised), "outage": is_outage(raised)}
    report = getattr(raised, "reply", None)
    return {**said, "report": result(report)} if report else said
