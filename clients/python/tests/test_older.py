"""Tests of the package with the oldest redis-py that it takes, and with one between that and the newest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import servers

HERE = Path(__file__).parent
PINS = (HERE.parent / "older.txt").read_text().split()
OLDER = servers.ROOT / ".cache/clients-python/older"
TESTS = ["test_limiter.py", "test_saturation.py", "test_cancelled.py"]


@pytest.mark.skipif(not servers.LONG, reason="`make test-long` runs this")
@pytest.mark.parametrize("pin", [pin for pin in PINS if pin.startswith("redis==")])
def test_the_package_works_with_an_older_redis_py(pin: str) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(OLDER / pin), *sys.path])}
    env["RATELIMIT_ONLY"] = servers.NAMES[-1]
    version = [sys.executable, "-B", "-c", "import redis; print(redis.__version__)"]
    assert subprocess.run(version, env=env, capture_output=True, text=True).stdout.strip() == pin.split("==")[1]
    tests = [sys.executable, "-B", "-m", "pytest", "-q", *(HERE / name for name in TESTS)]
    done = subprocess.run(tests, env=env, cwd=HERE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
