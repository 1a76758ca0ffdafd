"""A connection for one command that may take long: the shared ones have short time-outs, and serve other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ._commands import Command

#: How much longer than the wait the server may take to answer. If it takes even longer, it is gone.
MARGIN_S = 5.0


def ask(client: Any, command: Command) -> Any:
    """Sends it to the server of its key. Whoever is interrupted leaves the line, for the connection closes."""
    kind, options = _of_pool(
        client.get_node_from_key(command.words[1]).redis_connection if _clustered(client) else client
    )
    while True:
        connection = kind(**options, socket_timeout=(command.wait_s or 0) + MARGIN_S)
        try:
            connection.connect()
            connection.send_command(*command.words)
            return connection.read_response()
        except Exception as error:
            options |= _moved_to(error)
        finally:
            connection.disconnect()


async def ask_async(client: Any, command: Command) -> Any:
    if _clustered(client):
        await client.initialize()
        node = client.get_node_from_key(command.words[1])
        kind, options = node.connection_class, _without_timeout(node.connection_kwargs)
    else:
        kind, options = _of_pool(client)
    while True:
        connection = kind(**options, socket_timeout=None)
        try:
            async with asyncio.timeout((command.wait_s or 0) + MARGIN_S):
                await connection.connect()
                await connection.send_command(*command.words)
                return await connection.read_response()
        except Exception as error:
            options |= _moved_to(error)
        finally:
            await connection.disconnect(nowait=True)


def _clustered(client: Any) -> bool:
    return hasattr(client, "get_node_from_key")


def _of_pool(client: Any) -> tuple[Any, dict[str, Any]]:
    pool = client.connection_pool
    return pool.connection_class, _without_timeout(pool.connection_kwargs)


def _without_timeout(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "socket_timeout"}


def _moved_to(error: Exception) -> dict[str, Any]:
    """Where the key is served now, if that is what the error says."""
    if type(error).__name__ not in ("MovedError", "AskError"):
        raise error
    return {"host": error.host, "port": error.port}  # type: ignore[attr-defined]
