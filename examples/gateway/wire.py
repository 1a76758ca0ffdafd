"""The small part of HTTP/1.1 that the gateway needs: one request per connection."""

import json
from http import HTTPStatus

LONGEST_BODY = 1 << 20


class BadRequest(Exception):
    """The gateway does not understand the client's request."""


class Client:
    """One request of a client, and the way to answer it."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer
        self.headers = {}
        self.has_begun = False

    async def read(self):
        """The method, the path and the JSON of the body."""
        try:
            first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
            method, path, _ = first.split(" ")
            for line in lines:
                name, value = line.split(":", 1)
                self.headers[name.lower()] = value.strip()
            length = int(self.headers.get("content-length", 0))
            if not 0 <= length <= LONGEST_BODY:
                raise BadRequest("the body is too long")
            return method, path, json.loads(await self.reader.readexactly(length) or b"null")
        except (ValueError, EOFError) as error:
            raise BadRequest(str(error)) from error

    async def gone(self):
        """Returns when the client has hung up."""
        while await self.reader.read(4096):
            pass

    async def answer(self, status, body, headers=(), kind="application/json"):
        await self.send(status, json.dumps(body).encode(), kind, headers)

    async def send(self, status, content, kind, headers=()):
        """Sends a whole answer. An answer that has already begun stays cut off, so the client sees that it is
        incomplete."""
        if self.has_begun:
            return
        self.head(status, {**dict(headers), "Content-Type": kind, "Content-Length": len(content)})
        self.writer.write(content)
        await self.writer.drain()

    def begin_stream(self, headers):
        self.head(200, {**headers, "Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})

    async def stream(self, text):
        """Sends a chunk; an empty one ends the answer."""
        self.writer.write(f"{len(text.encode()):x}\r\n{text}\r\n".encode())
        await self.writer.drain()

    def head(self, status, headers):
        self.has_begun = True
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())
