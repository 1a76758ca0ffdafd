"""The tables, on stdout: what was measured, then under which conditions.

A ratio compares with INCR of the same round (the median of its runs), or with the smallest of a growing series. The
table shows its median over the rounds, then the least and the largest. A row marked with * kept the server's core less
than nine tenths busy, because the client was slower or other processes had the core: a decision then costs less than
the rate says. The last two columns are the time of the server's core per decision: in microseconds, and as INCR's time
divided by it, so that more is better here too.
"""

BUSY = 0.9


def spread_text(spread, form):
    return f"{spread['median']:{form}}  ({spread['min']:{form}} .. {spread['max']:{form}})"


def off_by(spread):
    """The distance between the extremes, as a fraction of the median."""
    return (spread["max"] - spread["min"]) / spread["median"]


def table(title, columns, lines):
    """A table of text: the first column left-aligned, the others right-aligned."""
    if not lines:
        return
    widths = [max(map(len, column)) for column in zip(columns, *lines)]
    print(f"\n{title}\n")
    for line in [columns, ["-" * width for width in widths], *lines]:
        cells = [f"{cell:>{width}}" for cell, width in zip(line, widths)]
        print("  ".join([f"{line[0]:<{widths[0]}}", *cells[1:]]))


def rate_lines(results, ratio):
    for result in results:
        mark = "*" if result["busy"]["median"] < BUSY else ""
        yield [
            result["name"] + mark,
            f"{result['rate']['median']:,.0f}",
            f"{off_by(result['rate']):.0%}",
            spread_text(result[ratio], ".2f"),
            f"{result['cpu_us']['median']:.2f}",
            f"{result['cpu_ratio']['median']:.2f}",
        ]


def method_lines(results):
    for result in results:
        yield [
            result["name"],
            str(result["trips"]),
            f"{result['us']['median']:.1f}",
            f"{off_by(result['us']):.0%}",
            spread_text(result["ratio"], ".2f"),
        ]


# For each kind of row: its title, and what its ratio compares with.
RATES = {
    "throughput": ("One decision after the other, pipelined", "ratio", "of INCR a second"),
    "limits": ("Filled logs, as the limit grows", "of_first", "of the least limit"),
    "keys": ("As the number of keys grows", "of_first", "of one key"),
}


def show(report):
    by_part = {}
    for result in report["results"]:
        by_part.setdefault(result["part"], []).append(result)
    for part, (title, ratio, of_what) in RATES.items():
        columns = ["", "a second", "spread", of_what, "server's us", "of INCR"]
        table(title, columns, list(rate_lines(by_part.get(part, []), ratio)))
    columns = ["", "round trips", "us a decision", "spread", "of INCR"]
    table("One client that waits for each reply", columns, list(method_lines(by_part.get("roundtrips", []))))
    memory = [[result["name"], f"{result['bytes_a_key']:,.0f}"] for result in by_part.get("memory", [])]
    table("Memory, with the key, its name and its expiry", ["", "bytes a key"], memory)

    held = [
        [result["name"], f"{result['cpu_us']:.2f}", f"{result['of_incr']:.2f}"] for result in by_part.get("holds", [])
    ]
    table("Holds, beside scripts", ["", "server's us", "of INCR's"], held)
    grown = [
        [result["name"], *(f"{us:.2f}" for us in result["us"].values()), f"{result['of_least']:.2f}"]
        for result in by_part.get("hold growth", [])
    ]
    counts = [f"us, {int(holds):,} holds" for result in by_part.get("hold growth", [])[:1] for holds in result["us"]]
    table("Inside of the command, as a key has more holds", ["", *counts, "ratio"], grown)
    of_holds = [[result["name"], f"{result['bytes_a_hold']:,.1f}"] for result in by_part.get("hold memory", [])]
    table("Memory of holds", ["", "bytes a hold"], of_holds)

    pools = [
        [
            result["name"],
            f"{result['jobs_a_second']:,.0f}",
            f"{result['of_the_slots']:.0%}",
            f"{result['cpu_us_a_job']:.1f}",
            f"{result['calls_a_job']:.1f}",
            f"{result['served']:.0f}",
            f"{result['longest_wait_s']:.1f}",
        ]
        for result in by_part.get("waiting", [])
    ]
    columns = ["", "jobs a second", "of what the slots carry", "server's us a job", "calls a job", "workers served", "longest wait, s"]
    table("A thousand workers behind ten slots", columns, pools)
    handed = [
        [result["name"], f"{result['median_ms']:.2f}", f"{result['p99_ms']:.2f}"]
        for result in by_part.get("waiting handover", [])
    ]
    table("From RL.SETTLE to the reply of the waiting client", ["", "ms, median", "ms, 99 of 100 within"], handed)
    idle = [
        [result["name"], f"{result['connected']:.2f}", f"{result['waiting']:.2f}"]
        for result in by_part.get("waiting idle", [])
    ]
    table("The server's core while nothing happens", ["", "ms a second, connected", "ms a second, waiting"], idle)

    print()
    for name, why in report["skipped"].items():
        print(f"Skipped: {name}: {why}")
    for warning in report["warnings"]:
        print(f"Note: {warning}")
    load, machine = report["load"], report["machine"]
    beside = "".join(f", {text}" for text in report["beside"])
    print(f"{report['server']} ({report['version']}){beside}; {machine['cores']} cores, {machine['cpu']}")
    print(
        f"median of {report['rounds']} rounds of {load['requests']:,} requests (Lua a quarter), "
        f"{load['connections']} connections, pipeline of {load['pipeline']}"
    )
    before, after = report["load_average"]
    print(f"load average before {before}, after {after} (a benchmark alone causes about 2)")
