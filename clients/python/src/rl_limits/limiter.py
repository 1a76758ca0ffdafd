"""The commands of an application, on any client of redis-py: one server, sentinels or a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis import Redis, RedisCluster
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio import RedisCluster as AsyncRedisCluster

from . import _commands as commands
from ._commands import Answer, Command, Cost, Limit, Rules
from ._replies import Reply, Report


class RateLimiter:
    def __init__(self, client: Redis | RedisCluster) -> None:
        self.client = client

    def check(self, key: str, rules: Rules, *, cost: Cost = 1, meta: str | None = None) -> Reply:
        """Decides, and consumes from every rule if all of them let the request pass: `RL.CHECK`."""
        return self._send(commands.check(key, rules, cost, meta))

    def peek(self, key: str, rules: Rules, *, cost: Cost = 1) -> Reply:
        """Decides without consuming: `RL.PEEK`."""
        return self._send(commands.peek(key, rules, cost))

    def check_all(self, limits: Sequence[Limit], *, cost: Cost = 1, meta: str | None = None) -> Report:
        """Decides over one or several keys, consumes from all or from none, and reports on each rule: `FULL`."""
        return self._send(commands.check_all(limits, cost, meta))

    def peek_all(self, key: str, rules: Rules) -> Report:
        """Reports on each rule of a key without consuming."""
        return self._send(commands.peek_all(key, rules))

    def refund(self, key: str, units: int, rules: Rules = ()) -> int:
        """Gives units back to the states of some rules, or of all; returns the most that one of them got."""
        return self._send(commands.refund(key, units, rules))

    def reset(self, key: str) -> bool:
        """Forgets what was consumed, and says whether there was anything. Blocks, exemptions and the history stay."""
        return self._send(commands.reset(key))

    def call(self, name: str, key: str, *words: str | int) -> Any:
        """Sends any other command whose first argument is its key, such as `RL.SETTLE`."""
        return self._send(commands.call(name, key, *words))

    def _send(self, command: Command[Answer]) -> Answer:
        return command.answer(self.client.execute_command(*command.words))  # type: ignore[no-untyped-call]


class AsyncRateLimiter:
    """A `RateLimiter` on a client of `redis.asyncio`."""

    def __init__(self, client: AsyncRedis | AsyncRedisCluster) -> None:
        self.client = client

    async def check(self, key: str, rules: Rules, *, cost: Cost = 1, meta: str | None = None) -> Reply:
        return await self._send(commands.check(key, rules, cost, meta))

    async def peek(self, key: str, rules: Rules, *, cost: Cost = 1) -> Reply:
        return await self._send(commands.peek(key, rules, cost))

    async def check_all(self, limits: Sequence[Limit], *, cost: Cost = 1, meta: str | None = None) -> Report:
        return await self._send(commands.check_all(limits, cost, meta))

    async def peek_all(self, key: str, rules: Rules) -> Report:
        return await self._send(commands.peek_all(key, rules))

    async def refund(self, key: str, units: int, rules: Rules = ()) -> int:
        return await self._send(commands.refund(key, units, rules))

    async def reset(self, key: str) -> bool:
        return await self._send(commands.reset(key))

    async def call(self, name: str, key: str, *words: str | int) -> Any:
        return await self._send(commands.call(name, key, *words))

    async def _send(self, command: Command[Answer]) -> Answer:
        return command.answer(await self.client.execute_command(*command.words))
