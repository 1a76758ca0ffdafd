"""The picture: what tells the peers apart, one row each."""

from statistics import median

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt  # noqa: E402 (the backend is chosen first)

from benches.server.plots import COLOURS, STYLE, save  # noqa: E402
from benches.server.rows import NATIVE, OURS  # noqa: E402

from .page import BY_NAME, value_of  # noqa: E402
from .peers import PEERS  # noqa: E402

PANELS = {
    "two rules, the long one first": "admitted of what\ntwo rules allow",
    "waits too early": "waits that are\ntoo short",
    "waits too late": "waits that are\ntoo long",
    "one clock ahead": "admitted, with\none clock 5 s ahead",
    "the server's time": "server's time\n÷ INCR",
    "bytes after one request": "bytes a key",
}


def draw(found, path):
    shown = [peer for peer in PEERS if peer.key in found["peers"]]
    rows = range(len(shown))
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(1, len(PANELS), sharey=True, figsize=(11, 0.21 * len(shown) + 1.1), layout="constrained")
        for axes, (name, title) in zip(grid, PANELS.items()):
            values = [value_of(found, peer, BY_NAME[name]) for peer in shown]
            # a bar is cut off at the edge, its figure is not
            edge = max(4 * median(value for value in values if value is not None), 1) if any(values) else 1
            edge = min(edge, max((value or 0 for value in values), default=1) or 1)
            colours = [COLOURS[OURS if peer.ours else NATIVE] for peer in shown]
            axes.barh(rows, [min(value or 0, edge) for value in values], height=0.72, color=colours)
            for row, value in zip(rows, values):
                text = (
                    ("none" if "waits" in name else "–") if value is None else f"{value:,.0f}" if value > 20 else f"{value:.2f}"
                )
                axes.annotate(
                    text, (min(value or 0, edge), row), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7
                )
            axes.set_title(title, loc="left", fontsize=9)
            axes.set_xlim(0, 1.35 * edge)
            axes.set_xticks([])
            axes.tick_params(axis="y", length=0)
            axes.spines["bottom"].set_visible(False)
        grid[0].set_yticks(rows, [peer.key for peer in shown])
        grid[0].set_ylim(len(shown) - 0.4, -0.6)
        save(figure, path)
