"""What would be published, and what an empty environment makes of it."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import servers
from servers import Server

CLIENT = Path(__file__).parents[1]
PACKAGE = CLIENT / "src/rl_limits"
SOURCES = {f"rl_limits/{path.name}" for path in PACKAGE.iterdir() if path.suffix in (".py", ".typed")}
WHEELS = servers.ROOT / ".cache/clients-python/wheels"
FIRST_STEPS = """
from rl_limits import RateLimiter
print(RateLimiter.from_url("{url}", outage="local").check("login:42", ["5/15m", "20/d"]).remaining)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`python -m build`, with the hatchling that is here."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-B", "-m", "build", "--no-isolation", "--outdir", folder, CLIENT], check=True)
    return folder


def test_the_package_holds_its_sources_its_licences_and_no_tests(built: Path) -> None:
    [wheel], [sdist] = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read("rl_limits-0.1.0.dist-info/METADATA").decode()
        licence = archive.read("rl_limits-0.1.0.dist-info/licenses/LICENSE-APACHE").decode()
    assert {name for name in names if ".dist-info/" not in name} == SOURCES
    assert "rl_limits/py.typed" in SOURCES
    assert "License-Expression: MIT OR Apache-2.0" in metadata
    assert "# rl-limits: redis-ratelimit for Python" in metadata
    assert licence == (servers.ROOT / "LICENSE-APACHE").read_text()
    with tarfile.open(sdist) as archive:
        names = set(archive.getnames())
        assert archive.extractfile("rl_limits-0.1.0/LICENSE-MIT").read() == (servers.ROOT / "LICENSE-MIT").read_bytes()
    assert not [name for name in names if "/tests/" in name]


def test_it_works_in_an_empty_environment(built: Path, tmp_path: Path, newest: Server) -> None:
    [wheel] = built.glob("*.whl")  # built from the archive of sources
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    empty = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # Only redis-py is at hand, which finds out what else the package would need.
    pip = ["-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--find-links", WHEELS]
    subprocess.run([sys.executable, *pip, wheel], env=empty, check=True)
    code = FIRST_STEPS.format(url=newest.url)
    assert subprocess.check_output([python, "-c", code], env=empty, text=True).strip() == "4"
