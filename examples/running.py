"""The programs of the examples, each run as a process for a `with` block."""

import contextlib
import subprocess
import sys


@contextlib.contextmanager
def running(program, *options):
    """Runs a program, and yields its process and its first line of output."""
    command = [sys.executable, str(program), *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        line = process.stdout.readline()
        if not line:
            sys.exit(f"{program} did not start")
        yield process, line.strip()
    finally:
        process.kill()
        process.wait()
