"""The peers: who is measured, with which algorithm, in which language, on which server."""

from dataclasses import dataclass
from functools import cached_property

from . import build

THROTTLECRAB = "throttlecrab"
#: Redis 8.10, of scripts/more_servers.py: the first that is to be had with INCREX.
NEWEST = "../servers-more/redis-8.10"


@dataclass(frozen=True)
class Peer:
    #: Its name for its adapter, and in the table.
    key: str
    #: As its documents name it: one of models.MODELS.
    algorithm: str
    language: str
    #: The package that a file of the adapters pins, or the version of what scripts/ fetch.
    package: str = ""
    version: str = ""
    server: str = "redis-7.0"
    #: What the server loads.
    modules: tuple[str, ...] = ()
    #: A program between caller and server, or in the server's place.
    service: str = ""
    #: What the page says beside the name.
    note: str = ""

    @property
    def ours(self):
        return self.key.startswith("ours")

    @property
    def base(self):
        return INCR[self.language if self.server == "redis-7.0" else self.server]

    @cached_property
    def label(self):
        version = self.version or build.pinned(self.package)
        return f"{self.key} {version.split('-')[0]}".strip()  # Go adds a time and a commit


#: What rates are compared with: INCR by each client library.
INCR = {
    language: Peer(f"{client} INCR", "fixed window", language)
    for language, client in (
        ("Python", "redis-py"),
        ("Node.js", "ioredis"),
        ("Go", "go-redis"),
        ("Java", "lettuce"),
        ("Rust", "redis-rs"),
    )
}
INCR[NEWEST] = Peer("redis-py INCR", "fixed window", "Python", server=NEWEST)

FIRST, CLOCK, LOG = "fixed window", "fixed window of the clock", "sliding log"
COUNTER, ROUNDED = "sliding counter", "sliding counter, rounded"
BUCKET, STEPS, GCRA = "token bucket", "token bucket in steps", "GCRA"
OURS = {"modules": ("ours",)}

PEERS = [
    Peer("ours log", LOG, "Python", **OURS),
    Peer("ours window", COUNTER, "Python", **OURS),
    Peer("ours bucket", BUCKET, "Python", **OURS),
    Peer("ours fixed", CLOCK, "Python", **OURS),
    Peer("ours python", LOG, "Python", **OURS),
    Peer("ours node", LOG, "Node.js", **OURS),
    Peer("ours go", LOG, "Go", **OURS),
    Peer("ours rust", LOG, "Rust", **OURS),
    Peer("ours python script", LOG, "Python"),
    Peer("ours envoy", CLOCK, "Go", service="ours", **OURS),
    Peer("INCR, EXPIRE", FIRST, "Python"),
    Peer("INCREX", FIRST, "Python", version="8.10.2", server=NEWEST),
    Peer("Lua GCRA", GCRA, "Python"),
    Peer("Lua sorted set", LOG, "Python"),
    Peer("redis-cell", GCRA, "Python", version="0.2.2", modules=("redis-cell",)),
    Peer("throttlecrab", GCRA, "Python", version="0.4.40", service=THROTTLECRAB),
    Peer("limits fixed", FIRST, "Python", "limits"),
    Peer("limits sliding", ROUNDED, "Python", "limits"),
    Peer("limits moving", LOG, "Python", "limits"),
    Peer("pyrate-limiter", LOG, "Python", "pyrate-limiter"),
    Peer("pyrate-limiter GCRA", GCRA, "Python", "pyrate-limiter"),
    Peer("throttled-py bucket", BUCKET, "Python", "throttled-py"),
    Peer("throttled-py gcra", GCRA, "Python", "throttled-py"),
    Peer("rate-limiter-flexible", FIRST, "Node.js", "rate-limiter-flexible"),
    Peer("rate-limit-redis", FIRST, "Node.js", "rate-limit-redis"),
    Peer("@fastify/rate-limit", FIRST, "Node.js", "@fastify/rate-limit"),
    Peer("bottleneck", FIRST, "Node.js", "bottleneck"),
    Peer("@upstash fixed", CLOCK, "Node.js", "@upstash/ratelimit"),
    Peer("@upstash sliding", ROUNDED, "Node.js", "@upstash/ratelimit"),
    Peer("@upstash bucket", STEPS, "Node.js", "@upstash/ratelimit"),
    Peer("redis_rate", GCRA, "Go", "redis_rate/v10"),
    Peer("ulule/limiter", FIRST, "Go", "ulule/limiter/v3"),
    Peer("envoyproxy/ratelimit", CLOCK, "Go", "envoyproxy/ratelimit", service=build.ENVOY),
    Peer("bucket4j", BUCKET, "Java", "bucket4j_jdk17-lettuce"),
]

#: Who could not be measured, and why.
MISSING = {
    "limitador 0.14.0": "compiles only with its feature `disk_storage`, that is with RocksDB from source",
    "redis-cell 0.5.0": "is on GitHub alone; crates.io has 0.2.2",
    "the servers of Upstash": "are a hosted service; its package is measured on a plain server",
}
