"""Waiting in line: workers that wait for slots or poll for them; how soon a released slot is taken again; and what
waiting costs while nothing happens.

**Workers.** A thousand workers, each with a connection, need one of ten slots for a job of 20 ms: the slots can carry
500 jobs a second. The workers wait with RL.WAIT, or poll with RL.CHECK every 100 ms. A worker that is done gives its
slot back and at once asks for the next. This measures the number of jobs done, the server's time per job, the number of
workers that got a slot, and the longest wait. In a fair line the longest wait is the time of all other jobs, two
seconds.

**Handover.** Two clients pass a slot to each other. This measures the time from the RL.SETTLE of one client to the
reply to the RL.WAIT of the other, including both ways over the loopback. It does so with no other
clients; with ten thousand clients in line, in one flow or in a thousand; and behind two hundred flows
that have reached their own limits, so that each flow is passed over.

**Idle.** Ten thousand clients wait for a thousand keys whose slots are taken, and nothing happens. This measures the
work of the server's core, compared with its work for ten thousand idle connections.
"""

import heapq
import resource
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles

import redis

from . import Failed
from .load import cpu_s
from .rows import OURS
from .servers import LOAD_OURS, Server
from .wire import encode, key

WORKERS = 1000
SLOTS = 10
JOB_S = 0.02
ASK_AGAIN_S = 0.1
# How many seconds the line has to form, and then how many seconds it is measured.
WARM_UP_S, MEASURED_S = 3, 6

WAITERS, KEYS, IDLE_S = 10_000, 1_000, 5

RULE = f"slots:{SLOTS}"
POOL = key(0)


@dataclass(frozen=True)
class Way:
    """How the worker with this id asks for a slot."""

    name: str
    ask: Callable

    part = "waiting"
    family = OURS


WAYS = [
    Way("RL.WAIT", lambda id: ("RL.WAIT", POOL, 600_000, "HOLD", id, "EX", 60, RULE)),
    Way("RL.WAIT, 100 flows", lambda id: ("RL.WAIT", POOL, 600_000, "FLOW", id[-2:], "HOLD", id, "EX", 60, RULE)),
    Way("RL.CHECK every 100 ms", lambda id: ("RL.CHECK", POOL, "HOLD", id, "EX", 60, RULE)),
]


@dataclass(frozen=True)
class Other:
    """A measurement that needs no workers."""

    name: str
    part: str

    family = OURS


HANDOVERS = 2_000


class Worker:
    """A connection that asks for a slot, works, gives the slot back, and asks again."""

    def __init__(self, pool, way, number):
        self.pool = pool
        id = f"worker:{number:09}"
        self.ask_again = encode(way.ask(id))
        self.ask_next = encode(("RL.SETTLE", POOL, id)) + self.ask_again
        self.socket = socket.create_connection(("127.0.0.1", pool.server.port))
        self.socket.setblocking(False)
        self.unread = b""
        self.asked_at = None

    def ask(self, now):
        self.asked_at = now
        self.socket.sendall(self.ask_again)

    def settle_and_ask(self, now):
        self.asked_at = now
        self.socket.sendall(self.ask_next)

    def poll(self, _):
        self.socket.sendall(self.ask_again)

    def read(self, now):
        lines = (self.unread + self.socket.recv(4096)).split(b"\r\n")
        self.unread = lines.pop()
        # The reply to a decision is a line with the count, then five integers; the reply to a
        # settlement is one integer.
        for before, line in zip([b"", *lines], lines):
            if line[:1] == b"-":
                raise Failed(f"a worker got the error {line.decode()}")
            if before == b"*5":
                self.decided(line == b":0", now)

    def decided(self, admitted, now):
        if admitted:
            self.pool.admitted(self, now - self.asked_at)
            self.asked_at = None
            self.pool.later(now + JOB_S, self.settle_and_ask)
        else:
            self.pool.later(now + ASK_AGAIN_S, self.poll)


class Pool:
    """All workers, in one thread."""

    def __init__(self, server, way):
        self.server = server
        self.due = []
        self.planned = 0
        self.waits = self.served = None
        self.selector = selectors.DefaultSelector()
        self.workers = [Worker(self, way, number) for number in range(WORKERS)]
        for worker in self.workers:
            self.selector.register(worker.socket, selectors.EVENT_READ, worker)

    def later(self, at, act):
        self.planned += 1
        heapq.heappush(self.due, (at, self.planned, act))

    def admitted(self, worker, waited_s):
        self.waits.append(waited_s)
        self.served.add(worker)

    def run(self, seconds):
        """Runs the workers, and notes which workers got a slot and how long they waited."""
        self.waits, self.served = [], set()
        now = time.monotonic()
        end = now + seconds
        while now < end:
            until = min(self.due[0][0] if self.due else end, end)
            for ready, _ in self.selector.select(max(until - now, 0)):
                ready.data.read(time.monotonic())
            now = time.monotonic()
            while self.due and self.due[0][0] <= now:
                heapq.heappop(self.due)[2](now)

    def longest_wait_s(self):
        """The longest wait of any worker, including the workers that still have no slot."""
        now = time.monotonic()
        return max(self.waits + [now - worker.asked_at for worker in self.workers if worker.asked_at])

    def start(self):
        start = time.monotonic()
        for number, worker in enumerate(self.workers):
            # Polling workers start at different times within their interval.
            self.later(start + ASK_AGAIN_S * number / WORKERS, worker.ask)


def calls(server):
    stats = server.client.info("commandstats")
    return sum(stats[command]["calls"] for command in stats if command.startswith("cmdstat_rl."))


def measure_workers(server, way):
    """How many jobs the pool does per second, and what they cost."""
    pool = Pool(server, way)
    pool.start()
    pool.run(WARM_UP_S)
    busy, called = cpu_s(server), calls(server)
    pool.run(MEASURED_S)
    busy, called = cpu_s(server) - busy, calls(server) - called
    jobs = len(pool.waits)
    if not jobs:
        raise Failed(f"{way.name}: no job was done")
    return {
        "jobs_a_second": jobs / MEASURED_S,
        "of_the_slots": jobs / MEASURED_S * JOB_S / SLOTS,
        "cpu_us_a_job": busy * 1_000_000 / jobs,
        "calls_a_job": called / jobs,
        "served": len(pool.served),
        "longest_wait_s": pool.longest_wait_s(),
    }


def measure_handover(server, passed_over=0):
    """Milliseconds from the release of a slot until the next client has it. In front of this client are `passed_over`
    flows that their own limits deny."""
    flows = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(passed_over)]
    for number, client in enumerate(flows):
        own = f"slots:1,name={number}"
        server.client.execute_command("RL.CHECK", POOL, "HOLD", f"own:{number}", "EX", 3600, own)
        client.sendall(encode(("RL.WAIT", POOL, 3_600_000, "FLOW", number, "HOLD", f"next:{number}", "EX", 60, "slots:1", own)))
    until_they_wait(server, passed_over)
    clients = [redis.Redis(port=server.port, protocol=2, socket_timeout=60).connection_pool.get_connection() for _ in range(2)]
    holder, waiter = clients
    holder.send_command("RL.CHECK", POOL, "HOLD", "0", "EX", 60, "slots:1")
    holder.read_response()
    taken = []
    for number in range(1, HANDOVERS + 1):
        waiter.send_command("RL.WAIT", POOL, 60_000, "HOLD", number, "EX", 60, "slots:1")
        while server.client.info("ratelimit")["ratelimit_waiting_clients"] == passed_over:
            pass
        start = time.monotonic()
        holder.send_command("RL.SETTLE", POOL, number - 1)
        if waiter.read_response()[0] != 0:
            raise Failed("the slot was not handed over")
        taken.append((time.monotonic() - start) * 1000)
        holder.read_response()
        holder, waiter = waiter, holder
    for client in flows:
        client.close()
    return spread(taken)


def spread(taken):
    hundredths = quantiles(taken, n=100)
    return {"median_ms": hundredths[49], "p99_ms": hundredths[98]}


def measure_handover_in_line(server, flows):
    """Milliseconds from the release of a slot until the next client has it, in a long line split into `flows` flows."""
    server.client.execute_command("RL.CHECK", POOL, "HOLD", "holder", "EX", 3600, "slots:1")
    line = selectors.DefaultSelector()
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(WAITERS)]
    for number, client in enumerate(clients):
        command = ("RL.WAIT", POOL, 3_600_000, "FLOW", number % flows, "HOLD", number, "EX", 3600, "slots:1")
        client.sendall(encode(command))
        line.register(client, selectors.EVENT_READ, number)
    until_they_wait(server, WAITERS)
    taken, holder = [], "holder"
    for _ in range(HANDOVERS):
        start = time.monotonic()
        server.client.execute_command("RL.SETTLE", POOL, holder)
        (served, _), *others = line.select(60)
        taken.append((time.monotonic() - start) * 1000)
        if others or not served.fileobj.recv(4096).startswith(b"*5\r\n:0\r\n"):
            raise Failed("the slot was not handed over")
        line.unregister(served.fileobj)
        holder = served.data
    for client in clients:
        client.close()
    return spread(taken)


def until_they_wait(server, clients):
    deadline = time.monotonic() + 60
    while server.client.info("ratelimit")["ratelimit_waiting_clients"] < clients:
        if time.monotonic() > deadline:
            raise Failed("not all clients wait")
        time.sleep(0.1)


def cpu_ms_a_second(server):
    before = cpu_s(server)
    time.sleep(IDLE_S)
    return (cpu_s(server) - before) * 1000 / IDLE_S


def measure_idle(server):
    """Milliseconds of the server's core per second, with idle connections, and then while all of them wait."""
    for number in range(KEYS):
        server.client.execute_command("RL.CHECK", key(number), "HOLD", "taken", "EX", 3600, "slots:1")
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(WAITERS)]
    before = cpu_ms_a_second(server)
    for number, client in enumerate(clients):
        command = ("RL.WAIT", key(number % KEYS), 3_600_000, "HOLD", f"waits:{number:010}", "EX", 60, "slots:1")
        client.sendall(encode(command))
    until_they_wait(server, WAITERS)
    waiting = cpu_ms_a_second(server)
    for client in clients:
        client.close()
    return {"connected": before, "waiting": waiting}


def allow_files(number):
    """Raises the limit of open files for this process and for the servers that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))


OTHERS = {
    Other("handing a slot over", "waiting handover"): measure_handover,
    Other("the same, 10,000 in line", "waiting handover"): partial(measure_handover_in_line, flows=1),
    Other("the same, 10,000 in line in 1,000 flows", "waiting handover"): partial(measure_handover_in_line, flows=1_000),
    Other("the same, past 200 flows at their own limits", "waiting handover"): partial(measure_handover, passed_over=200),
    Other("10,000 waiters on 1,000 keys", "waiting idle"): measure_idle,
}


def median_of(rounds):
    return {what: median(once[what] for once in rounds) for what in rounds[0]}


def measure(name, core, chosen, rounds):
    """The results: medians over the rounds, each on a new server."""
    allow_files(WAITERS + 1000)
    results = []
    for row in chosen:
        measured = []
        for _ in range(rounds):
            with Server(name, core, [LOAD_OURS, f"maxclients {WAITERS + 100}"]) as server:
                measured.append(OTHERS[row](server) if row in OTHERS else measure_workers(server, row))
        results.append({"part": row.part, "name": row.name, "family": row.family, **median_of(measured)})
    return results
