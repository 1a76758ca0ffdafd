#!/usr/bin/env python3
"""Shows a pool at work in a browser, and gives it more jobs.

    board.py --redis URL --flow FLOW [--flow FLOW ...] [--key KEY] [--port PORT] rule [rule ...]

    GET /state      the limits, the pause, who holds slots, how many workers wait in line, each flow's jobs and share
    POST /jobs      20 more jobs for each flow
    GET /           a page that shows it

It prints its port. See pool.py for the rest.
"""

import argparse
import json
import sys
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / folder) for folder in ("examples/web", "clients/python/src", ".cache/python")]

import redis  # noqa: E402  from .cache/python, where scripts/fetch.py puts it
from pages import left, page  # noqa: E402  from examples/web
from rl_limits import RateLimiter  # noqa: E402  from clients/python

# How many jobs to add, and over how many of the last jobs to show the shares.
JOBS = 20


class Board:
    def __init__(self, options):
        self.server = redis.Redis.from_url(options.redis, protocol=3, decode_responses=True)
        self.limiter = RateLimiter(self.server)
        self.key = options.key
        self.rules = options.rules
        self.flows = options.flow
        self.numbers = count(1)

    def state(self):
        key = self.limiter.call("RL.INFO", self.key) or {"paused_ms": 0}
        flows = [job.rpartition("-")[0] for job in self.server.lrange(f"{self.key}:done", 0, -1)]
        done, last = Counter(flows), Counter(flows[-JOBS:])
        return {
            "limits": left(self.limiter.peek_all(self.key, self.rules)),
            "holds": [f"{hold['id']}, for {hold['ttl_ms'] / 1000:.1f} s" for hold in key.get("next_holds", [])],
            "flows": [
                [flow, self.server.llen(f"{self.key}:{flow}:jobs"), done[flow], last[flow]] for flow in self.flows
            ],
            "paused": f"for {key['paused_ms'] / 1000:.1f} s, {key['pause_reason']}" if key["paused_ms"] else "no",
            "waiting": self.server.info("ratelimit")["ratelimit_waiting_clients"],
        }

    def add_jobs(self):
        for flow in self.flows:
            self.server.rpush(f"{self.key}:{flow}:jobs", *(f"{flow}-extra{next(self.numbers)}" for _ in range(JOBS)))


class Request(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/state":
            return self.send(200, json.dumps(self.server.board.state()).encode(), "application/json")
        file = page("/web/pool.html" if self.path == "/" else self.path)
        self.send(200, *file) if file else self.send(404)

    def do_POST(self):
        if self.path != "/jobs":
            return self.send(404)
        self.server.board.add_jobs()
        self.send(204)

    def send(self, status, content=b"", kind="text/plain"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", len(content))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Logs nothing: the page asks twice a second."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--redis", required=True)
    parser.add_argument("--flow", action="append", required=True)
    parser.add_argument("--key", default="upstream")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("rules", nargs="+")
    options = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Request)
    server.board = Board(options)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
