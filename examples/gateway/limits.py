"""What a tenant may use: one key, one check a call, and the hold that is its receipt."""

import redis.asyncio


class Limits:
    """The limits of all tenants. A hold lasts `lease_ms`, and is renewed for as long as its call lasts."""

    def __init__(self, url, rules, lease_ms):
        self.server = redis.asyncio.Redis.from_url(url, protocol=3, decode_responses=True)
        self.rules = rules
        self.lease = ["PX", lease_ms]

    async def take(self, tenant, id, estimate):
        """Asks for a call that may cost `estimate` tokens. The reply is that of `FULL`.

        The id makes it safe to ask again after a lost connection: a live hold is not charged twice.
        """
        command = ["RL.CHECK", self.key(tenant), "COST", estimate, "HOLD", id, *self.lease, "REFUND", "FULL"]
        return await self.server.execute_command(*command, *self.rules)

    async def renew(self, tenant, id):
        """Renews the hold. Returns whether it is live; if not, another call may have its slot."""
        return await self.server.execute_command("RL.RENEW", self.key(tenant), id, *self.lease) == 1

    async def settle(self, tenant, id, tokens):
        """Frees the slot, and corrects the estimate to what the call really took."""
        return await self.server.execute_command("RL.SETTLE", self.key(tenant), id, "COST", tokens) == 1

    async def peek(self, tenant):
        """What `FULL` says of each rule now. Asking costs nothing."""
        return await self.server.execute_command("RL.PEEK", self.key(tenant), "FULL", *self.rules)

    @staticmethod
    def key(tenant):
        return f"llm:{tenant}"
