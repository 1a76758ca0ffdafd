"""The folder .cache/, which holds what scripts fetch and build.

Everything is made in a scratch folder and moved into place when complete, so an interrupted run leaves nothing
unfinished.
"""

import contextlib
import fcntl
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"


class Failed(Exception):
    """Something could not be fetched. The message says what was tried."""


def say(text):
    """Prints progress to stderr: stdout is for results."""
    print(f"fetch: {text}", file=sys.stderr, flush=True)


def tail(output):
    """The last lines of what a command printed, for a failure's message."""
    return "\n".join("    " + line for line in output.strip().splitlines()[-8:])


def run(command, **options):
    """Runs a command silently and returns its output. A failure's message has the end of the output."""
    command = [str(part) for part in command]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        raise Failed(f"`{' '.join(command)}` ended with status {done.returncode}:\n{tail(done.stdout)}")
    return done.stdout


class Scratch(tempfile.TemporaryDirectory):
    """A folder inside .cache/, so that one rename moves its contents into place."""

    def __init__(self):
        CACHE.mkdir(exist_ok=True)
        super().__init__(prefix="fetch-", dir=CACHE)

    def __enter__(self):
        return Path(super().__enter__())


@contextlib.contextmanager
def alone(name):
    """Lets one process at a time run the `with` block for this name: the next one finds what the first has fetched."""
    locks = CACHE / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def put(source, target):
    """Moves a finished file or folder into place, and replaces what was there."""
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)


@contextlib.contextmanager
def new_home(name, version=None):
    """A folder that becomes .cache/NAME once it is filled. `is_version` then confirms this version."""
    with Scratch() as scratch:
        folder = scratch / name
        folder.mkdir(parents=True)
        yield folder
        if version:
            (folder / "version").write_text(version)
        put(folder, CACHE / name)


def is_version(home, version):
    """Whether a folder was made for this version."""
    file = home / "version"
    return file.exists() and file.read_text() == version


def script(path, text):
    """Writes a shell script. In its text, $here is the script's folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")\n{text}\n')
    path.chmod(0o755)
