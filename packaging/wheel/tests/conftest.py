"""The wheel, in an empty environment that no index serves."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import servers

WHEELS = servers.ROOT / ".cache/server-wheels"
#: Without the packages that test.
EMPTY = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of `make dist` that RATELIMIT_WHEEL names, or one with the module that tests use."""
    if "RATELIMIT_WHEEL" in os.environ:
        return Path(os.environ["RATELIMIT_WHEEL"])
    folder = tmp_path_factory.mktemp("packed")
    shutil.copy(servers.MODULE, folder / "libredis_ratelimit.so")
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        shutil.copy(servers.ROOT / name, folder)
    (folder / "redis-ratelimit.cdx.json").write_text("{}")
    pack = [sys.executable, "-B", servers.ROOT / "scripts/pack-wheel", folder, f"linux_{platform.machine()}", folder]
    subprocess.run(pack, check=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an environment that had nothing but Python."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = ["-m", "pip", "--python", folder / "bin/python", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([sys.executable, *pip, "--no-index", "--find-links", WHEELS, wheel], env=EMPTY, check=True)
    return folder / "bin"
