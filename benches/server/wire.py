"""Commands in bulk.

A command is a tuple of words. One word may contain KEY, redis-benchmark's placeholder for the key, which becomes 12
digits. Keys are filled over one connection without replies, as fast as the server reads. The server's own counts, which
the caller resets before, show whether a command failed.
"""

import socket

from . import Failed

KEY = "k:__rand_int__"
SEED = "seed"

CHUNK = 10_000


def key(number):
    """A key as redis-benchmark writes it: 14 bytes."""
    return f"k:{number:012}"


def on(command, name):
    """The command with this key in place of KEY."""
    return tuple(str(word).replace(KEY, name) for word in command)


def encode(command):
    words = [str(word).encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def for_each_key(command, keys, start=0):
    """The command for each key from the number `start` on, encoded, in chunks."""
    # All keys have the same length.
    before, after = encode(on(command, key(start))).split(key(start).encode())
    for first in range(start, start + keys, CHUNK):
        numbers = range(first, min(first + CHUNK, start + keys))
        yield b"".join(before + key(number).encode() + after for number in numbers)


def send(server, chunks):
    """Sends encoded commands, and returns when the server has executed all of them."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as connection:
        connection.sendall(encode(("CLIENT", "REPLY", "OFF")))
        for chunk in chunks:
            connection.sendall(chunk)
        connection.sendall(encode(("CLIENT", "REPLY", "ON")))
        if connection.recv(64) != b"+OK\r\n":
            raise Failed(f"{server.program} ended while keys were filled:\n{server.log()}")


def fill(server, command, keys, passes=1, seed=None):
    """Brings keys into the state in which they are measured: with a `seed`, copies the key that it makes to each key; then
    calls the command `passes` times on each. If there is a replica, waits for it."""
    if seed:
        send(server, [b"".join(map(encode, seed()))])
        copied = next((word for word in command if KEY in str(word)), KEY)
        send(server, for_each_key(("COPY", SEED, copied), keys))
        server.client.delete(SEED)
    if passes:
        chunks = list(for_each_key(command, keys))
        for _ in range(passes):
            send(server, chunks)
    if server.client.info("replication")["connected_slaves"]:
        server.client.wait(1, 60_000)


def check_errors(server, what):
    """Fails if any command failed since the counts were reset."""
    errors = server.client.info("errorstats")
    failed = {
        name: stats
        for name, stats in server.client.info("commandstats").items()
        if stats["failed_calls"] or stats["rejected_calls"]
    }
    if errors or failed:
        raise Failed(f"{what}: the server replied with errors: {errors or failed}")
