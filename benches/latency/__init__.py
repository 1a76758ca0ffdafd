"""Measures how late replies come: those of the module, of the server's own commands, redis-cell, Lua and
throttlecrab-server.

`make latency` runs it, `make latency ARGS=--help` lists the options. Read the files in this order:

    load/          a program in Rust that sends commands at times planned ahead, so that every stall counts
    cases.py       what is compared, mostly rows of benches/server
    scenes.py      what else the server does meanwhile: files, replicas, saves, expiry, a line of clients
    crab.py        throttlecrab-server, which is no Redis
    points.py      one run of the load, and what the server and the machine did during it
    report.py      medians, ratios to INCR of the same round, and the table
    picture.py     the picture

Servers, fills, cores and colours are those of benches/server.
"""
