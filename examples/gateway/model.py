#!/usr/bin/env python3
"""A stand-in for a model: it makes a token every few milliseconds, and logs what it did.

    model.py [--port PORT] [--pause-ms MS] [--log FILE]

A caller sends a line of JSON: `id` and `gateway` for the log, `input`, the number of tokens sent, and `length`, the number of
tokens wanted. It gets one line per wanted token. The answer ends early when the caller closes its half of the connection.

The log has two lines for each call, TIME begin|end ID GATEWAY INPUT MADE, with the Unix time in microseconds and the number
of tokens made so far. Tests count in this log: the model knows no limits.
"""

import argparse
import asyncio
import json
import sys
import time


class Model:
    def __init__(self, pause_s, log):
        self.pause_s = pause_s
        self.log = log

    def write_down(self, event, asked, made):
        words = [time.time_ns() // 1000, event, asked["id"], asked["gateway"], asked["input"], made]
        print(*words, file=self.log, flush=True)

    async def answer(self, reader, writer):
        asked = json.loads(await reader.readline())
        self.write_down("begin", asked, 0)
        made = 0
        cancelled = asyncio.create_task(reader.read())
        try:
            while made < asked["length"]:
                if (await asyncio.wait([cancelled], timeout=self.pause_s))[0]:
                    break
                made += 1
                writer.write(f"token-{made}\n".encode())
                await writer.drain()
        except ConnectionError:
            pass  # The caller is gone.
        finally:
            cancelled.cancel()
            self.write_down("end", asked, made)
            writer.close()


async def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--pause-ms", type=float, default=20)
    parser.add_argument("--log", type=argparse.FileType("a"), default=sys.stderr)
    options = parser.parse_args()
    model = Model(options.pause_ms / 1000, options.log)
    server = await asyncio.start_server(model.answer, "127.0.0.1", options.port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
