#!/usr/bin/env python3
"""HTTP fields from a `FULL` reply, after draft-ietf-httpapi-ratelimit-headers-11.

    redis-cli --json RL.PEEK key FULL 10/s | fields.py
"""

import json
import sys


def seconds(ms):
    """Whole seconds, rounded up, so that a client that waits this long is not too early."""
    return -(-ms // 1000)


def fields(reply):
    policies, rates = [], []
    # A rule on trial limits nobody, so clients do not see it.
    for rule in (rule for rule in reply["rules"] if not rule["shadow"]):
        name = f'"{rule["name"] or rule["rule"]}"'
        period_ms = rule["period_ms"]
        if not period_ms:
            policies.append(f'{name};q={rule["limit"]};qu="concurrent-requests"')
        else:
            window = f";w={period_ms // 1000}" if period_ms % 1000 == 0 else ""
            policies.append(f'{name};q={rule["quota"]}{window}')
        until_ms = rule["wait_ms"] if rule["verdict"] else rule["reset_ms"]
        # No time if the request can never pass.
        time = f";t={seconds(until_ms)}" if until_ms >= 0 else ""
        rates.append(f'{name};r={rule["remaining"]}{time}')
    found = {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(rates)}
    if reply["verdict"] and reply["wait_ms"] >= 0:
        found["Retry-After"] = str(seconds(reply["wait_ms"]))
    return {name: value for name, value in found.items() if value}


def problem(reply):
    """The body of a 429, a problem of RFC 9457."""
    violated = [rule["name"] or rule["rule"] for rule in reply["rules"] if rule["verdict"]]
    kind = "https://iana.org/assignments/http-problem-types#quota-exceeded"
    return {"type": kind, "title": "Too many requests", "status": 429, "violated-policies": violated}


if __name__ == "__main__":
    for name, value in fields(json.load(sys.stdin)).items():
        print(f"{name}: {value}")
