"""Our adapters send what the example of each peer's README sends, as MONITOR shows."""

import subprocess
import sys

import pytest

from benches.peers import build
from benches.peers.calls import commands
from benches.peers.peers import PEERS
from benches.peers.setting import MINUTE, Setting

from . import examples

RULE = (5, MINUTE)
CASES = [*((name, "Python") for name in examples.PYTHON), *((name, "Node.js") for name in examples.NODE)]
#: What a connection or a limiter sends once, or a thread in the background (pyrate-limiter cleans up so).
SET_UP = {"SCRIPT", "CLIENT", "HELLO", "INFO", "SUBSCRIBE", "PING", "SELECT", "ZREMRANGEBYSCORE"}


def run(language, program, url):
    if language == "Python":
        command = [sys.executable, "-B", "-c", f"URL = {url!r}\n{program}"]
    else:
        command = ["node", "--input-type=module", "-e", f"const URL = {url!r};\n{program}\nprocess.exit(0);"]
    done = subprocess.run(
        command, cwd=build.folder(language), env={**build.ENVIRONMENT, "PATH": build.PATH}, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()


def shape(sent):
    """Each command's name, a script's digest, and the number of its arguments."""
    names = [(words[0].upper(), words[1] if words[0].lower() == "evalsha" else "", len(words)) for words in sent]
    return [name for name in names if name[0] not in SET_UP]


@pytest.mark.parametrize(("name", "language"), CASES)
def test_an_adapter_sends_what_the_example_sends(name, language):
    build.ready(language)
    peer = next(peer for peer in PEERS if peer.key == name)
    with Setting(peer) as setting:
        url = f"redis://127.0.0.1:{setting.server.port}"
        program = (examples.PYTHON | examples.NODE)[name]
        run(language, program, url)  # the server then knows the scripts
        setting.server.client.flushdb()
        by_example = commands(setting, lambda: run(language, program, url))
        setting.server.client.flushdb()
        by_adapter = commands(setting, lambda: setting.caller().hit("203.0.113.9", RULE))
        assert shape(by_adapter) == shape(by_example) != []
