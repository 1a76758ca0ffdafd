"""A redis-py client that waits in line, for redis_py.rs.

    redis_py.py PORT KEY OPTIONS        OPTIONS: options of redis.Redis, as JSON; "retries": how often to send again

Prints the verdict, or the name of the exception. Keeps its client until its input ends.
"""

import json
import sys

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

port, key, options = sys.argv[1:]
options = json.loads(options)
if "retries" in options:
    options["retry"] = Retry(NoBackoff(), options.pop("retries"))
client = redis.Redis(port=int(port), **options)
try:
    print(client.execute_command("RL.WAIT", key, 20_000, "HOLD", key, "EX", 100, "slots:1")[0], flush=True)
except redis.RedisError as error:
    print(type(error).__name__, flush=True)
sys.stdin.read()
client.close()
