"""The pictures that docs/reference/performance.md shows.

Horizontal bars with their values, in the order of the rows, coloured by the family of the command. The background is
white, so that they can also be read on a dark page.
"""

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt  # noqa: E402 (the backend is chosen first)
from matplotlib.patches import Patch  # noqa: E402

from .rows import FLOOR, LUA, NATIVE, OURS, REDIS_CELL  # noqa: E402
from .roundtrips import CLIENT  # noqa: E402

COLOURS = {
    OURS: "#1f6f8b",
    NATIVE: "#9a9a9a",
    FLOOR: "#565656",
    REDIS_CELL: "#7b5ea7",
    LUA: "#d98324",
    CLIENT: "#b23a48",
}
LABELS = {
    OURS: "redis-ratelimit",
    NATIVE: "the server's own",
    FLOOR: "floors, in C",
    REDIS_CELL: "redis-cell",
    LUA: "Lua",
    CLIENT: "decided in the client",
}

STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "ratelimit",  # the same numbers give the same file
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


def save(figure, path):
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=110)
    plt.close(figure)


def bars(axes, results, value, text, error=None):
    """One bar per result, the first on top, with its value at its end and its spread as a thin line."""
    rows = range(len(results))
    values = [value(result) for result in results]
    axes.barh(rows, values, height=0.72, color=[COLOURS[result["family"]] for result in results])
    ends = values
    if error:
        spreads = [error(result) for result in results]
        axes.hlines(rows, *zip(*spreads), color="#222222", linewidth=1)
        ends = [max(end, spread[1]) for end, spread in zip(values, spreads)]
    for row, result, end in zip(rows, results, ends):
        axes.annotate(text(result), (end, row), xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_yticks(rows, [result["name"] for result in results])
    axes.set_ylim(len(results) - 0.4, -0.6)
    axes.set_xlim(0, max(ends) * 1.12)
    axes.tick_params(axis="y", length=0)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])


def whose(figure, results):
    """The legend under the bars: the family of each colour."""
    families = dict.fromkeys(result["family"] for result in results)
    patches = [Patch(color=COLOURS[family], label=LABELS[family]) for family in families]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), frameon=False, handlelength=1)


def ratio(result):
    return result["ratio"]["median"]


def ratio_spread(result):
    return result["ratio"]["min"], result["ratio"]["max"]


def throughput(results, report, path):
    rows = [result for result in results if result["part"] == "throughput"]
    methods = [result for result in results if result["part"] == "roundtrips"]
    parts = [(rows, f"Decisions a second, as a part of INCR; pipeline of {report['load']['pipeline']}")]
    parts += [(methods, "The same for one client that waits for each reply")]
    parts = [part for part in parts if part[0]]
    heights = [len(shown) + 1.5 for shown, _ in parts]
    figure, grid = plt.subplots(
        len(parts), squeeze=False, figsize=(8.5, 0.24 * sum(heights) + 0.4), height_ratios=heights, layout="constrained"
    )
    for axes, (shown, title) in zip(grid[:, 0], parts):
        bars(axes, shown, ratio, lambda result: f"{ratio(result):.2f}", ratio_spread)
        axes.set_title(title, loc="left", fontweight="bold")
    whose(figure, rows + methods)
    save(figure, path)


def memory(results, _, path):
    kinds = [result for result in results if result["part"] == "memory"]
    figure, axes = plt.subplots(figsize=(8.5, 0.24 * len(kinds) + 0.9), layout="constrained")
    bars(axes, kinds, lambda result: result["bytes_a_key"], lambda result: f"{result['bytes_a_key']:,.0f}")
    axes.set_title("Bytes a key, of 100,000 keys with names of 14 bytes", loc="left", fontweight="bold")
    whose(figure, kinds)
    save(figure, path)


def curves(results, part, unit, path):
    """The server's time per decision against what grows: one line per series, with its name at its end."""
    series = {}
    for result in (result for result in results if result["part"] == part):
        series.setdefault(result["series"], []).append(result)
    figure, axes = plt.subplots(figsize=(8.5, 3.6), layout="constrained")
    styles = ["-", "--"]
    drawn, ends = {}, []
    for name, points in series.items():
        family = points[0]["family"]
        style = styles[drawn.get(family, 0) % len(styles)]
        drawn[family] = drawn.get(family, 0) + 1
        xs = [point["x"] for point in points]
        ys = [point["cpu_us"]["median"] for point in points]
        axes.plot(xs, ys, style, marker="o", markersize=4, color=COLOURS[family])
        ends.append((ys[-1], name, COLOURS[family]))
    axes.set_xscale("log")
    axes.set_xticks(xs, [f"{x:,}" for x in xs])
    axes.minorticks_off()
    axes.set_xlabel(unit)
    axes.set_ylim(bottom=0)
    axes.set_title(f"Microseconds of the server's core a decision, by the {unit}", loc="left", fontweight="bold")
    room = axes.get_ylim()[1] / 18
    lowest = 0
    for y, name, colour in sorted(ends):
        lowest = max(y, lowest + room)
        axes.annotate(name, (xs[-1], lowest), xytext=(8, 0), textcoords="offset points", va="center", color=colour)
    save(figure, path)


def limits(results, _, path):
    curves(results, "limits", "limit of a filled log", path)


def keys(results, _, path):
    curves(results, "keys", "number of keys", path)


PICTURES = {"throughput": (throughput, ("throughput", "roundtrips")), "memory": (memory, ("memory",))}
PICTURES |= {"limits": (limits, ("limits",)), "keys": (keys, ("keys",))}


def draw_all(report, folder):
    """Draws all pictures, and returns their files."""
    results = report["results"]
    measured = {result["part"] for result in results}
    drawn = []
    with plt.rc_context(STYLE):
        for name, (draw, parts) in PICTURES.items():
            if measured.intersection(parts):
                draw(results, report, folder / name)
                drawn.append(folder / f"{name}.svg")
    return drawn
