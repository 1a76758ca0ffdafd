"""One run of the load, and what the server and the machine did during it.

The server's latency monitor says which of its tasks took over a millisecond: a command, a fork, a cycle of expiry. Two
numbers show what the machine caused: how often the kernel took the core from the server, and how late the load sent its
requests.
"""

import json
import subprocess
from pathlib import Path

from benches.server import Failed
from benches.server.load import cpu_s
from benches.server.servers import ROOT

MANIFEST = Path(__file__).parent / "load/Cargo.toml"
TARGET = ROOT / "target/latency"
PROGRAM = TARGET / "release/ratelimit-latency-load"

MONITORED_MS = 1
# How many seconds a load may take besides those that count.
MORE_S = 60


def build():
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", MANIFEST, "--target-dir", TARGET]
    if subprocess.run(command).returncode:
        raise Failed("the load was not built")


def preempted(server):
    """How often the kernel took the core from the server."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("nonvoluntary")).split()[1])


class Watch:
    """Observes what the server does from now on."""

    def __init__(self, server, case):
        self.server, self.preempted = server, preempted(server)
        # Counts only these: what a script calls is a part of the script's own call.
        self.commands = {words[0].lower() for words in (case.row.command, case.then) if words}
        if server.client:
            server.client.config_set("latency-monitor-threshold", MONITORED_MS)
            server.client.latency_reset()
            self.calls, self.offset = self.count()
            self.cpu_s = cpu_s(server)

    def count(self):
        """Calls of the measured commands, and bytes sent to each replica."""
        stats = self.server.client.info("commandstats").items()
        calls = sum(of["calls"] for name, of in stats if name.lower().removeprefix("cmdstat_") in self.commands)
        replication = self.server.client.info("replication")
        return calls, replication["master_repl_offset"] if replication["connected_slaves"] else 0

    def read(self):
        found = {"preempted": preempted(self.server) - self.preempted}
        if self.server.client:
            worked, (calls, offset) = cpu_s(self.server) - self.cpu_s, self.count()
            found["cpu_us"] = worked * 1e6 / (calls - self.calls)
            if offset:
                found["replica_bytes"] = (offset - self.offset) / (calls - self.calls)
            found["events_ms"] = {name: worst for name, _, _, worst, *_ in self.server.client.latency_latest()}
            self.server.client.config_set("latency-monitor-threshold", 0)
        return found


def measure(server, case, rate, seconds, connections, act=lambda: None):
    """Loads the server at a rate, or at rate 0 as fast as it replies. Calls `act` when the load has started."""
    watch = Watch(server, case)
    words = [PROGRAM, server.port, connections, rate, seconds, case.row.keys or 1, case.expected, *case.words]
    load = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        act()
        printed, error = load.communicate(timeout=seconds + MORE_S)
    finally:
        load.kill()
        load.wait()
    if load.returncode:
        raise Failed(f"{case.name} at {rate or 'full speed'}: {error.strip()}")
    return {**json.loads(printed), **watch.read()}
