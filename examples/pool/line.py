"""A place in line for a service that is limited: wait, work, settle."""

import contextlib
import os
import sys
import time
from itertools import count
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent.parent / ".cache/python"))

import redis  # noqa: E402  where scripts/fetch.py put it

# How long to wait in line before asking again, at the end of the line.
WAIT_MS = 60_000
# How much longer the client waits for a reply. If it takes even longer, the server is gone.
MARGIN_S = 5


def connect(url):
    """A client with one connection, for one worker alone: while it waits in line it can do nothing else."""
    return redis.Redis.from_url(url, socket_timeout=WAIT_MS / 1000 + MARGIN_S, decode_responses=True)


class Line:
    """The line of all workers for one service, on all machines."""

    def __init__(self, server, key, rules, lease_ms, name):
        self.server = server
        self.key = key
        self.rules = rules
        self.lease = ["PX", lease_ms]
        # Who holds what: RL.INFO shows these ids. Each id is used once, so that a new attempt does not take the slot
        # of one that died for its own.
        self.ids = (f"{name}.{os.getpid()}.{number}" for number in count(1))

    @contextlib.contextmanager
    def place(self):
        """Waits for a slot and for the rate, and gives the slot back after the block, even after an error."""
        id = next(self.ids)
        while not self.admits(id):
            pass
        try:
            yield id
        finally:
            # Without a server, or if this worker dies, the slot is free when the hold ends.
            with contextlib.suppress(redis.RedisError):
                self.server.execute_command("RL.SETTLE", self.key, id)

    def admits(self, id):
        """Waits for a place. After a lost connection redis-py sends the command again, which the id makes safe."""
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
            time.sleep(1)  # An operator has blocked the key, so the reply came at once.
        return verdict == 0
