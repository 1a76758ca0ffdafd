#!/usr/bin/env python3
"""A small gateway in front of a model: no tenant exceeds its limits, and no key of the model exceeds its rule.

    gateway.py --redis URL --model PORT [--port PORT] [--lease-ms MS] [--name NAME] [--key-rule RULE] rule [rule ...]

    POST /v1/chat                     {"prompt": "...", "max_tokens": 200, "stream": true}
    X-Tenant: t7                      the tenant whose limits apply
    Idempotency-Key: 3f2a...          optional: a call that is sent again after a lost connection is not charged twice
    GET /v1/limits                    what is left of the limits of X-Tenant
    GET /                             a page to try it

A call holds a slot and the most tokens that it can take, under rules such as @plan:free. It uses the first key of the
model that admits it; a 429 from the model pauses that key. While the answer streams, the gateway renews the hold. When
the answer has ended, even if the client hung up, the gateway settles the hold for the tokens that were made. If the
gateway is killed, the hold lapses.
"""

import argparse
import asyncio
import contextlib
import json
import sys
from pathlib import Path
from uuid import uuid4

from wire import BadRequest, Client

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / folder) for folder in ("examples/web", "clients/python/src", ".cache/python")]

from pages import left, page  # noqa: E402  from examples/web
from redis.exceptions import RedisError  # noqa: E402  from .cache/python, where scripts/fetch.py puts it
from rl_limits import AsyncRateLimiter, Denied, Limit, Saturated  # noqa: E402  from clients/python
from rl_limits.http import PROBLEM_TYPE, fields, problem  # noqa: E402

KEYS = "{model}:1", "{model}:2"


class Gateway:
    def __init__(self, options):
        # Without the limiter nothing passes: a check then raises its error. Tests share their machine with others, so
        # this waits longer than an application should.
        self.limiter = AsyncRateLimiter.from_url(options.redis, timeout=5, socket_timeout=5)
        self.options = options
        # The calls that run here. Two calls with one id would share one slot.
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
            print(f"no limiter: {error}", file=sys.stderr)  # callers must not learn keys and rules
            await client.answer(503, {"title": "no limiter"}, {"Retry-After": "1"})
        except (ConnectionRefusedError, EOFError):
            await client.answer(502, {"title": "no model"})
        except ConnectionError:
            pass  # The client is gone.
        finally:
            writer.close()

    async def chat(self, client, asked):
        tenant = client.headers["x-tenant"]
        id = client.headers.get("idempotency-key") or uuid4().hex
        # Words stand for tokens here. A real gateway asks the model's tokenizer.
        words, most = len(asked["prompt"].split()), asked["max_tokens"]
        call = {"id": id, "gateway": self.options.name, "input": words, "length": min(asked.get("length", most), most)}
        terms = {"cost": words + most, "ttl": self.options.lease_ms / 1000, "refund": True, "id": id}
        if (tenant, id) in self.running:
            return await client.answer(409, {"title": "this call is under way"})
        self.running.add((tenant, id))
        try:
            async with self.limiter.hold(f"llm:{tenant}", self.options.rules, **terms) as hold:
                await self.relay(client, hold, call, asked.get("stream", False))
        except Denied as denied:
            if denied.reply.key in KEYS:
                await client.answer(503, {"title": "the model is busy"}, fields(denied.reply, "none"))
            else:
                await client.answer(429, problem(denied.reply), fields(denied.reply), PROBLEM_TYPE)
        finally:
            self.running.discard((tenant, id))

    async def relay(self, client, hold, call, streams):
        """Relays the answer, and settles what the call used, however it ended."""
        taken, headers = 0, fields(hold.reply)
        try:
            reader, model = await self.begin(call)
            taken = call["input"]
            # A lost hold stops the call: another call may have the slot.
            watchers = [asyncio.create_task(stop_after(end, model)) for end in (client.gone(), hold.lost.wait())]
            try:
                if streams:
                    client.begin_stream(headers)
                # Reads to the end, even of a call that is stopped: only then is the count complete.
                async for token in reader:
                    taken += 1
                    if streams and not client.writer.is_closing():
                        with contextlib.suppress(ConnectionError):  # The client is gone.
                            await client.stream(f"data: {token.decode()}\n")
            finally:
                for watcher in watchers:
                    watcher.cancel()
                model.close()
        finally:
            # Settles before the answer ends, so a client with the whole answer finds its slot free.
            with contextlib.suppress(RedisError, Saturated, TimeoutError):  # The hold lapses instead.
                await (hold.settle(cost=taken) if taken else hold.refund())
        if streams:
            await client.stream("")
        else:
            await client.answer(200, {"input": call["input"], "output": taken - call["input"]}, headers)

    async def begin(self, call):
        """Sends a call through the first of the model's keys that admits it. Pauses a key for which the model replies
        429."""
        while True:
            pool = await self.limiter.check_any([Limit(key, self.options.key_rule) for key in KEYS])
            if not pool.allowed:
                raise Denied(pool)
            reader, model = await asyncio.open_connection("127.0.0.1", self.options.model)
            model.write(json.dumps({**call, "key": pool.key}).encode() + b"\n")
            head = json.loads(await reader.readuntil())
            if head["status"] == 200:
                return reader, model
            model.close()
            await self.limiter.follow(pool.key, head["status"], head["headers"])


async def stop_after(end, model):
    """Waits for `end`, then tells the model to stop. The model then closes the connection."""
    with contextlib.suppress(ConnectionError):
        await end
    if model.can_write_eof() and not model.is_closing():
        model.write_eof()


async def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--redis", required=True)
    parser.add_argument("--model", type=int, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--lease-ms", type=int, default=30_000)
    parser.add_argument("--name", default="gateway")
    parser.add_argument("--key-rule", default="1000/s")
    parser.add_argument("rules", nargs="+")
    options = parser.parse_args()
    server = await asyncio.start_server(Gateway(options).serve, "127.0.0.1", options.port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
