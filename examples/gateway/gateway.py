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
import contextlib
import json
import sys
from pathlib import Path
from uuid import uuid4

from fields import fields, problem
from wire import BadRequest, Client

EXAMPLES = Path(__file__).resolve().parent.parent
sys.path += [str(EXAMPLES / "web"), str(EXAMPLES.parent / ".cache/python")]

from limits import Limits  # noqa: E402  it imports redis-py, which scripts/fetch.py puts there
from pages import left, page  # noqa: E402  from examples/web
from redis.exceptions import RedisError  # noqa: E402


class Gateway:
    def __init__(self, limits, options):
        self.limits = limits
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
                await client.answer(200, left(await self.limits.peek(client.headers["x-tenant"])))
            elif method == "GET" and (file := page("/web/gateway.html" if path == "/" else path)):
                await client.send(200, *file)
            else:
                await client.answer(404, {"title": "there are POST /v1/chat, GET /v1/limits and GET /"})
        except (BadRequest, KeyError, TypeError) as error:
            await client.answer(400, {"title": f"bad request: {error}"})
        except RedisError as error:
            # Without the limiter nothing passes. The alternative is to let everything pass.
            await client.answer(503, {"title": f"no limiter: {error}"})
        except ConnectionRefusedError:
            await client.answer(502, {"title": "no model"})
        except ConnectionError:
            pass  # The client is gone.
        finally:
            writer.close()

    async def chat(self, client, asked):
        tenant = client.headers["x-tenant"]
        id = client.headers.get("idempotency-key") or uuid4().hex
        call = Call(self.limits, tenant, id, asked, self.options)
        if (tenant, id) in self.running:
            return await client.answer(409, {"title": "this call is under way"})
        self.running.add((tenant, id))
        try:
            decision = await self.limits.take(tenant, id, call.estimate)
            if decision["verdict"]:
                return await client.answer(429, problem(decision), fields(decision), "application/problem+json")
            await call.run(client, fields(decision))
        finally:
            self.running.discard((tenant, id))


class Call:
    """A call, which holds all that it may use."""

    def __init__(self, limits, tenant, id, asked, options):
        self.limits = limits
        self.owner = (tenant, id)
        self.options = options
        # Words stand for tokens here. A real gateway asks the model's tokenizer.
        self.input = len(asked["prompt"].split())
        self.estimate = self.input + asked["max_tokens"]
        self.streams = asked.get("stream", False)
        length = min(asked.get("length", asked["max_tokens"]), asked["max_tokens"])
        self.asked = {"id": id, "gateway": options.name, "input": self.input, "length": length}

    async def run(self, client, headers):
        """Relays the answer, and settles what the call used, however it ended."""
        taken = 0
        try:
            reader, self.model = await asyncio.open_connection("127.0.0.1", self.options.model)
            self.model.write(json.dumps(self.asked).encode() + b"\n")
            taken = self.input
            watchers = [asyncio.create_task(self.renew()), asyncio.create_task(self.watch(client))]
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
            # Settles before the answer ends, so a client with the whole answer finds its slot
            # free. Without a server the hold lapses.
            with contextlib.suppress(RedisError):
                await self.limits.settle(*self.owner, taken)
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

    async def watch(self, client):
        await client.gone()
        self.cancel()

    async def renew(self):
        """Renews the hold three times per lease. A lost lease stops the call: another call may have the slot."""
        lease_s = self.options.lease_ms / 1000
        clock = asyncio.get_running_loop().time
        end = clock() + lease_s
        while clock() < end:
            await asyncio.sleep(lease_s / 3)
            asked = clock()
            with contextlib.suppress(RedisError, asyncio.TimeoutError):
                lives = await asyncio.wait_for(self.limits.renew(*self.owner), lease_s / 3)
                end = asked + lease_s if lives else asked
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
    limits = Limits(options.redis, options.rules, options.lease_ms)
    server = await asyncio.start_server(Gateway(limits, options).serve, "127.0.0.1", options.port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
