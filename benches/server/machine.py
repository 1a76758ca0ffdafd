"""The machine that measures.

Server and client get a core each, so that neither takes time from the other; servers that run one after the other share
a core. A replica gets a third core if there is one, else the client's: it must not slow down the measured server.
"""

import os
import platform
from dataclasses import dataclass
from pathlib import Path


# The load average of an otherwise idle machine.
QUIET = 0.5


@dataclass(frozen=True)
class Cores:
    """Which core runs what; None: the system chooses."""

    server: int | None = None
    client: int | None = None
    replica: int | None = None


def pick_cores():
    """The cores to use, and a warning if server and client cannot have different ones."""
    if not hasattr(os, "sched_setaffinity"):
        return Cores(), "this system pins no process to a core: server and client share what they get"
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) == 1:
        return Cores(), "there is one core only: server and client share it"
    # The first and last logical CPU belong to different physical cores, if there are two.
    return Cores(usable[0], usable[-1], usable[1] if len(usable) > 2 else usable[-1]), None


def pin(core):
    """Keeps this process, and those that it starts later, on a core."""
    if core is not None:
        os.sched_setaffinity(0, {core})


def cpu_name():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def load_average():
    """How many processes wanted a core, on average over the last minute."""
    return round(os.getloadavg()[0], 2)


def describe():
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "system": platform.platform()}
