"""Celery: limits for a task across all workers, and slots that it holds while it runs.

    @app.task(bind=True, acks_late=True)
    @limited("100/m", key=lambda tenant, url: f"tenant:{tenant}", slots=4)
    def fetch(self, tenant, url): ...

Before the task runs, its worker takes a hold on the key. After a denial it sends the task again, with a countdown and
otherwise as it was: id, retries, links, group, chord, headers. Only then it ends, and `acks_late` acknowledges: no task
is lost in between, though one may run twice.

If all denied tasks of a key came back after their own waits, all but one would come in vain. So a rule `leaky` on the
key gives them turns, at the rate of the rule that denies; slots come back at the rate at which tasks end. One that
comes in vain all the same waits for the next unit, and after three such waits takes another turn.

A worker keeps tasks with a countdown unacknowledged, and the broker delivers them once more when its visibility
time-out is over. So a countdown is at most half of that; then the task may be denied again.
"""

from __future__ import annotations

import functools
import inspect
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NoReturn, TypeVar, cast

from celery import current_task
from celery.exceptions import Ignore

from . import _given as given
from ._commands import Cost, Rules, texts
from ._errors import is_undecided
from ._replies import Report
from .holds import Denied
from .limiter import RateLimiter

Task = TypeVar("Task", bound=Callable[..., Any])

#: The header that counts how often a task was denied.
DENIALS = "rl_limits_denials"
#: For how long a task is supposed to run before one has ended.
RUN_MS = 100.0
#: The first pause of a task while the server gives no decision. Then the pauses double, up to half a minute.
OUTAGE_MS = 1000
#: Publishes until the broker is back: without `acks_late`, the task is nowhere else.
UNTIL_SENT = {"max_retries": None, "interval_start": 0, "interval_step": 0.2, "interval_max": 1}

_of_broker = functools.cache(RateLimiter.from_url)


def limited(
    rules: Rules | Callable[..., Rules] = (),
    *,
    key: str | Callable[..., str],
    slots: int | None = None,
    cost: Cost = 1,
    ttl: float = 30,
    limiter: RateLimiter | None = None,
) -> Callable[[Task], Task]:
    """Limits a task; it stands under `@app.task`. `rules` and `key` may be functions of the task's arguments.

    `slots`: how many tasks of the key may run at once. A slot is free again when its task ends, or `ttl` seconds after
    its process has died; `self.request.hold.lost` is set if that happens too early. Without a `limiter`, the server is
    the app's broker. A denial that no wait ends, as of a cost above the limit, fails the task with `Denied`. So does
    any denial of an eager task, which nobody can send again. A task that is called like a function is not limited.
    """
    if slots is not None:
        given.whole("slots", slots, 0)
    held = () if slots is None else (f"slots:{slots},cost=1",)
    if not callable(rules) and (rules or not held):
        _test(rules)
    run_ms, ended = RUN_MS, 0

    def decorate(task: Task) -> Task:
        if not inspect.isfunction(task):
            raise TypeError(f"limited() got {type(task).__name__}, expected a function: put it under @app.task")

        @functools.wraps(task)
        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal run_ms, ended
            if not current_task or current_task.request.called_directly:
                return task(*args, **kwargs)
            own = args[1:] if args and current_task == args[0] else args
            chosen = (*texts(_test(rules(*own, **kwargs)) if callable(rules) else rules), *held)
            its_key = key(*own, **kwargs) if callable(key) else key
            asked = limiter or _of_broker(current_task.app.conf.broker_url)
            with ExitStack() as stack:
                try:
                    hold = stack.enter_context(asked.hold(its_key, chosen, ttl=ttl, cost=cost))
                except Exception as error:
                    if not isinstance(error, Denied) and not is_undecided(error):
                        raise
                    _put_back(asked, its_key, error, run_ms)
                current_task.request.hold, began_s = hold, time.monotonic()
                try:
                    return task(*args, **kwargs)
                finally:
                    ended += 1
                    run_ms += (1000 * (time.monotonic() - began_s) - run_ms) / min(ended, 8)

        run.__signature__ = inspect.signature(task)  # type: ignore[attr-defined]  # Celery tests arguments by it
        return cast(Task, run)

    return decorate


def _test(rules: Any) -> Rules:
    given.rules("limited()", rules)
    if wrong := [text for text in texts(rules) if text.startswith("leaky:")]:
        raise ValueError(f"limited() has {wrong[0]!r}, expected other rules: a task would wait in a worker")
    return rules  # type: ignore[no-any-return]


def _put_back(asked: RateLimiter, key: str, error: Exception, run_ms: float) -> NoReturn:
    """Sends the task again, as late as its denial says."""
    request, report = current_task.request, error.reply if isinstance(error, Denied) else None
    if request.is_eager or (report and report.wait_ms < 0):
        raise error
    headers = request.headers or {}
    denials = int(headers.get(DENIALS, 0))
    # Celery's own default is an hour.
    most_s = (current_task.app.conf.broker_transport_options or {}).get("visibility_timeout", 3600) / 2
    countdown = min(_pause_ms(asked, key, report, denials, run_ms) / 1000, most_s)
    again = current_task.signature_from_request(countdown=countdown, headers={**headers, DENIALS: denials + 1})
    again.apply_async(retry=True, retry_policy=UNTIL_SENT)
    raise Ignore from error


def _pause_ms(asked: RateLimiter, key: str, report: Report | None, denials: int, run_ms: float) -> float:
    if report is None or report.source == "outage":
        return OUTAGE_MS * 2.0 ** min(denials, 5)
    denying = [rule for rule in report.rules if rule.denies and not rule.shadow]
    if not denying:  # a block or a pause
        return report.wait_ms
    waits_ms = [rule.wait_ms if rule.period_ms else min(rule.wait_ms, run_ms) for rule in denying]
    if denials % 4:
        return max(waits_ms)
    slowest = max(denying, key=lambda rule: (rule.period_ms or run_ms) * rule.cost / rule.quota)
    # Some turns come too late for their units, so there are a tenth more turns than units.
    turns = f"leaky:{slowest.quota}/{math.ceil((slowest.period_ms or run_ms) * 0.9)}ms,queue=1000000,name=queue-turns"
    try:
        turn_ms = asked.check(key, turns, cost=slowest.cost).wait_ms
    except Exception as error:
        if not is_undecided(error):
            raise
        return max(waits_ms)
    return max(*waits_ms, turn_ms if slowest.period_ms else min(turn_ms, slowest.wait_ms))
