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
    "two rules, the long one first": "admitted of what\ntwo rules allow\n(more is better)",
    "waits too early": "waits that are\ntoo short\n(less is better)",
    "waits too late": "waits that are\ntoo long\n(less is better)",
    "one clock ahead": "admitted, with\none clock 5 s ahead\n(1 is right)",
    "the server's time": "server's time\n÷ INCR\n(less is better)",
    "bytes after one request": "bytes a key\n\n(less is better)",
}

# The README's picture: one row for each way to limit, exactness beside speed.
FRONT = ["ours log", "ours window", "ours bucket", "redis-cell", "INCREX", "INCR, EXPIRE", "Lua GCRA", "Lua sorted set"]
FRONT += ["limits moving", "rate-limiter-flexible", "@upstash sliding", "redis_rate", "bucket4j"]
FRONT_PANELS = ["two rules, the long one first", "waits too early", "waits too late", "the server's time"]


def panel(axes, values, colours, title):
    """Horizontal bars. A bar is cut off at the edge, its figure is not."""
    measured = [value for value in values if value is not None]
    edge = min(max(4 * median(measured), 1), max(measured)) or 1 if measured else 1
    rows, none = range(len(values)), "none" if title.startswith("waits") else "–"
    axes.barh(rows, [min(value or 0, edge) for value in values], height=0.72, color=colours)
    for row, value in zip(rows, values):
        text = none if value is None else f"{value:,.0f}" if value > 20 else f"{value:.2f}"
        end = (min(value or 0, edge), row)
        axes.annotate(text, end, xytext=(3, 0), textcoords="offset points", va="center", fontsize=7)
    axes.set_title(title, loc="left", fontsize=9)
    axes.set_xlim(0, 1.35 * edge)
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0)
    axes.spines["bottom"].set_visible(False)


def picture(found, peers, names, path):
    colours = [COLOURS[OURS if peer.ours else NATIVE] for peer in peers]
    size = (1.5 * len(names) + 2, 0.21 * len(peers) + 1.3)
    figure, grid = plt.subplots(1, len(names), sharey=True, figsize=size, layout="constrained")
    for axes, name in zip(grid, names):
        panel(axes, [value_of(found, peer, BY_NAME[name]) for peer in peers], colours, PANELS[name])
    grid[0].set_yticks(range(len(peers)), [peer.key for peer in peers])
    grid[0].set_ylim(len(peers) - 0.4, -0.6)
    save(figure, path)


def draw(found, folder):
    """Draws both pictures, and returns their files."""
    measured = [peer for peer in PEERS if peer.key in found["peers"]]
    with plt.rc_context(STYLE):
        picture(found, measured, PANELS, folder / "peers")
        picture(found, [peer for peer in measured if peer.key in FRONT], FRONT_PANELS, folder / "front")
    return [folder / "peers.svg", folder / "front.svg"]
