"""The files that would be published, and whether they work in an empty environment."""

import ast
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import servers
from packaging.metadata import Metadata
from servers import Server

CLIENT = Path(__file__).parents[1]
PACKAGE = CLIENT / "src/rl_limits"
SOURCES = {f"rl_limits/{path.name}" for path in PACKAGE.iterdir() if path.suffix in (".py", ".typed", ".lua")}
SCRIPT = servers.ROOT / "clients/script/ratelimit.lua"
WHEELS = servers.ROOT / ".cache/clients-python/wheels"
FIRST_STEPS = """
from rl_limits import RateLimiter
print(RateLimiter.from_url("{url}", outage="local").check("login:42", ["5/15m", "20/d"]).remaining)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`python -m build`, with the installed hatchling."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-B", "-m", "build", "--no-isolation", "--outdir", folder, CLIENT], check=True)
    return folder


def test_the_package_holds_its_sources_its_licences_and_no_tests(built: Path) -> None:
    [wheel], [sdist] = built.glob("*.whl"), built.glob("*.tar.gz")
    name = sdist.name.removesuffix(".tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"{name}.dist-info/METADATA").decode()
        licence = archive.read(f"{name}.dist-info/licenses/LICENSE-APACHE").decode()
        assert archive.read("rl_limits/ratelimit.lua") == SCRIPT.read_bytes()
    assert {name for name in names if ".dist-info/" not in name} == SOURCES
    assert "rl_limits/py.typed" in SOURCES
    assert Metadata.from_email(metadata).description_content_type == "text/markdown", "what PyPI would check"
    assert "License-Expression: MIT OR Apache-2.0" in metadata
    assert "# rl-limits: redis-ratelimit for Python" in metadata
    assert licence == (servers.ROOT / "LICENSE-APACHE").read_text()
    with tarfile.open(sdist) as archive:
        names = set(archive.getnames())
        assert archive.extractfile(f"{name}/LICENSE-MIT").read() == (servers.ROOT / "LICENSE-MIT").read_bytes()
        assert archive.extractfile(f"{name}/src/rl_limits/ratelimit.lua").read() == SCRIPT.read_bytes()
    assert not [name for name in names if "/tests/" in name]


@pytest.mark.skipif(not servers.LONG, reason="`make test-long` runs this")
def test_the_package_works_in_an_empty_environment(built: Path, tmp_path: Path, newest: Server) -> None:
    [wheel] = built.glob("*.whl")  # built from the archive of sources
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    empty = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # Only redis-py can be installed, so any other dependency would fail.
    pip = ["-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--find-links", WHEELS]
    subprocess.run([sys.executable, *pip, wheel], env=empty, check=True)
    code = FIRST_STEPS.format(url=newest.url)
    assert subprocess.check_output([python, "-c", code], env=empty, text=True).strip() == "4"


def imported_by(path: Path) -> set[str]:
    """The modules of the package that a module imports, also those that only a type checker sees."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            found |= {node.module} if node.module else {name.name for name in node.names}
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    left = {path.stem: imported_by(path) for path in PACKAGE.glob("*.py") if path.stem != "__init__"}
    while free := {name for name, needs in left.items() if not needs & set(left)}:
        left = {name: needs for name, needs in left.items() if name not in free}
    assert not left


def test_no_class_derives_from_one_of_a_client_library() -> None:
    for path in PACKAGE.glob("*.py"):
        tree = ast.parse(path.read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
        theirs = {name.name for node in imports if node.module.startswith(("redis", "valkey")) for name in node.names}
        bases = {ast.unparse(base) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases}
        assert not [base for base in bases if base in theirs or base.startswith(("redis.", "valkey."))], path
