"""Writes docs/reference/peers.md from the results."""

from statistics import median

from benches.server.servers import ROOT

from .outages import LATER_S
from .peers import MISSING, PEERS
from .setting import LONGER, RULE

PAGE = ROOT / "docs/reference/peers.md"
#: Which way a figure is better: lower, higher, or nearer to one.
LOWER, HIGHER, ONE = (lambda value: value), (lambda value: -value), (lambda value: abs(value - 1))


def figure(name, measure, value, better, spread, relative=False):
    return {"name": name, "measure": measure, "value": value, "better": better, "spread": spread, "relative": relative}


#: The figures that are compared: where they are, which is better, and by how much two runs may differ.
FIGURES = [
    figure("over, steady", "admits", "over_steady", LOWER, 0.1),
    figure("over, bursts", "admits", "over_bursts", LOWER, 0.3),
    figure("under", "admits", "under", ONE, 0.05),
    figure("waits too early", "waits", "early", LOWER, 0.2),
    figure("waits too late", "waits", "late", LOWER, 0.2),
    figure("two rules, the short one first", "rules", "short_first", ONE, 0.05),
    figure("two rules, the long one first", "rules", "long_first", ONE, 0.05),
    figure("one clock ahead", "clock", "clock", ONE, 0.1),
    figure("commands, passing", "calls", "passing", LOWER, 0),
    figure("commands, denied", "calls", "denied", LOWER, 0),
    figure("one caller", "calls", "one", HIGHER, 0.35, True),
    figure("eight callers", "calls", "eight", HIGHER, 0.35, True),
    figure("the server's time", "calls", "server", LOWER, 0.35, True),
    figure("p99", "calls", "p99", LOWER, 0.8, True),
    figure("bytes after one request", "memory", "bytes", LOWER, 0.05, True),
    figure("bytes at the limit", "memory", "bytes_full", LOWER, 0.05, True),
    figure("keys without end", "memory", "endless", LOWER, 0),
    figure("kept by a restart", "outages", "kept", HIGHER, 0.05),
]
BY_NAME = {each["name"]: each for each in FIGURES}


def middle(found, peer, measure, value):
    """The median of the rounds; None: not measured, or the peer has none."""
    values = found["peers"].get(peer.key, {}).get(measure, {}).get(value)
    values = [each for each in (values if isinstance(values, list) else [values]) if each is not None]
    return median(values) if values else None


def value_of(found, peer, figure):
    value = middle(found, peer, figure["measure"], figure["value"])
    # Which waits are too short by less than a millisecond is chance.
    by = middle(found, peer, "waits", "early_ms") if figure["value"] == "early" else None
    return 0.0 if value and by is not None and by < 1 else value


def within(figure, value, other):
    """Whether two values of a figure are the same, as far as its spread tells."""
    return abs(value - other) <= figure["spread"] * (max(abs(value), abs(other)) if figure["relative"] else 1) + 1e-9


def is_best(found, peer, figure):
    value = value_of(found, peer, figure)
    if value is None:
        return False
    values = [each for each in (value_of(found, other, figure) for other in PEERS) if each is not None]
    best = min(values, key=figure["better"])
    close = value if figure["better"] is not ONE else 1 + abs(value - 1)
    return within(figure, close, best if figure["better"] is not ONE else 1 + abs(best - 1))


def share(value):
    return f"{100 * value:.0f} %"


def cell(found, peer, names, show):
    """Values of figures in one cell, each bold if no peer's is better."""
    texts = []
    for name in names:
        figure = BY_NAME[name]
        value = value_of(found, peer, figure)
        text = "–" if value is None else show(value)
        texts.append(f"**{text}**" if is_best(found, peer, figure) else text)
    return "; ".join(texts)


def wait_cell(found, peer, way):
    value = middle(found, peer, "waits", way)
    if value is None:
        return "none"
    by = middle(found, peer, "waits", f"{way}_ms")
    text = share(value) + (f" ({by:.0f} ms)" if by >= 1 else " (< 1 ms)" if value else "")
    return f"**{text}**" if is_best(found, peer, BY_NAME[f"waits too {way}"]) else text


def outage_cell(found, peer, name):
    rounds = [each for each in found["peers"].get(peer.key, {}).get("outages", {}).get(name, []) if each]
    if not rounds:
        return "–"
    kinds = [
        kind
        for kind in ("errors", "allows", "denies", "waits")
        if sum(kind in each["kinds"] for each in rounds) * 2 > len(rounds)
    ]
    slowest, after = (median(each[value] for each in rounds) for value in ("slowest_s", "after_s"))
    later = "" if after <= 0.1 else f" + {after:.1f}" if after <= LATER_S - 0.1 else ", go on"
    return f"{', '.join(kinds) or 'mixed'} {slowest:.1f}{later}"


def memory_cell(found, peer):
    text = cell(found, peer, ("bytes after one request", "bytes at the limit"), lambda value: f"{value:,.0f}")
    return text + " *" * bool(value_of(found, peer, BY_NAME["keys without end"]))


def decimal(value):
    return f"{value:.2f}"


COLUMNS = {
    "peer": lambda found, peer: peer.label,
    "algorithm": lambda found, peer: peer.algorithm,
    "over: steady; bursts": lambda found, peer: cell(
        found, peer, ("over, steady", "over, bursts"), lambda value: f"{value:.1f}"
    ),
    "under": lambda found, peer: cell(found, peer, ("under",), decimal),
    "waits too early": lambda found, peer: wait_cell(found, peer, "early"),
    "too late": lambda found, peer: wait_cell(found, peer, "late"),
    "two rules: short; long first": lambda found, peer: cell(
        found, peer, ("two rules, the short one first", "two rules, the long one first"), share
    ),
    "one clock ahead": lambda found, peer: cell(found, peer, ("one clock ahead",), share),
    "commands: passing; denied": lambda found, peer: cell(
        found, peer, ("commands, passing", "commands, denied"), lambda value: f"{value:.0f}"
    ),
    "one; eight callers ÷ INCR": lambda found, peer: cell(found, peer, ("one caller", "eight callers"), decimal),
    "server's time ÷ INCR": lambda found, peer: cell(found, peer, ("the server's time",), decimal),
    "p99 ÷ INCR": lambda found, peer: cell(found, peer, ("p99",), decimal),
    "bytes a key: one; full": memory_cell,
    "killed": lambda found, peer: outage_cell(found, peer, "killed"),
}
#: What is alike for most peers.
MOSTLY = {
    "Stopped": lambda found, peer: outage_cell(found, peer, "stopped"),
    "Kept": lambda found, peer: cell(found, peer, ("kept by a restart",), share),
}


def table(found):
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|---" * len(COLUMNS) + "|"
    for peer in PEERS:
        if peer.key in found["peers"]:
            yield "| " + " | ".join(column(found, peer) for column in COLUMNS.values()) + " |"


def mostly(found):
    """A sentence for each figure that is alike for most peers, with those for which it is not."""
    for name, column in MOSTLY.items():
        groups = {}
        for peer in PEERS:
            if peer.key in found["peers"]:
                groups.setdefault(column(found, peer), []).append(peer.key)
        (most, _), *others = sorted(groups.items(), key=lambda group: -len(group[1]))
        but = "; ".join(f"{', '.join(peers)}: {text}" for text, peers in others)
        yield f"**{name}**: {most}{f', but {but}' if but else ''}."


def lost(found):
    """The figures in which a peer is better than each of ours, by more than the spread."""
    for figure in FIGURES:
        values = [(value_of(found, peer, figure), peer) for peer in PEERS]
        values = sorted(
            ((value, peer) for value, peer in values if value is not None), key=lambda each: figure["better"](each[0])
        )
        ours = next(((value, peer) for value, peer in values if peer.ours), None)
        if not ours:
            continue
        better = [each for each in values[: values.index(ours)] if not within(figure, each[0], ours[0])]
        if better:
            names = ", ".join(f"{peer.key} {decimal(value)}" for value, peer in better[:5])
            yield f"- {figure['name']}: {names}; ours at best {decimal(ours[0])} ({ours[1].key})."


def differences(first, second):
    """How many figures of two runs differ by more than the spread of their kind, and which."""
    pairs = [
        (figure, peer, value_of(first, peer, figure), value_of(second, peer, figure)) for figure in FIGURES for peer in PEERS
    ]
    pairs = [pair for pair in pairs if None not in pair[2:]]
    return len(pairs), [pair for pair in pairs if not within(pair[0], *pair[2:])]


def spread_of(figure):
    return (
        "none" if not figure["spread"] else f"{100 * figure['spread']:.0f} %" if figure["relative"] else str(figure["spread"])
    )


def agreement(first, second):
    yield "| figure | spread |\n|---|---|"
    yield from (f"| {figure['name']} | {spread_of(figure)} |" for figure in FIGURES)
    if second:
        compared, apart = differences(first, second)
        yield f"\nOf {compared} figures that two runs have, {compared - len(apart)} agree within this spread. Not so:\n"
        yield from (
            f"- {figure['name']} of {peer.key}: {decimal(one)}, then {decimal(other)}." for figure, peer, one, other in apart
        )


def missing(found):
    absent = {peer.key: "not measured in this run" for peer in PEERS if peer.key not in found["peers"]}
    failed = {
        f"{peer.key}, {name}": values["failed"]
        for peer in PEERS
        for name, values in found["peers"].get(peer.key, {}).items()
        if "failed" in values
    }
    yield from (f"- {name}: {reason}." for name, reason in (MISSING | absent | failed).items())


TEXT = """# Beside everybody else

What limiters admit, announce and cost, by `make peers` on {when}: medians of {rounds} rounds on a shared virtual machine with
{cores} cores (load average {load}). `benches/peers/` has an adapter for each peer, with the calls of its README.

![Peers](../images/peers.svg)

**Bold**: nobody's figure is better by more than the [spread](#repeat-it), whoever it is. `ours log`, `window`, `bucket` and
`fixed` are `RL.CHECK` by redis-py; `ours python`, `node`, `go` and `rust` our packages, `script` their script, `envoy` our
service. Servers are Redis 7.0.15, for `INCREX` Redis 8.10.2; `throttlecrab` is its own.

{table}

{mostly}

## Where we lose

{lost}

## What each figure is

- **over**: the most admitted within one period, over the limit of {limit} a second, while four callers ask 100 times a second
  evenly, or 40 times at once at random times. A window or a bucket may admit twice its limit: that is what it is.
- **under**: admitted over what the peer's algorithm, by its definition (`benches/peers/models.py`), admits of the same
  arrivals.
- **waits too early**: the share of 20 waits after which a retry is denied, and how much longer it took. **Too late**: another
  key, asked each millisecond, admits over a millisecond before the wait ends. Waits that are less than a millisecond too early
  count as right where limiters are compared. `none`: no wait is announced.
- **two rules**: admitted under {limit} a second and {longer} a minute, over what both allow by the peer's algorithm. A peer
  that cannot ask for both at once asks for one after the other, either first.
- **one clock ahead**: the clock of one of four callers is 5 s ahead; admitted over what the algorithm admits.
- **commands** of a request that passes, and of one that is denied.
- **callers**: decisions a second by one caller, and by eight processes; **server's time** for each, with a service's; **p99**
  from the time each was due, at 5,000 a second (–: not reached). All are ratios to `INCR` by the same client library, in the
  same rounds.
- **bytes a key**: growth of `used_memory` for each of 10,000 keys after one request (or as many as were made in 20 s), and of
  500 at a limit of 20 an hour, for which the server's tables need not grow. *: keys that never expire.
- **killed**: the server starts again after 2 s; **stopped**: it stands still for 2 s. What a caller gets, the seconds of the
  slowest answer, and for how many more errors go on. **Kept**: what a full limit still counts after the kill, with an
  append-only file synced every second.

## What they do not say

- Callers and server share the machine, so *callers* compares client libraries as much as limiters. *Server's time* does not.
- Adapters use the options of the README. Others may do better: time-outs, blocks in memory, connection pools.
- `@upstash/ratelimit` runs on a plain server without the first line of its scripts, which only its own servers understand.
  `@fastify/rate-limit` gets injected requests.
- `INCR` and `INCREX` are asked for the wait with `TTL`, in seconds; `PTTL` knows milliseconds.
- A wait counts as too early or too late only if that is certain: the server decided at some time between question and answer.
- A run in which a request took over 0.2 s was made again, at most three times.

## Repeat it

```sh
make peers                          # an hour; writes this page
make peers ARGS='--only limits'     # some minutes; target/peers/peers.json
```

A difference between two runs up to this is no difference:

{agreement}

## Not measured

{missing}
"""


def lines(rows, otherwise="Nothing."):
    return "\n".join(rows) or otherwise


def write(found, second=None):
    text = TEXT.format(
        when=found["when"],
        rounds=found["rounds"],
        cores=found["machine"]["cores"],
        load=found.get("load", "not kept"),
        limit=RULE[0],
        longer=LONGER[0],
        table=lines(table(found)),
        mostly="\n\n".join(mostly(found)),
        lost=lines(lost(found)),
        agreement=lines(agreement(found, second)),
        missing=lines(missing(found)),
    )
    PAGE.write_text(text)
