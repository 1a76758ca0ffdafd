"""The drivers of the packages, and how the suite speaks with them.

A *driver* is a program of at most 250 lines that makes calls of a package as its user would. It reads calls from its
input and writes results to its output, each a line of JSON. Calls run side by side, a thousand at once; results come
in any order. A driver tests no values and translates no errors: what a package accepts or refuses is tested here.

First it says what it is: `{"driver": "rust", "can": ["cancel"]}`, with those of `cancel`, `memory`, `fork` and
`new_loop` that its language has. A call has an `id`, the name of the `call`, and its arguments:

    {"id": 1, "call": "limiter", "limiter": "a", "url": "redis://127.0.0.1:6379", "options": {"outage": "allow"}}
    {"id": 2, "call": "check", "limiter": "a", "key": "k", "rules": ["bucket:10/s"], "cost": 1}

and gets one result: what the call returned, or the error that it raised. `kind` is the name of the error's class (its
variant in Rust), `outage` what the package's `is_outage` says of it, `report` what a denied hold carries.

    {"id": 2, "result": {"verdict": "allowed", "limit": 10, "remaining": 9, "wait_ms": 0, …}}
    {"id": 3, "error": {"kind": "ValueError", "text": "…", "outage": false}}
    {"id": 4, "cannot": "a key is text"}

`cannot` says that the language's types do not allow the call. Fields have the names of names.json, times are
milliseconds; a field that is absent is not given to the package, so its default holds. A value JSON has not is an
object: `{"is": "nan"}`, `infinity`, `-infinity`, `undefined` (`None`, `null`), `bytes` with `hex`, `object` (`{}`).

    limiter    limiter (its name from now on), url, options as in names.json; redis+cluster:// is a cluster; without
               url, one in the process
    check, peek: key, rules, cost (a number, a range [1, 5], an object of named costs), meta -> a reply
    check_all, check_any: limits (pairs of key and rules), cost, meta, most -> a report
    peek_all   key, rules -> a report
    wait       as check, timeout_ms, flow, weight, priority -> a reply
    enter      hold (its name), key, rules, cost, ttl_ms, refund, own_id (the hold's id), timeout_ms (its wait), flow,
               weight, priority: the block begins -> a report
    leave, hold_settle, hold_refund, lost: hold; the block ends; settled (cost); given back; is it lost? -> -, bool,
               bool, bool
    settle     key, own_id, cost, refund -> bool
    renew      key, own_id, ttl_ms -> bool
    refund     key, units, rules -> number
    reset, resume, unplan: key -> bool
    pause      key, time_ms, reason -> milliseconds
    plan       key, policy, time_ms
    sync       key, remaining, rule -> number
    follow     key, status, headers (pairs), fields (field to rule) -> milliseconds
    lease      lease (its name), key, rules, ttl_ms, most
    take, give_up: lease, units; the lease is closed -> a reply, -
    state      limiter -> {"away": false, "outages": 0}
    close      limiter
    cancel     of: the id of a call under way, whose task is cancelled; its result is an error
    memory     -> the bytes that the program holds, without those of its language's tools, such as a race detector
    fork       calls: the process forks, and the child makes these calls one after the other -> their results
    new_loop   calls: made one after the other in an event loop of their own, in a thread -> their results

The suite closes the limiters and ends the input; the process must then exit by itself. Calls of the user's hooks are
lines, too:

    {"event": "outage", "limiter": "a", "away": true, "node": "127.0.0.1:6379", "error": "…", "answered": 0}
    {"event": "misconfigured", "limiter": "a", "error": "…", "advice": "…", "answered": 1}
    {"event": "decision", "limiter": "a", "source": "server", "verdict": "denied", "rule": "login", "ms": 0.4}
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import servers

#: planted.py tests another tree than this one.
TREE = Path(os.environ.get("CONFORMANCE_TREE", servers.ROOT))
HERE = TREE / "clients/conformance/drivers"
RUST = "target/planted" if TREE != servers.ROOT else "target/clients-rust"
#: How long any call may take.
LATE_S = 30.0


class Stack(NamedTuple):
    command: list[str]
    #: The classes of errors of the caller.
    faults: set[str]


NODE = {"TypeError", "RangeError"}
PYTHON = {"TypeError", "ValueError"}
STACKS = {
    "python-redis-py": Stack([sys.executable, "-B", str(HERE / "python_sync.py")], PYTHON),
    "python-asyncio": Stack([sys.executable, "-B", str(HERE / "python_async.py")], PYTHON),
    "node-ioredis": Stack(["node", "--expose-gc", str(HERE / "node.mjs"), "ioredis"], NODE),
    "node-redis": Stack(["node", "--expose-gc", str(HERE / "node.mjs"), "node-redis"], NODE),
    "rust": Stack([str(servers.ROOT / RUST / "debug/conformance-rust")], {"Misuse"}),
    "go": Stack([str(TREE / "target/conformance/go")], {"Misuse"}),
}
#: The drivers to test: all, or those that DRIVERS names.
NAMES = (os.environ.get("DRIVERS") or " ".join(STACKS)).replace(",", " ").split()


class Failed(Exception):
    """The error that a call raised."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['kind']}: {error['text']}")
        self.kind: str = error["kind"]
        self.text: str = error["text"]
        self.outage: bool = error["outage"]
        self.report: dict[str, Any] | None = error.get("report")


class Cannot(Exception):
    """The language's types do not allow the call."""


class Driver:
    def __init__(self, name: str) -> None:
        self.name, self.stack = name, STACKS[name]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(self.stack.command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._under_way: dict[int, Future[Any]] = {}
        self._events: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.can: set[str] = set(json.loads(self._line() or "{}").get("can", ()))
        threading.Thread(target=self._read, daemon=True).start()

    def start(self, call: str, **arguments: Any) -> Future[Any]:
        """Makes a call."""
        id = next(self._ids)
        future: Future[Any] = Future()
        future.id = id  # type: ignore[attr-defined]
        self._under_way[id] = future
        line = json.dumps({"id": id, "call": call, **arguments})
        with self._lock:
            self.process.stdin.write(line + "\n")  # type: ignore[union-attr]
        return future

    def __call__(self, call: str, **arguments: Any) -> Any:
        return self.start(call, **arguments).result(LATE_S)

    def cancel(self, future: Future[Any]) -> None:
        self("cancel", of=future.id)  # type: ignore[attr-defined]

    def limiter(self, url: str, **options: Any) -> Limiter:
        """A new limiter. Its time-out is a second, which no machine is too slow for."""
        return self._limiter(url=url, **{"timeout_ms": 1000, **options})

    def in_process(self, **policies: list[str]) -> Limiter:
        """A new limiter that asks no server."""
        return self._limiter(policies=policies)

    def _limiter(self, **options: Any) -> Limiter:
        name = f"l{next(self._ids)}"
        given = {option: value for option, value in options.items() if value is not None}
        url = {"url": given.pop("url")} if "url" in given else {}
        self("limiter", limiter=name, **url, options=given)
        return Limiter(self, name)

    def events(self, limiter: str, kind: str) -> list[dict[str, Any]]:
        return [event for event in self._events[limiter] if event["event"] == kind]

    def end(self, within_s: float = 5.0) -> None:
        """Ends the input. The process must exit by itself."""
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait(within_s)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _line(self) -> str:
        return self.process.stdout.readline()  # type: ignore[union-attr]

    def _read(self) -> None:
        while line := self._line():
            said = json.loads(line)
            if "event" in said:
                self._events[said["limiter"]].append(said)
            else:
                self._settle(self._under_way.pop(said["id"]), said)
        for future in list(self._under_way.values()):
            future.set_exception(EOFError(f"the driver {self.name} has ended"))

    @staticmethod
    def _settle(future: Future[Any], said: dict[str, Any]) -> None:
        if "error" in said:
            future.set_exception(Failed(said["error"]))
        elif "cannot" in said:
            future.set_exception(Cannot(said["cannot"]))
        else:
            future.set_result(said.get("result"))


class Limiter:
    """A limiter of a driver. `start` and a call of it are those of the driver."""

    def __init__(self, driver: Driver, name: str) -> None:
        self.driver, self.name = driver, name

    def start(self, call: str, **arguments: Any) -> Future[Any]:
        return self.driver.start(call, limiter=self.name, **arguments)

    def __call__(self, call: str, **arguments: Any) -> Any:
        return self.start(call, **arguments).result(LATE_S)

    def check(self, key: str, *rules: str, **more: Any) -> Any:
        return self("check", key=key, rules=list(rules), **more)

    def peek(self, key: str, *rules: str) -> Any:
        return self("peek", key=key, rules=list(rules))

    def events(self, kind: str) -> list[dict[str, Any]]:
        return self.driver.events(self.name, kind)

    def close(self) -> None:
        self("close")


@contextmanager
def started(name: str) -> Iterator[Driver]:
    driver = Driver(name)
    try:
        yield driver
    finally:
        driver.kill()


def settled(futures: list[Future[Any]]) -> list[Any]:
    """The results, or errors, of calls under way."""

    def of(future: Future[Any]) -> Any:
        try:
            return future.result(LATE_S)
        except (Failed, Cannot) as error:
            return error

    return [of(future) for future in futures]


def sources(futures: list[Future[Any]]) -> set[str]:
    """Who decided."""
    return {one["source"] if isinstance(one, dict) else str(one) for one in settled(futures)}
