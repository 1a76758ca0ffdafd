"""What was measured, as numbers that can be compared: medians over the rounds, their spread, and ratios.

A ratio compares with INCR of the same round. The median over the rounds is taken of these ratios, so a slow round does
not change it. For methods of clients the base is INCR by the same client. `cpu_ratio` compares the times that the
server's core worked, which are steadier on a busy machine.
"""

import json
import platform
from statistics import median

from . import roundtrips
from .rows import INCR


def spread(values):
    return {"median": median(values), "min": min(values), "max": max(values)}


def ratios(samples, base):
    return spread([sample.rate / other.rate for sample, other in zip(samples, base, strict=True)])


def row_result(row, samples, base, first):
    """`base` is INCR, `first` the smallest of the row's series: the ratio to it shows the cost of growth."""
    rates = [sample.rate for sample in samples]
    return {
        "part": row.part,
        "name": row.name,
        "family": row.family,
        "series": row.series,
        "x": row.x,
        "command": " ".join(map(str, row.command)),
        "keys": row.keys,
        "rates": rates,
        "rate": spread(rates),
        "ratio": ratios(samples, base),
        "of_first": first and ratios(samples, first),
        "cpu_ratio": spread([other.cpu_us / sample.cpu_us for sample, other in zip(samples, base, strict=True)]),
        "cpu_us": spread([sample.cpu_us for sample in samples]),
        "busy": spread([sample.busy for sample in samples]),
    }


def method_result(method, times_us, base_us):
    return {
        "part": method.part,
        "name": method.name,
        "family": method.family,
        "trips": method.trips,
        "times_us": times_us,
        "us": spread(times_us),
        "ratio": spread([other / us for us, other in zip(times_us, base_us, strict=True)]),
    }


def gather(rows, methods, measured):
    """Everything that was measured, in the order of the rows."""
    base = measured.rows.get(INCR.name)
    base_us = measured.methods.get(roundtrips.BASE.name)
    results, first = [], {None: None}
    for row in rows:
        if row.name in measured.rows:
            samples = measured.rows[row.name]
            results.append(row_result(row, samples, base, first.setdefault(row.series, samples)))
    results += [method_result(method, measured.methods[method.name], base_us) for method in methods]
    return results


def memory_result(kind, bytes_a_key):
    return {"part": kind.part, "name": kind.name, "family": kind.family, "bytes_a_key": round(bytes_a_key, 1)}


def hold_memory_result(kind, bytes_a_hold):
    return {"part": kind.part, "name": kind.name, "family": kind.family, "bytes_a_hold": round(bytes_a_hold, 1)}


def write(path, report):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**report, "python": platform.python_version()}, indent=1) + "\n")


def read(path):
    return json.loads(path.read_text())
