"""Runs the function of a document that asks with redis-py alone, with a server and without one."""

import re
import sys
from pathlib import Path


def function(document, port):
    code = re.search(r"```python\n(import redis\n.*?)```", document, re.DOTALL)[1]
    # A busy machine may take longer than an application should wait, and a second for ten requests.
    own = code.replace("timeout=0.25", "timeout=5").replace('"10/s"', '"10/m"')
    own = own.replace("redis.Redis(", f"redis.Redis(port={port}, ")
    assert own.count("timeout=5") == own.count('"10/m"') + 1 == own.count(f"port={port}") + 1 == 2, own
    names = {}
    exec(own, names)
    return names


def main(document, port):
    names = function(document, port)
    for user in (1, 2):
        waits = [names["wait_ms"](user) for _ in range(11)]
        assert waits[:10] == [0] * 10 and 0 < waits[10] <= 60_000, waits
    names["client"].execute_command("RL.BLOCK", "user:3")
    assert names["wait_ms"](3) == -1
    alone = function(document, 1)
    assert [alone["wait_ms"](4) for _ in range(20)] == [0] * 20


main(Path(sys.argv[1]).read_text(), sys.argv[2])
