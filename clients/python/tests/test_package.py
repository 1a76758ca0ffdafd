"""What would be published."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

CLIENT = Path(__file__).parents[1]
PACKAGE = CLIENT / "src/rl_limits"
SOURCES = {f"rl_limits/{path.name}" for path in PACKAGE.iterdir() if path.suffix in (".py", ".typed")}


def test_the_package_holds_its_sources_and_no_tests(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-B", "-m", "hatchling", "build", "-d", tmp_path], cwd=CLIENT, check=True)
    [wheel], [sdist] = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read("rl_limits-0.1.0.dist-info/METADATA").decode()
    assert {name for name in names if ".dist-info/" not in name} == SOURCES
    assert "rl_limits/py.typed" in SOURCES
    assert "License-Expression: MIT OR Apache-2.0" in metadata
    assert "# rl-limits: redis-ratelimit for Python" in metadata
    with tarfile.open(sdist) as archive:
        assert not [name for name in archive.getnames() if "/tests/" in name]
