#!/usr/bin/env python3
"""Starts a server with the module, the rate limit service, Envoy and an application. Shows some requests, and serves
until Ctrl-C.

Called by `make envoy`, which builds and fetches all of them first. With REDIS_URL (redis://...) it starts no server,
but first deletes the keys of the domain `shop` there. Envoy listens on 127.0.0.1:8888, the service on 8080 and 8081.
"""

import contextlib
import http.client
import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent))

from running import serving  # noqa: E402  from examples

SERVICE = ROOT / "target/clients-rust/debug/redis-ratelimit-envoy"
ENVOY = ROOT / ".cache/envoy/envoy/_bin/envoy"


class Application(http.server.BaseHTTPRequestHandler):
    """The application that Envoy protects."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def running(*command, **environment):
    process = subprocess.Popen([*map(str, command)], env={**os.environ, **environment}, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def get(path, user=None):
    """The answer to a request, once Envoy answers."""
    while True:
        try:
            line = http.client.HTTPConnection("127.0.0.1", 8888, timeout=10)
            line.request("GET", path, headers={"X-User": user} if user else {})
            return line.getresponse()
        except ConnectionRefusedError:
            time.sleep(0.1)


def show(path, user=None):
    answer = get(path, user)
    names = ("x-ratelimit-limit", "x-ratelimit-remaining", "retry-after")
    fields = "".join(f"  {name}: {answer.headers[name]}" for name in names if answer.headers[name])
    print(f"GET {path:12} {'X-User: ' + user if user else '':12} {answer.status}{fields}", flush=True)


def main():
    application = http.server.ThreadingHTTPServer(("127.0.0.1", 9000), Application)
    threading.Thread(target=application.serve_forever, daemon=True).start()
    # The time-out in the file is for production. Here the programs share their machine with others.
    options = {"RUNTIME_ROOT": str(HERE), "GRPC_HOST": "127.0.0.1", "HOST": "127.0.0.1", "REDIS_TIMEOUT": "1s"}
    config = (HERE / "envoy.yaml").read_text().replace("timeout: 0.02s", "timeout: 2s")
    with (
        serving("shop|*") as (_, url),
        running(SERVICE, REDIS_URL=url, **options),
        running(ENVOY, "--disable-hot-restart", "--concurrency", "1", "--log-level", "error", "--config-yaml", config),
    ):
        get("/")
        for _ in range(4):
            show("/search?q=a")
        for _ in range(6):
            show("/", "ann")
        print(f"\nAsk http://127.0.0.1:8888/, change {HERE / 'config/shop.yaml'}, or see http://127.0.0.1:8080/metrics.")
        print(f"The server is {url}. Ctrl-C stops all.", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
