"""What rate limiting costs in a server: our commands, its own, floors in C, Lua, redis-cell, clients that decide.

`make bench` runs it, `make bench ARGS=--help` lists the options. Read the files in this order:

    machine.py     the cores that server and client are pinned to, and what the results should say of the machine
    servers.py     a server of one's own on loopback, ended whatever happens
    wire.py        commands in bulk, to fill keys; a command names its key as redis-benchmark does
    scripts.py     lua/*.lua, our own versions of the methods that articles describe
    floors.py      c/floor.c, a module that does little beside what the server does for any module's command
    logs.py        sliding logs in the state in which a busy client keeps them
    rows.py        what is compared: one pipelined command a decision
    growth.py      rows that would show a cost that grows with the limit or with the number of keys
    holds.py       taking, repeating and settling holds, beside scripts and as holds grow
    load.py        one run of one row, and the proof that the server did what the row says
    roundtrips.py  clients that need several commands a decision, against one
    rounds.py      every row once a round, interleaved
    memory.py      bytes a key
    results.py     medians, spreads, and ratios to INCR of the same round; as JSON
    report.py      the tables
    plots.py       the pictures

Throughput on a shared machine wanders by tens of percent within minutes. What holds still is the ratio of two rows that
were measured closely after one another, hence rounds; their median forgives a round that something else disturbed.
"""


class Failed(Exception):
    """A measurement that cannot be had, or would not be what it claims to be; the message says why."""
