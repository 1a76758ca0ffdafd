#!/usr/bin/env python3
"""Breaks copies of the packages, each in one place, and says whether the suite finds it: planted.py [DRIVER...]"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Fault(NamedTuple):
    about: str
    driver: str
    file: str
    right: str
    wrong: str
    #: The tests that are run: some of the suite, so that a fault takes seconds.
    tests: str


PYTHON, NODE, RUST, GO = "clients/python/src/rl_limits", "clients/node/src", "clients/rust/src", "clients/go"
FAULTS = [
    Fault(
        "any lost request makes the node go away",
        "python-redis-py",
        f"{PYTHON}/_nodes.py",
        'if lost.stage != "connect" and (',
        "if False and (",
        "test_laws",
    ),
    Fault(
        "a lost check is sent again",
        "python-redis-py",
        f"{PYTHON}/_nodes.py",
        '(lost.stage == "write" or (command.again and not is_late(lost.error)))',
        "True",
        "test_laws",
    ),
    Fault(
        "a settlement is tried once",
        "python-asyncio",
        f"{PYTHON}/_unsettled.py",
        "bool(self._pending) and self.place() not in self._settlers",
        "False",
        "test_holds",
    ),
    Fault(
        "a cost may be negative",
        "python-redis-py",
        f"{PYTHON}/_given.py",
        "0 <= ",
        "-(10**9) <= ",
        "test_values",
    ),
    Fault(
        "a child has its parent's lease",
        "python-redis-py",
        f"{PYTHON}/_fork.py",
        "        one.after_fork()\n",
        "        pass\n",
        "test_processes",
    ),
    Fault(
        "any lost request makes the node go away",
        "node-ioredis",
        f"{NODE}/node.ts",
        "if (!link.answered) return this.#leave(error);",
        "return this.#leave(error);",
        "test_laws",
    ),
    Fault(
        "a lost check is sent again",
        "node-ioredis",
        f"{NODE}/node.ts",
        "if (request.repeatable) {",
        "if (true) {",
        "test_laws",
    ),
    Fault(
        "a cost may be negative",
        "node-redis",
        f"{NODE}/request.ts",
        "integer(0, MOST_UNITS)",
        "integer(-1000, MOST_UNITS)",
        "test_values",
    ),
    Fault(
        "a settlement is tried once",
        "node-redis",
        f"{NODE}/settler.ts",
        "if (!this.#runs) void this.#run();",
        "",
        "test_holds",
    ),
    Fault(
        "the line keeps what it served",
        "node-ioredis",
        f"{NODE}/places.ts",
        "this.#line = this.#line.slice(this.#first);\n        this.#first = 0;",
        "",
        "test_processes",
    ),
    Fault(
        "any lost request makes the node go away",
        "rust",
        f"{RUST}/node.rs",
        "if is_silent || why == Why::Unreachable {",
        "if is_silent || why != Why::Unwritten {",
        "test_laws",
    ),
    Fault(
        "a lost check is sent again",
        "rust",
        f"{RUST}/node.rs",
        "Why::Unanswered, .. }) if repeats =>",
        "Why::Unanswered, .. }) if repeats || !asking =>",
        "test_laws",
    ),
    Fault(
        "a cost may be anything",
        "rust",
        f"{RUST}/value.rs",
        "expect(units <= MOST_UNITS,",
        "expect(units <= u64::MAX,",
        "test_values",
    ),
    Fault(
        "any lost request makes the node go away",
        "go",
        f"{GO}/node.go",
        "case failed.isNew:",
        "case failed.isNew, failed.wrote:",
        "test_laws",
    ),
    Fault(
        "a lost check is sent again",
        "go",
        f"{GO}/node.go",
        "return repeatable, outage",
        "return true, outage",
        "test_laws",
    ),
    Fault(
        "a settlement is tried once",
        "go",
        f"{GO}/hold.go",
        "s.l.background(s.run)",
        "",
        "test_holds",
    ),
    Fault(
        "a cost may be negative",
        "go",
        f"{GO}/question.go",
        "if units < 0 ||",
        "if units < -1000 ||",
        "test_values",
    ),
    Fault(
        "the line keeps what it served",
        "go",
        f"{GO}/check.go",
        "defer context.AfterFunc(e.ctx, cancel)()",
        "context.AfterFunc(e.ctx, cancel)",
        "test_processes",
    ),
]


def copied(to: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    for name in listed.stdout.decode().split("\0")[:-1]:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(ROOT / name):
            shutil.copy2(ROOT / name, to / name, follow_symlinks=False)
    (to / "clients/node/node_modules").symlink_to(ROOT / ".cache/clients-node/node_modules")


def build(tree: Path, driver: str) -> None:
    if driver.startswith("node"):
        subprocess.run(["npm", "run", "--silent", "build"], cwd=tree / "clients/node", check=True)
    if driver == "go":
        program = tree / "target/conformance/go"
        subprocess.run(["go", "build", "-o", program, "."], cwd=tree / "clients/conformance/drivers/go", check=True)
    if driver == "rust":
        folders = "--manifest-path", tree / "clients/Cargo.toml", "--target-dir", ROOT / "target/planted"
        subprocess.run(["cargo", "build", "--quiet", *folders, "--locked", "--package", "conformance-rust"], check=True)


def is_found(tree: Path, fault: Fault) -> bool:
    file = tree / fault.file
    text = file.read_text()
    assert text.count(fault.right), f"{fault.file} has no longer {fault.right!r}"
    file.write_text(text.replace(fault.right, fault.wrong))
    build(tree, fault.driver)
    paths = f"{tree / 'clients/python/src'}:{os.environ['PYTHONPATH']}"
    chosen = {"DRIVERS": fault.driver, "CONFORMANCE_TREE": str(tree), "PYTHONPATH": paths}
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-n", "4", f"suite/{fault.tests}.py"]
    done = subprocess.run(command, cwd=HERE, env={**os.environ, **chosen}, stdout=subprocess.PIPE, text=True)
    file.write_text(text)
    return done.returncode == 1 and " failed" in done.stdout and " passed" in done.stdout


def main() -> None:
    wanted = sys.argv[1:] or sorted({fault.driver for fault in FAULTS})
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copied(Path(folder))
        missed = []
        for fault in FAULTS:
            if fault.driver in wanted:
                found = is_found(Path(folder), fault)
                print(f"{'found ' if found else 'MISSED'} {fault.driver}: {fault.about}", flush=True)
                missed += [] if found else [fault]
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
