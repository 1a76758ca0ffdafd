"""Runs the middleware of a document as a server of ASGI applications would, for requests of several addresses."""

import asyncio
import re
import sys
from pathlib import Path


async def application(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def get(app, address):
    """The status and the headers of an answer."""
    sent = []

    async def send(message):
        sent.append(message)

    await app({"type": "http", "client": (address, 1)}, None, send)
    start, body = sent
    assert body["type"] == "http.response.body" and body["body"], body
    return start["status"], dict(start["headers"])


async def connect(app, client):
    """How a WebSocket's handshake is answered."""
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message["type"])

    await app({"type": "websocket", "client": client}, receive, send)
    return sent


async def accepting(scope, receive, send):
    await send({"type": "websocket.accept"})


async def main(document, port):
    middleware = {}
    code = re.search(r"```python\n(.*?class RateLimit.*?)```", document, re.DOTALL)[1]
    # A busy machine may take longer than an application should wait.
    exec(code.replace('timeout": 0.25', 'timeout": 5'), middleware)
    app = middleware["RateLimit"](application, "2/10s", "100/h", url=f"redis://127.0.0.1:{port}")
    for address in ("192.0.2.1", "192.0.2.2"):
        assert [await get(app, address) for _ in range(2)] == [(200, {})] * 2, address
        status, headers = await get(app, address)
        assert status == 429 and headers[b"retry-after"] in (b"10", b"9"), (status, headers)
    await app.redis.execute_command("RL.BLOCK", "ip:192.0.2.3", "EX", 100)
    status, headers = await get(app, "192.0.2.3")
    assert status == 403 and headers[b"retry-after"] in (b"100", b"99"), (status, headers)
    await app.redis.aclose()

    busy = middleware["RateLimit"](application, "50/h", url=f"redis://127.0.0.1:{port}")
    answers = await asyncio.gather(*(get(busy, "192.0.2.4") for _ in range(600)))
    assert [status for status, _ in answers].count(200) == 50, "more requests than connections"
    await busy.redis.aclose()

    in_vain = middleware["RateLimit"](application, "50/h", url=f"redis://127.0.0.1:{port}")
    in_vain.redis.connection_pool.timeout = 0.001
    answers = await asyncio.gather(*(get(in_vain, "192.0.2.6") for _ in range(600)))
    assert [status for status, _ in answers].count(200) <= 50, "a request without a connection in time is denied"
    assert (429, {b"retry-after": b"1"}) in answers
    await in_vain.redis.aclose()

    live = middleware["RateLimit"](accepting, "3/h", url=f"redis://127.0.0.1:{port}")
    for address, client in (("192.0.2.5", ("192.0.2.5", 1)), ("unknown", None)):
        handshakes = [await connect(live, client) for _ in range(4)]
        assert handshakes == [["websocket.accept"]] * 3 + [["websocket.close"]], address
    await live.redis.aclose()

    alone = middleware["RateLimit"](application, "1/h", url="redis://127.0.0.1:1")
    assert [await get(alone, "192.0.2.1") for _ in range(2)] == [(200, {})] * 2


asyncio.run(main(Path(sys.argv[1]).read_text(), sys.argv[2]))
