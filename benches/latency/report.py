"""Medians over the rounds, and the table in Markdown.

A ratio compares with INCR in the same scene, at the same rate and in the same round. If INCR's own p99.9
differs between rounds by more than a factor of two, the machine causes the tails, and the table says so.
"""

from statistics import median

from benches.server.results import spread

from .cases import INCR

QUANTILES = ["p50", "p99", "p99.9", "worst"]
STEADY = 2
# The load is late if it sent 0.1 % of its requests later than this.
LATE_US = 200


def mean_events(points):
    """For each slow task of the server itself, the median of its worst times in the rounds that had it."""
    names = sorted({name for point in points for name in point.get("events_ms", {})})
    return {name: median([point["events_ms"][name] for point in points if name in point["events_ms"]]) for name in names}


def result(scene, case, rate, points, base):
    """The results of a case over the rounds. `base` has what the rounds measured of INCR."""

    def each(read):
        return spread([read(point) for point in points])

    def ratio(quantile):
        return spread([point["us"][quantile] / other["us"][quantile] for point, other in zip(points, base, strict=True)])

    optional = {name: each(lambda point: point[name]) for name in ("cpu_us", "replica_bytes") if name in points[0]}
    return {
        "scene": scene.name,
        "name": case.name,
        "family": case.family,
        "command": " ".join(map(str, case.words)),
        "rate": rate,
        "a_second": each(lambda point: point["rate"]),
        "unsent": each(lambda point: point["unsent"]),
        "us": {quantile: each(lambda point: point["us"][quantile]) for quantile in QUANTILES},
        "ratio": {quantile: ratio(quantile) for quantile in QUANTILES},
        "late_us": each(lambda point: point["late_us"]["p99.9"]),
        "preempted": each(lambda point: point["preempted"]),
        "events_ms": mean_events(points),
        **optional,
    }


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cells(row):
    late = row["late_us"]["median"]
    ratio = row["ratio"]["p99.9"]
    yield row["name"] + (" (slower than the rate)" if row["unsent"]["median"] else "")
    yield f"{row['a_second']['median']:,.0f}"
    yield from (number(row["us"][quantile]["median"]) for quantile in QUANTILES)
    yield from (f"{row['ratio'][quantile]['median']:.2f}" for quantile in ("p50", "p99"))
    yield f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"
    yield f"{row['cpu_us']['median']:.1f}" if "cpu_us" in row else ""
    yield number(late) + (" !" if late > LATE_US else "")
    yield f"{row['preempted']['median']:,.0f}"
    yield f"{row['replica_bytes']['median']:.0f}" if "replica_bytes" in row else ""
    yield ", ".join(f"{name} {worst:.0f} ms" for name, worst in row["events_ms"].items())


COLUMNS = ["", "a second", "p50 µs", "p99 µs", "p99.9 µs", "worst µs", "p50 ÷ INCR's", "p99 ÷ INCR's", "p99.9 ÷ INCR's"]
COLUMNS += ["server's µs", "load late µs", "preempted", "bytes to a replica", "the server's own slow tasks"]


def table(rows):
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|" + "---|" * len(COLUMNS)
    yield from ("| " + " | ".join(cells(row)) + " |" for row in rows)


def unsteady(rows):
    """The reasons not to trust the tails of these rows."""
    for row in rows:
        tail = row["us"]["p99.9"]
        if row["name"] == INCR.name and tail["max"] > STEADY * tail["min"]:
            yield f"`INCR`'s p99.9 was between {number(tail['min'])} and {number(tail['max'])} µs in these rounds"
    late = [row["name"] for row in rows if row["late_us"]["median"] > LATE_US]
    if late:
        yield f"the load itself sent 0.1 % of its requests over {LATE_US} µs late: {', '.join(late)}"


def markdown(report):
    """All tables, as lines."""
    machine = report["machine"]
    yield f"{report['server']}, {machine['cores']} cores, {machine['cpu']}; {report['connections']} connections without pipelines;"
    before, after = report["load_average"]
    yield f"medians of {report['rounds']} rounds of {report['seconds']} s each; load average {before} before, {after} after."
    for warning in report["warnings"]:
        yield f"\nNote: {warning}"
    groups = {}
    for row in report["results"]:
        groups.setdefault((row["scene"], row["rate"]), []).append(row)
    for (scene, rate), rows in groups.items():
        yield f"\n{scene}, {f'{rate:,} a second' if rate else 'as fast as replies come'}\n"
        yield from table(rows)
        yield from (f"\nNot steady: {reason}." for reason in unsteady(rows))
