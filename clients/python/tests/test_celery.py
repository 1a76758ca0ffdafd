"""Celery with real workers, which fork, on a real server, which is its broker and result backend, too."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import servers
from celery import chord
from celery.exceptions import SoftTimeLimitExceeded, TaskRevokedError, TimeLimitExceeded
from servers import Server, until

from rl_limits import Denied, RateLimiter
from rl_limits.celery import limited

WORKER = ["--pool=prefork", "--loglevel=WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"]

LONG = pytest.mark.skipif(not servers.LONG, reason="`make test-long` runs this")


class Note(NamedTuple):
    at_s: float
    what: Any
    id: str
    retries: int
    denials: int


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    with servers.start() as server:
        os.environ["BROKER"] = server.url
        yield server


@pytest.fixture(scope="module")
def tasks(broker: Server) -> ModuleType:
    return importlib.import_module("celery_app")


@pytest.fixture(scope="module")
def works(broker: Server, tasks: ModuleType) -> Iterator[str]:
    """The queue of a worker."""
    with worker("shared", 2):
        yield "shared"


@contextmanager
def worker(queue: str, processes: int = 1, **environment: object) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that is ready, in a process group of its own."""
    name = f"{time.monotonic_ns()}@worker"
    options = [*WORKER, f"--queues={queue}", f"--concurrency={processes}", f"--hostname={name}"]
    command = [sys.executable, "-B", "-m", "celery", "--quiet", "--app=celery_app", "worker", *options]
    env = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    one = subprocess.Popen(command, env=env, cwd=Path(__file__).parent, start_new_session=True)
    try:
        control = importlib.import_module("celery_app").app.control
        until(lambda: one.poll() is not None or bool(control.ping([name], timeout=0.3)))
        assert one.poll() is None
        yield one
    finally:
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()


def notes(broker: Server, *what: Any) -> list[Note]:
    with broker.client() as client:
        all_notes = [Note(*json.loads(text)) for text in client.lrange("notes", 0, -1)]
    return [note for note in all_notes if note.what in what]


def commands(broker: Server) -> int:
    """How many commands of the module the server has got."""
    with broker.client() as client:
        calls = {name.lower(): one["calls"] for name, one in client.info("commandstats").items()}
    return sum(n for name, n in calls.items() if name.startswith("cmdstat_rl."))


def is_free(broker: Server, slot: str) -> bool:
    with RateLimiter(broker.client()) as limiter:
        return limiter.peek(f"slot:{slot}", "slots:1").remaining == 1


RATES = {"ann": 2, "bob": 3, "eve": 4, "flood": 3}
SECONDS = 5
#: How far a tenant may be from its rate: `make test` may share its machine.
FAR = 0.1 if servers.LONG else 0.5
ASKED = {tenant: 16 * rate for tenant, rate in RATES.items()} | {"flood": 120}


def test_each_tenant_gets_its_rate_from_two_workers(broker: Server, tasks: ModuleType) -> None:
    def is_right(got: Counter[str]) -> bool:
        return all(got[tenant] == pytest.approx(rate * SECONDS, rel=FAR, abs=1) for tenant, rate in RATES.items())

    with worker("tenants", 2), worker("tenants", 2):
        sent = []
        for tenant in sorted(ASKED, key=lambda tenant: -ASKED[tenant]):  # the flood comes first
            task = tasks.count.signature((tenant, RATES[tenant]), queue="tenants")
            sent += [task.apply_async().id for _ in range(ASKED[tenant])]
        # At first as many run at once, and each is looked at. Another load of the machine may disturb some seconds.
        got, late_s = Counter[str](), time.time() + 25
        while not is_right(got) and time.time() < late_s:
            time.sleep(0.5)
            ran = notes(broker, *RATES)
            got = Counter(note.what for note in ran if note.at_s > time.time() - SECONDS)
    print(f"\nCelery, 4 processes, {SECONDS} s\ntenant  asked   rate   ran")
    for tenant, rate in RATES.items():
        print(f"{tenant:7} {ASKED[tenant]:5} {rate:4}/s {got[tenant]:5}")
    assert is_right(got)
    assert {note.retries for note in ran} == {0}, "a denial is no retry"
    assert len({note.id for note in ran}) == len(ran) and {note.id for note in ran} <= {*sent}


def test_denied_tasks_of_a_chord_come_back_as_they_were(broker: Server, tasks: ModuleType, works: str) -> None:
    header = [tasks.double.signature((n,), {"times": 3}, queue=works) for n in range(5)]
    result = chord(header)(tasks.total.signature(queue=works) | tasks.double.signature(queue=works))
    assert result.get(timeout=20) == 60
    ran = notes(broker, *range(5), 30)
    assert {(note.what, note.retries) for note in ran} == {(n, 0) for n in (0, 1, 2, 3, 4, 30)} and len(ran) == 6
    assert sum(note.denials for note in ran) >= 3


@pytest.mark.parametrize("limit, error", [("soft", SoftTimeLimitExceeded), ("hard", TimeLimitExceeded)])
def test_a_slot_is_free_after_a_time_limit(
    broker: Server, tasks: ModuleType, works: str, limit: str, error: type[Exception]
) -> None:
    limits = {"soft_time_limit": 0.5, "time_limit": 30} if limit == "soft" else {"time_limit": 0.5}
    task = tasks.hold if limit == "soft" else tasks.stubborn
    args = (limit, 600) if limit == "soft" else (limit,)
    result = task.apply_async(args, queue=works, **limits)
    until(lambda: not is_free(broker, limit))
    with pytest.raises(error):
        result.get(timeout=20)
    until(lambda: is_free(broker, limit))


def test_a_slot_is_free_after_a_task_was_terminated(broker: Server, tasks: ModuleType, works: str) -> None:
    result = tasks.hold.apply_async(("terminated", 600), queue=works)
    until(lambda: not is_free(broker, "terminated"))
    waits = tasks.hold.apply_async(("terminated", 600), queue=works)
    never_runs = tasks.hold.apply_async(("terminated", 0), queue=works)
    time.sleep(0.3)
    never_runs.revoke()
    waits.revoke()
    result.revoke(terminate=True)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=20)
    until(lambda: is_free(broker, "terminated"))
    for one in (waits, never_runs):
        with pytest.raises(TaskRevokedError):
            one.get(timeout=20)
    assert len(notes(broker, "terminated")) == 1


def test_a_retry_takes_a_new_hold(broker: Server, tasks: ModuleType, works: str) -> None:
    assert tasks.twice.apply_async(queue=works).get(timeout=20) == 1
    assert is_free(broker, "twice")


def test_a_task_that_can_never_run_fails(tasks: ModuleType, works: str) -> None:
    with pytest.raises(Exception, match="no wait helps"):
        tasks.never.apply_async(queue=works).get(timeout=20)


def test_a_killed_workers_tasks_run_again_and_its_slot_lapses(broker: Server, tasks: ModuleType) -> None:
    with worker("killed"):
        ids = {tasks.renew.apply_async(("killed", 1.5), queue="killed").id for _ in range(2)}
        until(lambda: bool(notes(broker, "killed")))
        time.sleep(1.2)
        assert not is_free(broker, "killed"), "a hold is renewed"
    killed_s = time.monotonic()
    until(lambda: is_free(broker, "killed"))
    lapsed_s = time.monotonic() - killed_s
    print(f"\nCelery, worker killed: its slot (ttl 1 s) was free after {lapsed_s:.2f} s")
    assert lapsed_s < 1.5
    with worker("killed", VISIBLE_S=3):
        until(lambda: {note.id for note in notes(broker, "killed")[1:]} == ids)
    assert [note.retries for note in notes(broker, "killed")] == [0, 0, 0]


@LONG
def test_a_countdown_is_at_most_half_of_the_visibility_time_out(tasks: ModuleType) -> None:
    with worker("visible", VISIBLE_S=6):
        tasks.rarely.apply_async(queue="visible").get(timeout=20)
        tasks.rarely.apply_async(queue="visible")
        inspect, scheduled = tasks.app.control.inspect(timeout=0.3), list[dict[str, Any]]()
        until(
            lambda: bool(
                scheduled.extend(task for some in (inspect.scheduled() or {}).values() for task in some) or scheduled
            )
        )
    eta = datetime.fromisoformat(scheduled[0]["eta"])
    assert (eta - datetime.now(UTC)).total_seconds() <= 3


@LONG
def test_a_task_waits_while_the_server_is_away(tasks: ModuleType) -> None:
    with servers.start() as elsewhere, worker("far", ELSEWHERE=elsewhere.url):
        with elsewhere.paused():
            result = tasks.far.apply_async(queue="far")
            time.sleep(1)
        assert result.get(timeout=20) >= 1


def test_idle_workers_ask_nothing(broker: Server, works: str) -> None:
    before = commands(broker)
    time.sleep(2)
    print(f"\nCelery, idle 2 s: {commands(broker) - before} commands of the module")
    assert commands(broker) == before


def test_an_eager_task_is_limited(broker: Server, tasks: ModuleType) -> None:
    assert tasks.hold.apply(("eager", 0)).successful() and is_free(broker, "eager")
    with RateLimiter(broker.client()) as limiter, limiter.hold("slot:eager", "slots:1", ttl=60):
        with pytest.raises(Denied):
            tasks.hold.apply(("eager", 0)).get()
        tasks.app.conf.task_always_eager = True
        assert isinstance(tasks.hold.delay("eager", 0).result, Denied)
        tasks.app.conf.task_always_eager = False
        tasks.hold("eager", 0)  # like a function


def test_a_task_keeps_its_name_and_its_signature(tasks: ModuleType) -> None:
    assert tasks.count.name == "celery_app.count"
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'rate'"):
        tasks.count.delay("ann")


def test_wrong_limits_are_refused(tasks: ModuleType) -> None:
    with pytest.raises(TypeError, match="put it under"):
        limited("5/m", key="k")(tasks.count)
    with pytest.raises(ValueError, match="leaky:5/m"):
        limited("leaky:5/m", key="k")
    with pytest.raises(ValueError, match="at least one rule"):
        limited([], key="k")
    with pytest.raises(ValueError, match="slots is -1"):
        limited(key="k", slots=-1)
