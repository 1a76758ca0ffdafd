"""Laws of section 'is the server there' in a cluster: a node is the primary of a key's slot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import outages
import servers
from drivers import Driver, Limiter
from test_laws import TOLERANCE_S, Asked, asking

TAGS = 60


@pytest.fixture
def nodes() -> Iterator[list[servers.Server]]:
    options = "--cluster-require-full-coverage", "no", "--cluster-node-timeout", 1000
    with servers.start_cluster(servers.NAMES[-1], *options) as nodes:
        yield nodes


def url(node: servers.Server) -> str:
    return node.url.replace("redis:", "redis+cluster:")


def keys_by_node(nodes: list[servers.Server], key: str) -> list[list[str]]:
    """Keys of each of three primaries, by their slots."""
    found: list[list[str]] = [[], [], []]
    with nodes[0].client() as client:
        for n in range(TAGS):
            name = f"{{{key}:{n}}}"
            slot = int(client.execute_command("CLUSTER KEYSLOT", name))
            found[min(slot * 3 // servers.SLOTS, 2)].append(name)
    return found


@contextmanager
def asking_by_node(limiter: Limiter, nodes: list[servers.Server], key: str) -> Iterator[tuple[Asked, Asked]]:
    """Checks of the keys of all primaries but the second, and of its own."""
    first, second, third = keys_by_node(nodes, key)
    with asking(limiter, first + third) as others, asking(limiter, second) as its_own:
        time.sleep(0.5)
        yield others, its_own


def primaries(client: Any) -> list[int]:
    return [primary[1] for _, _, primary, *_ in client.execute_command("CLUSTER SLOTS")]


def test_one_dead_primary_stops_the_limits_of_its_own_keys_alone(
    driver: Driver, nodes: list[servers.Server], key: str
) -> None:
    limiter = driver.limiter(url(nodes[0]), outage="allow")
    with asking_by_node(limiter, nodes, key) as (others, its_own):
        nodes[1].stop()
        dead = time.monotonic()
        time.sleep(4)
    assert others.sources() == {"server"}
    assert its_own.sources(dead + TOLERANCE_S) == {"outage"}
    events = limiter.events("outage")
    assert {event["node"].rpartition(":")[2] for event in events} == {str(nodes[1].port)}
    assert limiter("state")["away"]


def test_one_silent_primary_stops_the_limits_of_its_own_keys_alone(
    driver: Driver, nodes: list[servers.Server], key: str
) -> None:
    limiter = driver.limiter(url(nodes[0]), outage="allow")
    with asking_by_node(limiter, nodes, key) as (others, its_own):
        with nodes[1].paused():
            silent = time.monotonic()
            time.sleep(4)
        back = time.monotonic()
        time.sleep(2)
    assert others.sources() == {"server"}
    assert its_own.sources(silent + 1.5) <= {"outage", "server"}
    assert its_own.first("server", back) - back <= 1.1 + TOLERANCE_S


def test_the_promoted_replica_decides_when_the_map_names_it(driver: Driver, key: str) -> None:
    with outages.cluster(replica=True) as nodes:
        limiter = driver.limiter(url(nodes[0]), outage="allow")
        of_third = keys_by_node(nodes, key)[2]
        with asking(limiter, of_third) as asked:
            time.sleep(0.5)
            nodes[2].stop()
            with nodes[0].client() as client:
                servers.until(lambda: nodes[3].port in primaries(client))
            named = time.monotonic()
            time.sleep(3)
    assert asked.first("server", named) - named <= 1.1 + TOLERANCE_S


def test_a_moved_slot_is_followed(driver: Driver, nodes: list[servers.Server], key: str) -> None:
    limiter = driver.limiter(url(nodes[0]))
    [name, *_] = keys_by_node(nodes, key)[0]
    assert limiter.check(name, "9/d")["remaining"] == 8
    with nodes[0].client() as source, nodes[1].client() as target:
        slot = source.cluster("KEYSLOT", name)
        to = target.cluster("MYID")
        target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source.cluster("MYID"))
        source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", to)
        source.execute_command("MIGRATE", "127.0.0.1", nodes[1].port, name, 0, 5000)
        assert limiter.check(name, "9/d")["remaining"] == 7
        for node in nodes:
            with node.client() as client:
                client.execute_command("CLUSTER SETSLOT", slot, "NODE", to)
    assert limiter.check(name, "9/d")["remaining"] == 6
    assert limiter("state") == {"away": False, "outages": 0}


def test_keys_of_several_nodes_are_checked_one_by_one(driver: Driver, nodes: list[servers.Server], key: str) -> None:
    limiter = driver.limiter(url(nodes[0]), separately=True)
    limits = [[names[0], [f"{3 - n}/d"]] for n, names in enumerate(keys_by_node(nodes, key))]
    assert limiter("check_all", limits=limits)["verdict"] == "allowed"
    report = limiter("check_all", limits=limits)
    assert (report["verdict"], report["key"]) == ("limited", limits[2][0])
    assert [limiter.peek(name, *rules)["remaining"] for name, rules in limits] == [2, 1, 0]
