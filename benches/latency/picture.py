"""The picture: for each case a line from its median to its worst reply, on a logarithmic axis."""

import matplotlib.pyplot as plt

from benches.server.plots import COLOURS, LABELS, STYLE, Patch, save

from .cases import THROTTLECRAB
from .report import QUANTILES
from .scenes import ALONE

FAMILIES = {**COLOURS, THROTTLECRAB: "#4c8c4a"}
NAMES = {**LABELS, THROTTLECRAB: "throttlecrab-server"}
MARKERS = dict(zip(QUANTILES, "o|Dx"))


def lines(axes, results, title, name):
    axes.set_xscale("log")
    for place, result in enumerate(results):
        values = [result["us"][quantile]["median"] for quantile in QUANTILES]
        colour = FAMILIES[result["family"]]
        axes.hlines(place, values[0], values[-1], color=colour, linewidth=2, alpha=0.4)
        for marker, value in zip(MARKERS.values(), values):
            axes.plot(value, place, marker, color=colour, markersize=6)
    axes.set_yticks(range(len(results)), [name(result) for result in results])
    axes.set_ylim(len(results) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_title(title, loc="left", fontweight="bold")


def draw(report, path):
    """Draws the scene `alone` at the rate of the other scenes, and below it those scenes. Returns whether there was
    any result."""
    alone = [result for result in report["results"] if result["scene"] == ALONE and result["rate"] == report["scene_rate"]]
    others = [result for result in report["results"] if result["scene"] != ALONE]
    rate = f"{report['scene_rate']:,} requests a second"
    parts = [(alone, f"Microseconds until the reply, {rate}", lambda result: result["name"])]
    parts += [(others, "While the server does something else", lambda result: f"{result['name']}: {result['scene']}")]
    parts = [part for part in parts if part[0]]
    if not parts:
        return False
    with plt.rc_context(STYLE):
        heights = [len(shown) + 1.5 for shown, *_ in parts]
        size = (8.5, 0.22 * sum(heights) + 0.6)
        figure, grid = plt.subplots(len(parts), squeeze=False, sharex=True, figsize=size, height_ratios=heights, layout="constrained")
        for axes, part in zip(grid[:, 0], parts):
            lines(axes, *part)
        families = dict.fromkeys(result["family"] for shown, *_ in parts for result in shown)
        shown = [Patch(color=FAMILIES[family], label=NAMES[family]) for family in families]
        shown += [plt.Line2D([], [], marker=marker, color="#222222", linestyle="", label=name) for name, marker in MARKERS.items()]
        figure.legend(handles=shown, loc="outside lower center", ncols=5, frameon=False, handlelength=1)
        save(figure, path)
    return True
