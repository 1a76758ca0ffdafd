#!/usr/bin/env python3
"""HTTP fields from a `FULL` reply, after draft-ietf-httpapi-ratelimit-headers-11.

    redis-cli --json RL.PEEK key FULL 10/s | fields.py
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / folder) for folder in ("clients/python/src", ".cache/python")]

from rl_limits._replies import to_report  # noqa: E402
from rl_limits.http import fields  # noqa: E402

for name, value in fields(to_report(json.load(sys.stdin), "")).items():
    print(f"{name}: {value}")
