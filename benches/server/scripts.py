"""The Lua scripts, written anew from the ideas of the articles that made these methods popular. One method a file.

They take the time from the server: redis-benchmark has none to give, and limits that trust every client's clock are no
match for limits that do not. They reply, like RL.CHECK, 0 for allowed and 1 for limited, then little more.
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
