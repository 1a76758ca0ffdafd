"""Clients of a cluster."""

from itertools import count
from typing import Any

from proxy import Proxy
from redis import RedisCluster
from redis.crc import key_slot
from servers import SLOTS, Server, until

from rl_limits import RateLimiter


def test_a_node_comes_back_beside_one_that_is_silent(cluster: list[Server]) -> None:
    """The client has no time-outs, and the map is asked of the silent node first."""
    silent, back, host = cluster[0], Proxy(cluster[2].port), "127.0.0.1"
    options: Any = {"socket_timeout": None, "socket_connect_timeout": None}
    remapped = {(host, cluster[2].port): (host, back.port)}
    client = RedisCluster(host=host, port=silent.port, address_remap=lambda at: remapped.get(at, at), **options)
    limiter = RateLimiter(client, outage="allow")
    key = next(key for key in map(str, count()) if key_slot(key.encode()) > SLOTS * 2 // 3)
    assert limiter.check(key, "5/m").source == "server"
    with silent.paused():
        with back.refused():
            until(lambda: limiter.check(key, "5/m").source == "outage" and limiter.away)
        until(lambda: not limiter.away)
    assert limiter.check(key, "5/m").source == "server"
    limiter.close()
    back.close()
