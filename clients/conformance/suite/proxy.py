"""A proxy between a client and a server. It ends, drops, delays and refuses connections, cuts commands, answers
rubbish, and counts what comes through."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

#: Where a command is cut: before the server gets it, when it has half of it, or when it has replied.
Where = Literal["before", "within", "after"]
#: What happens to a new connection.
Door = Literal["open", "slammed", "silent"]

LOOP = asyncio.new_event_loop()
threading.Thread(target=LOOP.run_forever, daemon=True).start()


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(work, LOOP).result()


@dataclass(eq=False)
class Link:
    """One connection of a client."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    dropped: bool = False
    #: A command whose reply is swallowed, after which the connection ends.
    cut_reply: bool = False
    #: Replies that wait for their time.
    replies: asyncio.Queue[tuple[float, bytes]] = field(default_factory=asyncio.Queue)

    def end(self) -> None:
        for side in (self.client, self.server):
            side.close()

    def reset(self) -> None:
        self.client.transport.abort()
        self.server.close()


class Proxy:
    def __init__(self, to: int) -> None:
        self._to = to
        self._listener: asyncio.Server | None = None
        self._links: set[Link] = set()
        self._door: Door = "open"
        self._waiting: set[asyncio.StreamWriter] = set()
        self._delay_s = 0.0
        self._rubbish: bytes | None = None
        self._cut: tuple[str, Where] | None = None
        self.port = 0
        #: The time of each connection, and the time and name of each command.
        self.connections: list[float] = []
        self.commands: list[tuple[float, str]] = []
        _run(self._listen())

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def count(self, command: str, since: float = 0.0) -> int:
        return sum(name == command and at >= since for at, name in self.commands)

    @property
    def open(self) -> int:
        return len(self._links)

    def end(self) -> None:
        """Ends all connections, as a load balancer ends idle ones."""
        self._call(lambda: [link.end() for link in list(self._links)])

    def reset(self) -> None:
        self._call(lambda: [link.reset() for link in list(self._links)])

    def drop(self, most: int | None = None) -> int:
        """Forgets all connections, or `most`, without a word to the client. Returns their number."""

        def drop() -> int:
            dropped = list(self._links)[:most]
            for link in dropped:
                link.dropped = True
            return len(dropped)

        return self._call(drop)

    def cut(self, command: str, where: Where) -> None:
        """Cuts the next connection that sends this command."""
        self._call(lambda: setattr(self, "_cut", (command, where)))

    @contextmanager
    def delayed(self, s: float) -> Iterator[None]:
        """Every reply comes later."""
        self._delay_s = s
        try:
            yield
        finally:
            self._delay_s = 0.0

    @contextmanager
    def rubbish(self, reply: bytes) -> Iterator[None]:
        """Every RL command gets this reply."""
        self._rubbish = reply
        try:
            yield
        finally:
            self._rubbish = None

    @contextmanager
    def door(self, door: Door) -> Iterator[None]:
        """Ends the connections, and accepts new ones only to end them, or to say nothing."""
        self._door = door
        self.reset()
        try:
            yield
        finally:
            self._door = "open"
            self._call(lambda: [one.close() for one in self._waiting])

    @contextmanager
    def refused(self) -> Iterator[None]:
        """Ends the connections, and listens no more."""
        _run(self._deafen())
        try:
            yield
        finally:
            _run(self._listen())

    def close(self) -> None:
        _run(self._deafen())

    def _call(self, work: Callable[[], Any]) -> Any:
        async def call() -> Any:
            return work()

        return _run(call())

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self.port, backlog=2048)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _deafen(self) -> None:
        assert self._listener
        self._listener.close()
        for link in list(self._links):
            link.reset()
        await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.connections.append(time.monotonic())
        if self._door == "slammed":
            client.close()
        elif self._door == "silent":
            self._waiting.add(client)
        else:
            answers, server = await asyncio.open_connection("127.0.0.1", self._to)
            link = Link(client, server)
            self._links.add(link)
            parts = self._to_server(reader, link), self._from_server(answers, link), self._to_client(link)
            tasks = [asyncio.ensure_future(part) for part in parts]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            self._links.discard(link)
            link.end()

    async def _to_server(self, reader: asyncio.StreamReader, link: Link) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                name, command = await read_command(reader)
                if link.dropped:
                    continue
                self.commands.append((time.monotonic(), name))
                if self._cut and self._cut[0] == name:
                    where, self._cut = self._cut[1], None
                    if where == "before":
                        return
                    link.cut_reply = True
                    if where == "within":
                        link.server.write(command[: len(command) // 2])
                        return
                if self._rubbish is not None and name.startswith("RL."):
                    link.client.write(self._rubbish)
                    continue
                link.server.write(command)

    async def _from_server(self, answers: asyncio.StreamReader, link: Link) -> None:
        with contextlib.suppress(OSError):
            while reply := await answers.read(1 << 16):
                if link.cut_reply:
                    return
                link.replies.put_nowait((time.monotonic() + self._delay_s, reply))

    async def _to_client(self, link: Link) -> None:
        with contextlib.suppress(OSError):
            while True:
                at, reply = await link.replies.get()
                if (left := at - time.monotonic()) > 0:
                    await asyncio.sleep(left)
                if not link.dropped:
                    link.client.write(reply)


async def read_command(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """A command's name, and its bytes as the client has sent them."""
    head = await reader.readuntil(b"\r\n")
    read, name = [head], ""
    for _ in range(int(head[1:])):
        length = await reader.readuntil(b"\r\n")
        word = await reader.readexactly(int(length[1:]) + 2)
        read += length, word
        name = name or word.decode(errors="replace").strip().upper()
    return name, b"".join(read)
