"""An app of Celery with limited tasks. They note in the broker that they run."""

import json
import os
import time
from typing import Any

import redis
from celery import Celery, Task

from rl_limits import RateLimiter
from rl_limits.celery import DENIALS, limited

BROKER = os.environ["BROKER"]
#: The server of a limiter that is not the broker.
ELSEWHERE = os.environ.get("ELSEWHERE", BROKER)

app = Celery("celery_app", broker=BROKER, backend=BROKER)
app.conf.broker_transport_options = {
    "visibility_timeout": float(os.environ.get("VISIBLE_S", 60)),
    "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1,
}
app.conf.worker_prefetch_multiplier = 1


def note(task: Task, what: Any) -> None:
    request = task.request
    known = [time.time(), what, request.id, request.retries, (request.headers or {}).get(DENIALS, 0)]
    with redis.Redis.from_url(BROKER) as client:
        client.rpush("notes", json.dumps(known))


@app.task(bind=True)
@limited(lambda tenant, rate: f"bucket:{rate}/s", key=lambda tenant, rate: f"tenant:{tenant}")
def count(self: Task, tenant: str, rate: int) -> None:
    note(self, tenant)


@app.task(bind=True, max_retries=0, autoretry_for=(Exception,))
@limited("2/s", key="double")
def double(self: Task, n: int, *, times: int = 2) -> int:
    note(self, n)
    return times * n


@app.task
@limited("1000/s", key="total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(bind=True, acks_late=True)
@limited(key=lambda slot, seconds: f"slot:{slot}", slots=1, ttl=600)
def hold(self: Task, slot: str, seconds: float) -> None:
    note(self, slot)
    time.sleep(seconds)


@app.task(bind=True, acks_late=True)
@limited(key=lambda slot, seconds: f"slot:{slot}", slots=1, ttl=1)
def renew(self: Task, slot: str, seconds: float) -> None:
    note(self, slot)
    time.sleep(seconds)


@app.task(bind=True)
@limited(key=lambda slot: f"slot:{slot}", slots=1, ttl=600)
def stubborn(self: Task, slot: str) -> None:
    while True:
        try:
            time.sleep(600)
        except Exception as error:
            note(self, type(error).__name__)


@app.task(bind=True, max_retries=1, default_retry_delay=0)
@limited(key="twice", slots=1, ttl=600)
def twice(self: Task) -> int:
    if not self.request.retries:
        self.retry()
    return int(self.request.retries)


@app.task
@limited("1/m", key="minute")
def rarely() -> None:
    pass


@app.task
@limited("1/m", key="never", cost=2)
def never() -> None:
    pass


@app.task(bind=True, max_retries=0, autoretry_for=(Exception,))
@limited("100/s", key="far", limiter=RateLimiter.from_url(ELSEWHERE))
def far(self: Task) -> int:
    return int(self.request.headers[DENIALS])
