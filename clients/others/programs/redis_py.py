import sys

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

client = redis.Redis(port=6379, socket_timeout=0.1, socket_connect_timeout=0.1, retry=Retry(NoBackoff(), 0))


def check(key: str, *rules: str) -> tuple[int, int]:
    """The HTTP status and the seconds for Retry-After."""
    try:
        verdict, _, _, wait_ms, _ = client.execute_command("RL.CHECK", key, *rules)
    except (redis.ConnectionError, redis.TimeoutError) as error:
        print(f"not limited: {error}", file=sys.stderr)
        return 200, 0
    return (200, 429, 403)[verdict], -(-max(wait_ms, 0) // 1000)


print(*check("login:42", "5/h"))
