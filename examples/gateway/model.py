#!/usr/bin/env python3
"""A stand-in for a model: it makes a token every few milliseconds, and logs what it did.

    model.py [--port PORT] [--pause-ms MS] [--log FILE] [--busy KEY]

A caller sends a line of JSON: the `key` that it uses; `id` and `gateway`, for the log; `input`, the number of tokens
sent; `length`, the number of tokens wanted. The caller gets a line with the status (429 for the key KEY), then a line
per token. The answer ends early when the caller closes its half of the connection.

The log has two lines for each call, TIME begin|end ID GATEWAY INPUT MADE, with the Unix time in microseconds and the
number of tokens made so far, or one line with `refuse`. Tests count in this log, because the model knows no limits.
"""

import argparse
import asyncio
import json
import sys
import time
from functools import partial


async def answer(options, reader, writer):
    asked = json.loads(await reader.readline())

    def write_down(event, made):
        words = [time.time_ns() // 1000, event, asked["id"], asked["gateway"], asked["input"], made]
        print(*words, file=options.log, flush=True)

    if asked["key"] == options.busy:
        write_down("refuse", 0)
        writer.write(b'{"status": 429, "headers": {"Retry-After": "30"}}\n')
        return writer.close()
    write_down("begin", 0)
    writer.write(b'{"status": 200}\n')
    made, cancelled = 0, asyncio.create_task(reader.read())
    try:
        while made < asked["length"] and not (await asyncio.wait([cancelled], timeout=options.pause_ms / 1000))[0]:
            made += 1
            writer.write(f"token-{made}\n".encode())
            await writer.drain()
    except ConnectionError:
        pass  # The caller is gone.
    finally:
        cancelled.cancel()
        write_down("end", made)
        writer.close()


async def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--pause-ms", type=float, default=20)
    parser.add_argument("--busy")
    parser.add_argument("--log", type=argparse.FileType("a"), default=sys.stderr)
    options = parser.parse_args()
    server = await asyncio.start_server(partial(answer, options), "127.0.0.1", options.port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
