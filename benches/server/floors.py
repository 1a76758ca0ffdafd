"""Compiles c/floor.c, a module that does as little as a module can, each time its rows are measured.

The header of the module API comes from the crate redis-module, which our own module uses.
"""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

from . import Failed
from .servers import FLOOR, ROOT

SOURCE = Path(__file__).parent / "c/floor.c"

CRATE = "redis-module"
HEADER = "src/include/redismodule.h"


def run(command):
    """The output of a command. A failure carries its error output."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    except OSError as error:
        raise Failed(f"{words[0]}: {error.strerror}") from error
    if done.returncode:
        raise Failed(f"`{shlex.join(words)}` ended with status {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def header():
    """The header, among the sources that cargo keeps."""
    # Looks only at the packages of this platform: others are not fetched.
    host = re.search(r"^host: (\S+)$", run(["rustc", "-vV"]), re.MULTILINE)[1]
    metadata = json.loads(run(["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={host}"]))
    for package in metadata["packages"]:
        found = Path(package["manifest_path"]).parent / HEADER
        if package["name"] == CRATE and found.exists():
            return found
    raise Failed(f"{CRATE} has no {HEADER}, which {SOURCE.relative_to(ROOT)} needs")


def build():
    compiler = shlex.split(os.environ.get("CC", "cc"))
    FLOOR.parent.mkdir(parents=True, exist_ok=True)
    run([*compiler, "-O2", "-fPIC", "-shared", f"-I{header().parent}", SOURCE, "-o", FLOOR])
