"""Adapters: programs that call a peer as its README shows.

An adapter is started with the name of a peer and the address of its server, and says {"ready": …}. Then it reads calls,
each a line of JSON, makes them one after the other, and answers each with a line:

    {"key": "k", "rules": [[10, 1000]], "at": 12.5}     one request, not before `at` on the system's monotonic clock
    {"ok": true, "wait_ms": 0, "sent": 12.5, "got": 12.5004}    or "error" instead of "ok"; wait_ms null: not announced

    {"key": "k", "keys": 100, "rules": …, "count": 1000}        many requests, in turn of k:0 … k:99;
    {"key": "k", "keys": 100, "rules": …, "seconds": 1, "rate": 625}        with `rate`, each is due at its time
    {"made": 625, "seconds": 1.0, "p50_us": 180, "p99_us": 900}     p50 and p99 of the time since each was due

A rule is a limit and its period in milliseconds.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
from collections import namedtuple

from benches.server import Failed

from . import build

START_S = 60
PATIENCE_S = 300

Hit = namedtuple("Hit", "sent got ok wait_ms error", defaults=(None, None, None))


def end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Adapter:
    def __init__(self, command, environment):
        pipe = subprocess.PIPE
        self.command = command
        log = (build.TARGET / "adapters.log").open("a")
        self.process = subprocess.Popen(
            [*map(str, command)],
            stdin=pipe,
            stdout=pipe,
            stderr=log,
            bufsize=0,
            env={**os.environ, **environment},
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        self.rest = b""

    def ready(self):
        self.answer(START_S)
        return self

    def send(self, *calls):
        self.process.stdin.write(b"".join(json.dumps(call).encode() + b"\n" for call in calls))

    def answer(self, within_s=PATIENCE_S):
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], within_s)[0]:
                raise Failed(f"{self.command}: no answer within {within_s} s")
            read = os.read(self.process.stdout.fileno(), 1 << 16)
            if not read:
                raise Failed(f"{self.command} ended")
            self.rest += read
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def hit(self, key, *rules, at=0.0):
        self.send({"key": key, "rules": rules, "at": at})
        return Hit(**self.answer())

    def many(self, key, *rules, **how):
        self.send({"key": key, "rules": rules, **how})
        return self.answer()

    def stop(self):
        self.process.kill()
        self.process.wait()


def hits(adapters, key, rules, times):
    """Requests of several callers, each at its times, in the order in which they were asked."""
    for adapter, due in zip(adapters, times):
        adapter.send(*({"key": key, "rules": rules, "at": at} for at in due))
    made = [Hit(**adapter.answer()) for adapter, due in zip(adapters, times) for _ in due]
    return sorted(made)
