"""A place in line for a service that is limited: wait, work, settle."""

import contextlib
import os
import sys
import time
from itertools import count
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent.parent / ".cache/python"))

import redis  # noqa: E402  where scripts/fetch.py put it

# How long to wait in line before asking again, at its end.
WAIT_MS = 60_000
# How much longer the client waits for the reply. A reply that takes longer means that the server is gone.
MARGIN_S = 5


def connect(url):
    """A client with one connection, which is for one worker alone: while it waits in line it does nothing else."""
    return redis.Redis.from_url(url, socket_timeout=WAIT_MS / 1000 + MARGIN_S, decode_responses=True)


class Line:
    """The line of all workers for one service, on all machines."""

    def __init__(self, server, key, rules, lease_ms, name):
        self.server = server
        self.key = key
        self.rules = rules
        self.lease = ["PX", lease_ms]
        # Who holds what: RL.INFO shows these ids. Each is used once, so the slot of an attempt that died is not taken
        # for that of the next one.
        self.ids = (f"{name}.{os.getpid()}.{number}" for number in count(1))

    @contextlib.contextmanager
    def place(self):
        """Waits for a slot and a request of the rate, and gives the slot back after the block, also after an error."""
        id = next(self.ids)
        while not self.admits(id):
            pass
        try:
            yield id
        finally:
            # Without a server, or without us, the slot is free when the hold ends.
            with contextlib.suppress(redis.RedisError):
                self.server.execute_command("RL.SETTLE", self.key, id)

    def admits(self, id):
        """Waits for a place. redis-py sends a command again after a lost connection; the id makes that safe."""
        try:
            command = ["RL.WAIT", self.key, WAIT_MS, "HOLD", id, *self.lease]
            verdict, _, _, wait_ms, _ = self.server.execute_command(*command, *self.rules)
        except redis.ResponseError as error:
            # The server became a replica, or the key's slot moved away.
            if not str(error).startswith("UNBLOCKED"):
                raise
            time.sleep(1)
            return False
        if verdict == 1 and wait_ms < 0:
            sys.exit(f"{' '.join(self.rules)}: nothing ever passes")
        if verdict == 2:
            time.sleep(1)  # An operator has blocked the key, which is answered at once.
        return verdict == 0
