#!/usr/bin/env python3
"""Eight outages, and what users of three clients get: 50 requests a second, 2 s before, 5 s during, 4 s after each.

    make faulty && clients/rehearsal/rehearse.py [--only down] [--outage local] [--server valkey-9.1]

Each client runs as a process that sends at fixed times, whether answers come or not, and prints each answer as a line.
The rule allows all requests. So any other answer is an error, or a decision that the client made without the server.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

CLIENTS = Path(__file__).resolve().parents[1]
ROOT = CLIENTS.parent
sys.path[:0] = [str(ROOT / ".cache/clients-python"), str(CLIENTS / "python/src"), str(CLIENTS / "conformance/suite")]

import servers  # noqa: E402
from redis import Redis  # noqa: E402
from redis.backoff import NoBackoff  # noqa: E402
from redis.retry import Retry  # noqa: E402

BEFORE_S, DURING_S, AFTER_S = 2, 5, 4
#: Keys of the server that loads: about six seconds at 2 ms a key.
KEYS = {f"key:{n}": "x" * 1024 for n in range(3000)}


class Node:
    """A server that can be started again on its port, with or without the module."""

    def __init__(self, name: str, folder: str) -> None:
        self.name, self.folder, self.port = name, folder, servers.free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: object, module: bool = True, ready: Callable[[Node], bool] | None = None) -> None:
        words = ["--port", self.port, "--bind", "127.0.0.1", "--dir", self.folder, "--save", "", *options]
        loaded = ["--loadmodule", str(servers.MODULE)] if module else []
        command = [servers.SERVERS / self.name / "server", *map(str, words), *loaded]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        servers.until(lambda: (ready or servers.answers)(self))

    def client(self, password: str | None = None) -> Redis:
        return Redis(port=self.port, password=password, retry=Retry(NoBackoff(), 0))

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()

    def say(self, *words: object, password: str | None = None) -> None:
        with self.client(password) as client:
            client.execute_command(*words)

    def signal(self, number: int) -> None:
        assert self.process
        self.process.send_signal(number)


class Scene(NamedTuple):
    begin: Callable[[], object]
    end: Callable[[], object]
    url: str


@contextmanager
def one_server(name: str, outage: str) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="ratelimit-") as folder:
        node = Node(name, folder)
        node.start()
        if outage == "loading":
            with node.client() as client:
                client.mset(KEYS)
                client.save()
        try:
            yield Scene(*ONE_SERVER[outage](node), f"redis://127.0.0.1:{node.port}")
        finally:
            node.stop()


def down(node: Node) -> tuple[Callable[[], object], Callable[[], object]]:
    return node.stop, node.start


def hangs(node: Node) -> tuple[Callable[[], object], Callable[[], object]]:
    return lambda: node.signal(signal.SIGSTOP), lambda: node.signal(signal.SIGCONT)


def loading(node: Node) -> tuple[Callable[[], object], Callable[[], object]]:
    def restart() -> None:
        node.stop()
        slow = ["--key-load-delay", 2_000, "--loading-process-events-interval-bytes", 1024]
        node.start(*slow, ready=servers.loads)

    return restart, lambda: servers.until(lambda: servers.answers(node))


def out_of_memory(node: Node) -> tuple[Callable[[], object], Callable[[], object]]:
    return lambda: node.say("CONFIG", "SET", "maxmemory", 1), lambda: node.say("CONFIG", "SET", "maxmemory", 0)


def failed_over(node: Node) -> tuple[Callable[[], object], Callable[[], object]]:
    return lambda: node.say("REPLICAOF", "127.0.0.1", servers.free_port()), lambda: node.say("REPLICAOF", "NO", "ONE")


def password_changed(node: Node) -> tuple[Callable[[], object], Callable[[], object]]:
    def change() -> None:
        node.say("CONFIG", "SET", "requirepass", "secret")
        node.say("CLIENT", "KILL", "TYPE", "normal", password="secret")

    return change, lambda: node.say("CONFIG", "SET", "requirepass", "", password="secret")


def without_module(node: Node) -> tuple[Callable[[], object], Callable[[], object]]:
    def restart(*, module: bool) -> None:
        node.stop()
        node.start(module=module)

    return lambda: restart(module=False), lambda: restart(module=True)


@contextmanager
def without_quorum(name: str, _outage: str) -> Iterator[Scene]:
    """Two of three primaries hang, and come back."""
    with ExitStack() as stack:
        nodes = stack.enter_context(servers.start_cluster(name, "--cluster-node-timeout", 500))

        def send(number: int) -> None:
            for node in nodes[1:]:
                node.process.send_signal(number)

        stack.callback(send, signal.SIGCONT)
        url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
        yield Scene(lambda: send(signal.SIGSTOP), lambda: send(signal.SIGCONT), url)


ONE_SERVER = {
    "down": down,
    "hangs": hangs,
    "loading": loading,
    "out of memory": out_of_memory,
    "failed over": failed_over,
    "password changed": password_changed,
    "without the module": without_module,
}
SCENES = {**dict.fromkeys(ONE_SERVER, one_server), "cluster without quorum": without_quorum}

ASKS = {
    "Python": [sys.executable, "-B", str(CLIENTS / "rehearsal/ask.py")],
    "Node.js": ["node", str(CLIENTS / "rehearsal/ask.js")],
    "Rust": [str(ROOT / "target/clients-rust/release/examples/rehearse")],
}


class Line(NamedTuple):
    """An answer: when the request was sent, how long the answer took (both in seconds), and what the answer was."""

    at_s: float
    took_s: float
    what: str


def rehearse(language: str, scene: Scene, outage: str) -> str:
    path = f"{ROOT / '.cache/clients-node/bin'}:{os.environ['PATH']}"
    paths = f"{ROOT / '.cache/clients-python'}:{CLIENTS / 'python/src'}"
    total_s = BEFORE_S + DURING_S + AFTER_S
    command = [*ASKS[language], scene.url, outage, str(total_s)]
    environment = {**os.environ, "PATH": path, "PYTHONPATH": paths}
    asking = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert asking.stdout
    ready = asking.stdout.readline()
    assert ready == "ready\n", asking.communicate()[1]
    began = time.monotonic()
    time.sleep(BEFORE_S)
    scene.begin()
    gone_s = time.monotonic() - began
    time.sleep(max(0.0, BEFORE_S + DURING_S - gone_s))
    scene.end()
    back_s = time.monotonic() - began
    out, log = asking.communicate(timeout=total_s + 60)
    lines = [Line(**json.loads(line)) for line in out.splitlines()]
    during = [line for line in lines if gone_s <= line.at_s < back_s]
    after = [line for line in lines if line.at_s >= back_s]
    got = ", ".join(f"{number} {what}" for what, number in Counter(line.what for line in during).most_common())
    slowest_ms = max((line.took_s for line in during), default=0) * 1000
    slow = sum(line.took_s > 0.1 for line in during)
    decided = (line.at_s + line.took_s for line in after if line.what == "server")
    again = f"{min(decided, default=float('nan')) - back_s:.2f}"
    logged = len([line for line in log.splitlines() if line.strip()])
    return f"{got} | {slowest_ms:.0f} | {slow} | {again} | {logged}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SCENES, help="one of the outages")
    parser.add_argument("--outage", default="local", help="the client's option")
    parser.add_argument("--server", default="valkey-9.1")
    asked = parser.parse_args()
    cargo = ["cargo", "build", "--quiet", "--release", "--locked", "--all-features", "--example", "rehearse"]
    where = ["--manifest-path", str(CLIENTS / "rust/Cargo.toml"), "--target-dir", str(ROOT / "target/clients-rust")]
    subprocess.run([*cargo, *where], check=True)
    node = {**os.environ, "PATH": f"{ROOT / '.cache/clients-node/bin'}:{os.environ['PATH']}"}
    subprocess.run(["npm", "run", "--silent", "build"], cwd=CLIENTS / "node", check=True, env=node)
    print("| outage | client | answers meanwhile | slowest ms | over 100 ms | decided again after s | lines logged |")
    print("|---|---|---|---|---|---|---|")
    for name in [asked.only] if asked.only else SCENES:
        for language in ASKS:
            with SCENES[name](asked.server, name) as scene:
                print(f"| {name} | {language} | {rehearse(language, scene, asked.outage)} |", flush=True)


if __name__ == "__main__":
    main()
