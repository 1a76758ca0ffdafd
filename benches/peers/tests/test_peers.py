"""The measures tell known peers apart, on real servers."""

import pytest

from benches.peers import build, rules, waits
from benches.peers.peers import PEERS

SHORT = ["ours log", "redis-cell", "limits fixed"]


@pytest.fixture(scope="module", params=SHORT)
def peer(request):
    build.ready("Python")
    return next(peer for peer in PEERS if peer.key == request.param)


def test_a_denial_by_one_rule_drains_the_other_of_every_peer_but_ours(peer):
    found = rules.measure(peer)
    assert found["short_first"] == pytest.approx(1, abs=0.05)
    assert found["long_first"] == (1 if peer.ours else pytest.approx(0.25, abs=0.2))


def test_only_our_waits_are_neither_too_short_nor_too_long(peer):
    found = waits.measure(peer)
    if peer.ours:
        assert (found["early"], found["late"]) == (0, 0)
    else:
        # redis-cell rounds down to seconds, Redis's TTL to the nearest second
        assert found["early"] > (0.7 if peer.key == "redis-cell" else 0.1)
        assert found["late"] > (-1 if peer.key == "redis-cell" else 0.1)


def test_versions_are_those_that_the_adapters_pin():
    assert all(peer.label.split()[-1][0].isdigit() for peer in PEERS if peer.package or peer.version)
