"""What else a server does while the load runs.

Except for `alone`, each scene has a few cases and one rate. A scene prepares the server, acts while the load runs, and
then checks that the event in its name has happened. The million keys that the load does not use are of the command's
own kind: checked keys for our commands, strings for others.
"""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from benches.server import Failed, wire
from benches.server.rows import OURS, check
from benches.server.servers import AOF
from benches.server.waiting import until_they_wait
from benches.server.wire import KEY, encode

MILLION = 1_000_000
# The load does not use keys from this number on.
BESIDE = 1_000_000
ALONE = "alone"
CASES = ["INCR", "RL.CHECK bucket, allowed", "HOLD, then RL.SETTLE", "Lua GCRA"]

# The load does not count its first half second. An act falls into the beginning of the time that counts.
ACT_S = 0.6

WAITERS, SLOTS, JOB_MS = 1_000, 10, 40
LINE = "line"


def nothing(*_):
    return {}


@dataclass(frozen=True)
class Scene:
    name: str
    lines: tuple = ()
    replica: bool = False
    #: Called with the server and the case, when the case's own keys are filled. `after` gets what this returns.
    prepare: Callable = nothing
    #: Called with the server and the case, when the load has started.
    act: Callable = nothing
    #: Called with the server and what `prepare` returned, when the load has ended.
    after: Callable = nothing


def for_million(server, command):
    wire.send(server, wire.for_each_key(command, MILLION, BESIDE))


def fill_million(server, case):
    for_million(server, check("bucket:1/h") if case.family == OURS else ("SET", KEY, "v", "EX", 3600))


def save(server, _):
    time.sleep(ACT_S)
    server.client.bgsave()


def check_save(server, _):
    while server.client.info("persistence")["rdb_bgsave_in_progress"]:
        time.sleep(0.05)
    saved = server.client.info("persistence")
    if saved["rdb_last_bgsave_status"] != "ok" or saved["rdb_last_bgsave_time_sec"] < 0:
        raise Failed(f"BGSAVE: {saved}")


def prepare_expiry(server, case):
    """A million keys that all expire when the load begins to count."""
    began = time.time()
    fill_million(server, case)
    # Setting their expiry takes no longer than filling them.
    ends = time.time() + 1 + 1.5 * (time.time() - began)
    for_million(server, ("PEXPIREAT", KEY, int(ends * 1000)))
    time.sleep(max(ends - ACT_S - time.time(), 0))
    return server.client.info("stats")["expired_keys"]


def check_expiry(server, before):
    if server.client.info("stats")["expired_keys"] == before:
        raise Failed("no key expired")


def prepare_line(server, _):
    """A thousand clients wait for ten slots."""
    for number in range(SLOTS):
        server.client.execute_command("RL.CHECK", LINE, "HOLD", f"first:{number}", "EX", 3600, f"slots:{SLOTS}")
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(WAITERS)]
    for number, client in enumerate(clients):
        client.sendall(encode(("RL.WAIT", LINE, 600_000, "HOLD", number, "PX", JOB_MS, f"slots:{SLOTS}")))
    until_they_wait(server, WAITERS)
    return clients


def start_line(server, _):
    """A slot is free again when its hold lapses: the server serves the line by itself, and no client has to act."""
    time.sleep(ACT_S)
    for number in range(SLOTS):
        server.client.execute_command("RL.SETTLE", LINE, f"first:{number}")


def leave_line(server, clients):
    left = server.client.info("ratelimit")["ratelimit_waiting_clients"]
    for client in clients:
        client.close()
    if left == WAITERS:
        raise Failed("no client in line was served")


def scenes():
    return [
        Scene(ALONE),
        Scene("append-only file and a replica", tuple(AOF), replica=True),
        Scene("during BGSAVE of a million keys", prepare=fill_million, act=save, after=check_save),
        Scene("a million keys expire", prepare=prepare_expiry, after=check_expiry),
        Scene("a line of 1,000 is served", prepare=prepare_line, act=start_line, after=leave_line),
    ]
