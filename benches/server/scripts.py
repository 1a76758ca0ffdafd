"""The Lua scripts, our own versions of the methods that popular articles describe. One file per method.

They take the time from the server: redis-benchmark cannot send it, and a limit that trusts each client's clock could not be
compared with one that does not. They reply 0 for allowed and 1 for limited, as RL.CHECK does, and then little more.
"""

import hashlib
from pathlib import Path

from .wire import KEY

FOLDER = Path(__file__).parent / "lua"


def source(name):
    return (FOLDER / f"{name}.lua").read_text()


def call(name, *arguments):
    """The command that runs a script on the key."""
    sha = hashlib.sha1(source(name).encode()).hexdigest()
    return ("EVALSHA", sha, 1, KEY, *arguments)


def load_all(server):
    for script in FOLDER.glob("*.lua"):
        server.client.script_load(script.read_text())
