"""The Lua scripts: our own versions of the methods that popular articles describe, one file per method, and the script that
answers as the module does, clients/script/ratelimit.lua.

They take the time from the server: redis-benchmark cannot send it, and a limit that trusts each client's clock could not be
compared with one that does not. They reply 0 for allowed and 1 for limited, as RL.CHECK does, and little else.
"""

import hashlib
from pathlib import Path

from .servers import ROOT
from .wire import KEY

TWIN = ROOT / "clients/script/ratelimit.lua"
SOURCES = {path.stem: path.read_text() for path in (*Path(__file__).parent.glob("lua/*.lua"), TWIN)}


def call(name, *arguments, key=KEY):
    """The command that runs a script on the key."""
    sha = hashlib.sha1(SOURCES[name].encode()).hexdigest()
    return ("EVALSHA", sha, 1, key, *arguments)


def twin(*words, key=f"{KEY}:script"):
    """The check that the script makes as the module does."""
    return call(TWIN.stem, "CHECK", *words, key=key)


def load_all(server):
    for source in SOURCES.values():
        server.client.script_load(source)
