#!/usr/bin/env python3
"""What a check costs while the server is not there: the figures of docs/operate/outages.md, over all drivers.

Ten callers check one after the other, with the time-out that each package chooses and `outage=allow`, for five seconds,
in which the server fails for two.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parent / "suite"))

import drivers
import outages
import servers
from drivers import Driver
from proxy import Proxy
from test_cluster import keys_by_node, url
from test_laws import Asked, asking

AWAY_S = 2.0


class Scene(NamedTuple):
    url: str
    keys: list[str]
    #: The server fails in the block.
    fails: Callable[[], AbstractContextManager[object]]


@contextmanager
def refused() -> Iterator[Scene]:
    with servers.start() as server:
        proxy = Proxy(server.port)
        yield Scene(proxy.url, ["k"], proxy.refused)
        proxy.close()


@contextmanager
def silent() -> Iterator[Scene]:
    with servers.start() as server:
        yield Scene(server.url, ["k"], server.paused)


@contextmanager
def stall() -> Iterator[Scene]:
    @contextmanager
    def of_300_ms() -> Iterator[None]:
        with server.paused():
            time.sleep(0.3)
        yield

    with servers.start() as server:
        yield Scene(server.url, ["k"], of_300_ms)


@contextmanager
def slow() -> Iterator[Scene]:
    with servers.start() as server:
        proxy = Proxy(server.port)
        yield Scene(proxy.url, ["k"], lambda: proxy.delayed(0.4))
        proxy.close()


@contextmanager
def idle_cut() -> Iterator[Scene]:
    @contextmanager
    def cut() -> Iterator[None]:
        proxy.end()
        yield

    with servers.start() as server:
        proxy = Proxy(server.port)
        yield Scene(proxy.url, ["k"], cut)
        proxy.close()


@contextmanager
def one_of_three() -> Iterator[Scene]:
    @contextmanager
    def dead() -> Iterator[None]:
        nodes[1].stop()
        yield

    with outages.cluster() as nodes:
        for node in nodes:
            with node.client() as client:
                client.config_set("cluster-require-full-coverage", "no")
        yield Scene(url(nodes[0]), [name for names in keys_by_node(nodes, "k") for name in names[:4]], dead)


SCENES = {
    "refused for 2 s": refused,
    "silent for 2 s": silent,
    "stalled for 300 ms": stall,
    "0.4 s late for 2 s": slow,
    "all connections ended": idle_cut,
    "one dead primary of three": one_of_three,
}


def measured(driver: Driver, scene: Scene) -> str:
    limiter = driver.limiter(scene.url, outage="allow", timeout_ms=None)
    with asking(limiter, scene.keys, pause_s=0.005) as asked:
        time.sleep(1)
        began = time.monotonic()
        with scene.fails():
            time.sleep(max(0.0, began + AWAY_S - time.monotonic()))
        back = time.monotonic()
        time.sleep(2)
    return shown(asked, began, back)


def shown(asked: Asked, began: float, back: float) -> str:
    """The slowest answer without the server, and how long after the server was back the last one came."""
    without = [answer for answer in asked.answers if answer.source != "server" and answer.answered_s >= began]
    if not without:
        return "none"
    slowest_ms = max(answer.answered_s - answer.asked_s for answer in without) * 1000
    later_ms = max(0.0, max(answer.answered_s for answer in without) - back) * 1000
    return f"{slowest_ms:.0f}, {later_ms:.0f}"


def main() -> None:
    print(f"| server | {' | '.join(drivers.NAMES)} |\n|{'---|' * (len(drivers.NAMES) + 1)}")
    for name, scene in SCENES.items():
        cells = []
        for stack in drivers.NAMES:
            with drivers.started(stack) as driver, scene() as one:
                cells.append(measured(driver, one))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("RATELIMIT_ONLY", servers.NAMES[-1])
    main()
