"""Measures what rate limiting costs in a server: by our commands, the server's own, a module in C that does the least (the
floor), Lua scripts, redis-cell, and clients that decide by themselves.

`make bench` runs it, `make bench ARGS=--help` lists the options. Read the files in this order:

    machine.py     the cores to which server and client are pinned, and the description of the machine
    servers.py     a private server on loopback, which always ends with the benchmark
    wire.py        commands in bulk, to fill keys, with redis-benchmark's placeholder for the key
    scripts.py     lua/*.lua, our own versions of the methods that articles describe
    floors.py      c/floor.c, a module whose commands do as little as a module's command can
    logs.py        sliding logs as full as a busy client keeps them
    rows.py        what is compared: one pipelined command a decision
    growth.py      rows that show whether a cost grows with the limit or with the number of keys
    holds.py       taking, repeating and settling holds, compared with scripts and with growing numbers of holds
    load.py        one run of one row, and the proof that the server did what the row says
    roundtrips.py  clients that need several commands per decision, against clients that need one
    waiting.py     waiting in line, compared with polling
    rounds.py      every row once a round, interleaved
    memory.py      bytes a key
    results.py     medians, spreads, and ratios to INCR of the same round; as JSON
    report.py      the tables
    plots.py       the pictures
    ending.py      how the program ends

Throughput on a shared machine changes by tens of percent within minutes. The ratio of two rows measured shortly after
each other is stable, so each round measures all rows. The median over the rounds ignores a disturbed round.
"""


class Failed(Exception):
    """A measurement is impossible, or would not measure what it claims to. The message says why."""
