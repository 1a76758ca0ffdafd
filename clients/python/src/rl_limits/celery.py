"""Celery: limits for a task across all workers, and slots that it holds while it runs.

    @app.task(bind=True, acks_late=True)
    @limited("100/m", key=lambda tenant, url: f"tenant:{tenant}", slots=4)
    def fetch(self, tenant, url): ...

Before the task runs, its worker takes a hold on the key. After a denial it sends the task again, with a countdown and
otherwise as it was: id, retries, links, group, chord, headers. Only then it ends, and `acks_late` acknowledges: no task
is lost in between, though one may run twice.

If all denied tasks of a key came back after their own waits, all but one would come in vain. So a rule `leaky` on the
key gives them turns, at the rate of the rule that denies. One that comes in vain all the same waits for the next unit,
and after that takes another turn.

A worker keeps tasks with a countdown unacknowledged, and the broker delivers them once more when its visibility
time-out is over. So a countdown is at most half of that; then the task may be denied again.
"""

from __future__ import annotations

import functools
import inspect
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
#: The first pause of a task that waits for a slot, which may become free long before it lapses. Then the pauses double.
SLOT_MS = 250
#: The first and the longest pause of a task while the server gives no decision.
OUTAGE_MS, LONGEST_OUTAGE_MS = 1000, 30_000
#: What Celery takes for the visibility time-out of Redis.
VISIBLE_S = 3600
#: Publishes until the broker is back: without `acks_late`, the task is nowhere else.
UNTIL_SENT = {"max_retries": None, "interval_start": 0, "interval_step": 0.2, "interval_max": 1}
#: The longest line of denied tasks.
MOST_TURNS = 1_000_000

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

    def decorate(task: Task) -> Task:
        if not inspect.isfunction(task):
            raise TypeError(f"limited() got {type(task).__name__}, expected a function: put it under @app.task")

        @functools.wraps(task)
        def run(*args: Any, **kwargs: Any) -> Any:
            if not current_task or current_task.request.called_directly:
                return task(*args, **kwargs)
            own = args[1:] if args and current_task == args[0] else args
            chosen = (*texts(_test(rules(*own, **kwargs)) if callable(rules) else rules), *held)
            its_key = key(*own, **kwargs) if callable(key) else key
            asked = limiter or _of_broker(current_task.app.conf.broker_url)
            with ExitStack() as stack:
                try:
                    hold = stack.enter_context(asked.hold(its_key, chosen, ttl=ttl, cost=cost))
                except Denied as denied:
                    _put_back(asked, its_key, denied.reply, denied)
                except Exception as error:
                    if not is_undecided(error):
                        raise
                    _put_back(asked, its_key, None, error)
                current_task.request.hold = hold
                return task(*args, **kwargs)

        run.__signature__ = inspect.signature(task)  # type: ignore[attr-defined]  # Celery tests arguments by it
        return cast(Task, run)

    return decorate


def _test(rules: Any) -> Rules:
    given.rules("limited()", rules)
    for text in texts(rules):
        if text.startswith("leaky:"):
            raise ValueError(
                f"limited() has {text!r}, expected other rules: a task would wait for its turn in a worker"
            )
    return rules  # type: ignore[no-any-return]


def _put_back(asked: RateLimiter, key: str, report: Report | None, error: Exception) -> NoReturn:
    """Sends the task again, as late as its denial says."""
    request, conf = current_task.request, current_task.app.conf
    if request.is_eager or (report and report.wait_ms < 0):
        raise error
    headers = request.headers or {}
    denials = int(headers.get(DENIALS, 0))
    most_s = (conf.broker_transport_options or {}).get("visibility_timeout", VISIBLE_S) / 2
    again = current_task.signature_from_request(
        countdown=min(_pause_ms(asked, key, report, denials) / 1000, most_s), headers={**headers, DENIALS: denials + 1}
    )
    again.apply_async(retry=True, retry_policy=UNTIL_SENT)
    raise Ignore from error


def _pause_ms(asked: RateLimiter, key: str, report: Report | None, denials: int) -> float:
    if report is None or report.source == "outage":
        return min(OUTAGE_MS * 2.0**denials, LONGEST_OUTAGE_MS)
    denying = [rule for rule in report.rules if rule.denies and not rule.shadow]
    if not denying:  # a block or a pause
        return report.wait_ms
    rates = [rule for rule in denying if rule.period_ms]
    slots_ms = min(SLOT_MS * 2.0**denials, max((rule.wait_ms for rule in denying if not rule.period_ms), default=0))
    wait_ms = max([slots_ms, *(rule.wait_ms for rule in rates)])
    if not rates or denials % 2:
        return wait_ms
    slowest = max(rates, key=lambda rule: rule.period_ms * rule.cost / rule.quota)
    turns = f"leaky:{slowest.quota}/{slowest.period_ms * 9 // 10 or 1}ms,queue={MOST_TURNS},name=turns"
    try:
        return max(wait_ms, asked.check(key, turns, cost=slowest.cost).wait_ms)
    except Exception as error:
        if not is_undecided(error):
            raise
        return wait_ms
