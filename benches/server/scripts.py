"""The Lua scripts: our own versions of the methods that popular articles describe, one file per method, and the script
that answers as the module does, clients/script/ratelimit.lua.

They read the server's clock: redis-benchmark cannot send the time, and a limit that trusts the clients' clocks could
not be compared with the module's. They reply 0 for allowed and 1 for limited, as RL.CHECK does, and little else.
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
    """A check by clients/script/ratelimit.lua, which decides as the module does."""
    return call(TWIN.stem, "CHECK", *words, key=key)


def load_all(server):
    for source in SOURCES.values():
        server.client.script_load(source)
