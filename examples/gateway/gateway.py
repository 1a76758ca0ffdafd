#!/usr/bin/env python3
"""A small gateway in front of a model: it never lets a tenant exceed its streams, requests and tokens.

    gateway.py --redis URL --model PORT [--port PORT] [--lease-ms MS] [--name NAME] rule [rule ...]

    POST /v1/chat                     {"prompt": "...", "max_tokens": 200, "stream": true}
    X-Tenant: t7                      whose limits count
    Idempotency-Key: 3f2a...          optional: a call that is sent again after a lost connection is not charged twice

    GET /v1/limits                    what is left of the limits of X-Tenant
    GET /                             a page to try it

Each call is one check, which holds a slot and the most tokens that the call can take. While the answer streams, the hold is
renewed. When it has ended, even because the client hung up, the hold is settled for the tokens that were made. If
the gateway is killed, the hold lapses: the slot is free again, and the tokens come back.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from uuid import uuid4

from wire import BadRequest, Client

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / folder) for folder in ("examples/web", "clients/python/src", ".cache/python")]

from pages import left, page  # noqa: E402  from examples/web
from redis.exceptions import RedisError  # noqa: E402  from .cache/python, where scripts/fetch.py puts it
from rl_limits import AsyncRateLimiter, Denied, Saturated  # noqa: E402  from clients/python
from rl_limits.http import PROBLEM_TYPE, fields, problem  # noqa: E402


class Gateway:
    def __init__(self, options):
        # Without the limiter nothing passes: a check then raises its error. Tests share their machine with others, so this
        # waits longer than an application should.
        self.limiter = AsyncRateLimiter.from_url(options.redis, timeout=5, socket_timeout=5)
        self.options = options
        # Calls that run here: two with one id would share one slot.
        self.running = set()

    async def serve(self, reader, writer):
        client = Client(reader, writer)
        try:
            method, path, asked = await client.read()
            if (method, path) == ("POST", "/v1/chat"):
                await self.chat(client, asked)
            elif (method, path) == ("GET", "/v1/limits"):
                key = f"llm:{client.headers['x-tenant']}"
                await client.answer(200, left(await self.limiter.peek_all(key, self.options.rules)))
            elif method == "GET" and (file := page("/web/gateway.html" if path == "/" else path)):
                await client.send(200, *file)
            else:
                await client.answer(404, {"title": "there are POST /v1/chat, GET /v1/limits and GET /"})
        except (BadRequest, KeyError, TypeError) as error:
            await client.answer(400, {"title": f"bad request: {error}"})
        except (RedisError, Saturated, TimeoutError) as error:
            # A caller learns nothing of the server: its texts name keys and rules.
            print(f"no limiter: {error}", file=sys.stderr)
            await client.answer(503, {"title": "no limiter"}, {"Retry-After": "1"})
        except ConnectionRefusedError:
            await client.answer(502, {"title": "no model"})
        except ConnectionError:
            pass  # The client is gone.
        finally:
            writer.close()

    async def chat(self, client, asked):
        tenant = client.headers["x-tenant"]
        id = client.headers.get("idempotency-key") or uuid4().hex
        call = Call(id, asked, self.options)
        if (tenant, id) in self.running:
            return await client.answer(409, {"title": "this call is under way"})
        self.running.add((tenant, id))
        terms = {"cost": call.estimate, "ttl": self.options.lease_ms / 1000, "refund": True, "id": id}
        try:
            async with self.limiter.hold(f"llm:{tenant}", self.options.rules, **terms) as hold:
                await call.run(client, hold)
        except Denied as denied:
            await client.answer(429, problem(denied.reply), fields(denied.reply), PROBLEM_TYPE)
        finally:
            self.running.discard((tenant, id))


class Call:
    """A call, which holds all that it may use."""

    def __init__(self, id, asked, options):
        self.port = options.model
        # Words stand for tokens here. A real gateway asks the model's tokenizer.
        self.input = len(asked["prompt"].split())
        self.estimate = self.input + asked["max_tokens"]
        self.streams = asked.get("stream", False)
        length = min(asked.get("length", asked["max_tokens"]), asked["max_tokens"])
        self.asked = {"id": id, "gateway": options.name, "input": self.input, "length": length}

    async def run(self, client, hold):
        """Relays the answer, and settles what the call used, however it ended."""
        taken, headers = 0, fields(hold.reply)
        try:
            reader, self.model = await asyncio.open_connection("127.0.0.1", self.port)
            self.model.write(json.dumps(self.asked).encode() + b"\n")
            taken = self.input
            # A lost hold stops the call: another call may have the slot.
            watchers = [asyncio.create_task(self.cancel_after(end)) for end in (client.gone(), hold.lost.wait())]
            try:
                if self.streams:
                    client.begin_stream(headers)
                # Reads to the end, even after a cancellation: only when the model has stopped
                # is the count complete.
                async for token in reader:
                    taken += 1
                    await self.relay(client, token)
            finally:
                for watcher in watchers:
                    watcher.cancel()
                self.model.close()
        finally:
            # Settles before the answer ends, so a client with the whole answer finds its slot free.
            await hold.settle(cost=taken)
        if self.streams:
            await client.stream("")
        else:
            await client.answer(200, {"input": self.input, "output": taken - self.input}, headers)

    async def relay(self, client, token):
        if self.streams and not client.writer.is_closing():
            try:
                await client.stream(f"data: {token.decode()}\n")
            except ConnectionError:
                self.cancel()

    def cancel(self):
        """Tells the model to stop. The model then closes the connection."""
        if self.model.can_write_eof() and not self.model.is_closing():
            self.model.write_eof()

    async def cancel_after(self, end):
        await end
        self.cancel()


async def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--redis", required=True)
    parser.add_argument("--model", type=int, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--lease-ms", type=int, default=30_000)
    parser.add_argument("--name", default="gateway")
    parser.add_argument("rules", nargs="+")
    options = parser.parse_args()
    server = await asyncio.start_server(Gateway(options).serve, "127.0.0.1", options.port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
