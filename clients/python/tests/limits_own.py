"""A plugin of pytest: runs the tests of the package `limits` on the storages of this package.

    pytest -p limits_own --noconftest ...   in a folder with the sources of `limits`

Each process starts a server and a cluster.
"""

import atexit
import re
from contextlib import ExitStack

import pytest
import servers
from tests import utils

from rl_limits.storage import AsyncRateLimitStorage, RateLimitStorage

# Why some tests do not apply. All others run.
DESELECTED = {
    r"test_sliding_window_counter_previous_window": "limits rounds the weighted count down, and admits a unit too "
    "many; the server does not",
    r"TestAsyncSlidingWindow::test_sliding_window_counter_stats": "fails in the last seconds of a minute, with any "
    "storage whose windows follow the clock",
    r"TestAsyncConcurrency.*\[cluster\]": "redis-py 8.1 sometimes closes connections that it is opening when a hundred "
    "tasks begin at once with a new client of a cluster (AttributeError in redis.asyncio.connection)",
}

stack = ExitStack()
atexit.register(stack.close)
OPTIONS = ["--ratelimit.max-log-entries", 1_000_000]


def start() -> tuple[dict, dict]:
    """Parameters for each storage, as `tests.utils` has them."""
    single = stack.enter_context(servers.start(servers.NAMES[-1], *OPTIONS))
    first, *_ = stack.enter_context(servers.start_cluster(servers.NAMES[-1], *OPTIONS))
    uris = {
        "single": f"ratelimit+redis://127.0.0.1:{single.port}",
        "cluster": f"ratelimit+redis+cluster://127.0.0.1:{first.port}",
    }
    # These tests keep the machine so busy that an application's usual time-outs would be too short.
    patient = {"socket_timeout": 5, "socket_connect_timeout": 5}
    sync = {name: pytest.param(uri, patient, None, id=name) for name, uri in uris.items()}
    more = {**patient, "timeout": 5}
    return sync, {name: pytest.param(f"async+{uri}", more, None, id=name) for name, uri in uris.items()}


def pytest_configure(config: pytest.Config) -> None:
    for mark in ("unit", "integration", "memory", "flaky"):
        config.addinivalue_line("markers", f"{mark}: of limits' own tests")
    if config.option.collectonly or hasattr(config, "workerinput") or not config.option.numprocesses:
        use(*start())


def use(sync: dict, aio: dict) -> None:
    utils.ALL_STORAGES, utils.ALL_STORAGES_ASYNC = sync, aio
    kinds = ("all_storage", "moving_window_storage", "sliding_window_counter_storage")
    for prefix, storages in (("", sync), ("async_", aio)):
        for kind in kinds:
            setattr(utils, prefix + kind, pytest.mark.parametrize("uri, args, fixture", storages.values()))


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> None:
    """Gives `TestConcreteStorages` our storages."""
    if name != "TestConcreteStorages":
        return
    aio = "aio" in collector.path.parts
    storages, kind = (
        (utils.ALL_STORAGES_ASYNC, AsyncRateLimitStorage) if aio else (utils.ALL_STORAGES, RateLimitStorage)
    )
    ours = [pytest.param(*param.values[:2], kind, None, id=param.id) for param in storages.values()]
    marks = [mark for mark in obj.pytestmark if mark.name != "parametrize"]
    obj.pytestmark = [*marks, pytest.mark.parametrize("uri, args, expected_instance, fixture", ours).mark]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def deselected(item: pytest.Item) -> bool:
        return any(re.search(name, item.nodeid) for name in DESELECTED)

    config.hook.pytest_deselected(items=[item for item in items if deselected(item)])
    items[:] = [item for item in items if not deselected(item)]


@pytest.fixture(autouse=True)
def _empty() -> None:
    for param in utils.ALL_STORAGES.values():
        RateLimitStorage(param.values[0]).limiter.client.flushall()
