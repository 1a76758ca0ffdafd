"""Memory: the growth of used_memory, without the buffers of clients, for each key: for 10,000 keys after one request, or as
many as a peer makes in 20 s, and for 500 at a limit of 20 an hour. And the share of keys left without a time to live."""

import time

from .setting import FEW, Setting

KEYS, FULL = 10_000, 500
#: A peer that takes longer for its keys has fewer, or no figure at the limit.
SECONDS = 20


def measure(peer):
    with Setting(peer) as setting:
        client = setting.server.client
        if client is None:
            return {}
        caller = setting.caller()
        caller.many("warm", FEW, keys=1, count=FEW[0] + 1)
        found = {}
        for name, keys, times, seconds in (("bytes", KEYS, 1, SECONDS), ("bytes_full", FULL, FEW[0], 2 * SECONDS)):
            before = settled(client)
            made = caller.many(name, FEW, keys=keys, count=keys * times, seconds=seconds)["made"]
            grown = settled(client) - before
            found[name] = grown / min(keys, made) if times == 1 or made == keys * times else None
        names = list(client.scan_iter(count=1000))
        with client.pipeline(transaction=False) as pipe:
            for key in names:
                pipe.ttl(key)
            lives = pipe.execute()
        return {**found, "endless": lives.count(-1) / len(lives)}


def used(client):
    info = client.info("memory")
    return info["used_memory"] - info["mem_clients_normal"]


def settled(client):
    """What is used once the server has stopped moving keys between its tables."""
    last = None
    while (now := used(client)) != last:
        last = now
        time.sleep(0.3)
    return now
