#!/usr/bin/env python3
"""A stand-in for a limited service: it answers 429 to requests above its limits, and logs each event.

    upstream.py [--port PORT] [--at-once N] [--requests N] [--period-ms MS] [--pause-ms MS]
                [--stop-every N] [--stop-s S] [--log FILE]

A request is POST /JOB and takes `pause-ms`. The service serves `at-once` requests at the same time, and begins
`requests` in any period. It answers each N-th request with 429, and then wants no more for `stop-s` seconds. It prints
its port.

The log has a line for each event: TIME begin|end|refused|stop|early JOB, with the Unix time in microseconds. `refused`
is a request above the limits, `stop` an N-th request, and `early` a request within `stop-s` seconds after it. Tests
count in this log.
"""

import argparse
import math
import sys
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Limits:
    """What the service allows: the number of running requests, and the times at which the last requests began."""

    def __init__(self, options):
        self.options = options
        self.lock = threading.Lock()
        self.running = 0
        self.begun = deque()
        self.until_stop = self.options.stop_every
        self.stopped_until_us = 0

    def begin(self, job):
        """Returns None if the request may begin, otherwise the seconds until the client may try again."""
        period_us = self.options.period_ms * 1000
        with self.lock:
            now_us = time.time_ns() // 1000
            if now_us < self.stopped_until_us:
                self.write_down(now_us, "early", job)
                return (self.stopped_until_us - now_us) / 1e6
            self.until_stop -= 1
            if self.until_stop == 0:
                self.until_stop = self.options.stop_every
                self.stopped_until_us = now_us + self.options.stop_s * 1_000_000
                self.write_down(now_us, "stop", job)
                return self.options.stop_s
            while self.begun and self.begun[0] <= now_us - period_us:
                self.begun.popleft()
            if self.running >= self.options.at_once or len(self.begun) >= self.options.requests:
                self.write_down(now_us, "refused", job)
                return self.options.period_ms / 1000
            self.running += 1
            self.begun.append(now_us)
            self.write_down(now_us, "begin", job)
            return None

    def end(self, job):
        with self.lock:
            self.running -= 1
            self.write_down(time.time_ns() // 1000, "end", job)

    def write_down(self, time_us, event, job):
        print(time_us, event, job, file=self.options.log, flush=True)


class Request(BaseHTTPRequestHandler):
    def do_POST(self):
        limits = self.server.limits
        job = self.path.lstrip("/")
        retry_s = limits.begin(job)
        if retry_s is not None:
            return self.answer(429, {"Retry-After": str(math.ceil(retry_s))})
        # Works on even if the caller has died: the service does not notice that.
        time.sleep(limits.options.pause_ms / 1000)
        limits.end(job)
        self.answer(200, {})

    def answer(self, status, headers):
        try:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()
        except ConnectionError:
            pass  # The caller is gone.

    def log_message(self, *_):
        """Logs nothing here: the service has its own log."""


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--period-ms", type=int, default=1_000)
    parser.add_argument("--pause-ms", type=int, default=150)
    parser.add_argument("--stop-every", type=int, default=0)
    parser.add_argument("--stop-s", type=int, default=2)
    parser.add_argument("--log", type=argparse.FileType("a"), default=sys.stderr)
    options = parser.parse_args()
    server = Server(("127.0.0.1", options.port), Request)
    server.limits = Limits(options)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
