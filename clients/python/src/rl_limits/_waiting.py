"""A connection for one command that may take long: the shared ones have short time-outs, and serve other requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from ._commands import Command, Words
from ._errors import NotAsked, is_away

#: How long after the end of the wait the server may still answer. A server that is later counts as gone.
MARGIN_S = 1.0
#: During the wait, every ASK_S, the server is asked something else. After TRIES failures, AGAIN_S apart, it is gone.
ASK_S = 5.0
TRIES = 3
AGAIN_S = 1.0


def question(command: Command) -> Words:
    """A command that a sound server answers at once."""
    return "RL.PEEK", command.words[1], "1/s"


def ask(client: Any, command: Command, answers: Callable[[], object]) -> Any:
    """Sends the command to the server of its key. Interrupting the call closes the connection, and so leaves the line.
    `answers` asks the server something else."""
    kind, options = _of_pool(
        client.get_node_from_key(command.words[1]).redis_connection if is_cluster(client) else client
    )
    while True:
        connection = kind(**options)
        if connection.socket_timeout is None:
            connection.socket_timeout = _longest_s(command)
        try:
            connection.connect()
            connection.send_command(*command.words)
            late_s = time.monotonic() + _longest_s(command)
            failures = 0
            while not connection.can_read(timeout=_patience_s(failures, late_s)):
                if time.monotonic() >= late_s:
                    raise TimeoutError("no reply to a wait")
                try:
                    answers()
                    failures = 0
                except Exception as error:
                    failures = _failed(failures, error)
            return connection.read_response()
        except Exception as error:
            options |= _moved_to(error)
        finally:
            connection.disconnect()


def _longest_s(command: Command) -> float:
    return (command.wait_s or 0) + MARGIN_S


def _patience_s(failures: int, late_s: float) -> float:
    return min(AGAIN_S if failures else ASK_S, max(0.0, late_s - time.monotonic()))


def _failed(failures: int, error: Exception) -> int:
    """Counts failures in a row. The last of TRIES failures raises its error."""
    if not is_away(error) and not isinstance(error, NotAsked):
        return 0
    if failures + 1 == TRIES:
        raise error
    return failures + 1


async def ask_async(
    client: Any,
    command: Command,
    answers: Callable[[], Awaitable[object]],
    bound: Callable[[], AbstractAsyncContextManager[object]],
) -> Any:
    """`answers` asks the server something else. `bound` bounds connecting."""
    if is_cluster(client):
        async with bound():
            await client.initialize()
        node = client.get_node_from_key(command.words[1])
        kind, options = node.connection_class, dict(node.connection_kwargs)
    else:
        kind, options = _of_pool(client)
    options["socket_timeout"] = None
    while True:
        connection = kind(**options)
        try:
            async with bound():
                await connection.connect()
            async with asyncio.timeout(_longest_s(command)):
                await connection.send_command(*command.words)
                return await _read(connection, answers)
        except Exception as error:
            options |= _moved_to(error)
        finally:
            await connection.disconnect(nowait=True)


async def _read(connection: Any, answers: Callable[[], Awaitable[object]]) -> Any:
    """The next reply, or an error if the server stops answering."""
    tasks = [asyncio.ensure_future(task) for task in (connection.read_response(), _silence(answers))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done()).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _silence(answers: Callable[[], Awaitable[object]]) -> None:
    failures = 0
    while True:
        await asyncio.sleep(AGAIN_S if failures else ASK_S)
        try:
            await answers()
            failures = 0
        except Exception as error:
            failures = _failed(failures, error)


def is_cluster(client: Any) -> bool:
    return hasattr(client, "get_node_from_key")


def _of_pool(client: Any) -> tuple[Any, dict[str, Any]]:
    pool = client.connection_pool
    return pool.connection_class, dict(pool.connection_kwargs)


def _moved_to(error: Exception) -> dict[str, Any]:
    """Where the key is served now, if that is what the error says."""
    if type(error).__name__ not in ("MovedError", "AskError"):
        raise error
    return {"host": error.host, "port": error.port}  # type: ignore[attr-defined]
