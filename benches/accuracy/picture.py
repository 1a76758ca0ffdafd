"""Small multiples on one time axis: the requests, and one row per algorithm."""

from bisect import bisect_left, bisect_right

import matplotlib

matplotlib.use("svg")
from arrivals import ACROSS_A_MINUTE, BURST, FLOOD, MINUTE_US, MINUTES, SECOND_US  # noqa: E402
from matplotlib import pyplot  # noqa: E402

INK, FAINT, GRID = "#24292f", "#6e7781", "#e4e7eb"
CAME, THROUGH, BEYOND = "#c4cad1", "#2f74b5", "#d9534a"
BAR_US = 5 * SECOND_US
POINT_US = 2 * SECOND_US
IN_SHORT = {
    "log": "never more than the limit in any minute",
    "window": "assumes that the minute before was evenly filled",
    "fixed": "a new limit in each minute of the clock",
    "bucket": "first a burst, then the steady rate",
    "leaky": "one after another, each when its turn comes",
}
STYLE = {
    "svg.fonttype": "path",  # the same for every reader, with any fonts
    "svg.hashsalt": "accuracy",
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
}


def minutes(time_us):
    return time_us / MINUTE_US


def bars(axes, times, color):
    """Draws how many of these times fall into each five seconds."""
    edges = range(0, MINUTES * MINUTE_US + 1, BAR_US)
    counts = [bisect_left(times, edge + BAR_US) - bisect_left(times, edge) for edge in edges[:-1]]
    axes.stairs(counts, [minutes(edge) for edge in edges], color=color, fill=True, linewidth=0)


def in_minute_before(times):
    """How many requests passed in the minute before each point of the curve."""
    ends = range(0, MINUTES * MINUTE_US + 1, POINT_US)
    counts = [bisect_right(times, end) - bisect_right(times, end - MINUTE_US) for end in ends]
    return [minutes(end) for end in ends], counts


def name_row(axes, name, rule):
    axes.text(-0.205, 0.86, name, transform=axes.transAxes, weight="bold", size=10.5, va="top")
    axes.text(-0.205, 0.56, rule, transform=axes.transAxes, size=8, va="top", color=FAINT, family="DejaVu Sans Mono")


def tidy(axes, ticks):
    axes.set_yticks(ticks)
    axes.tick_params(length=0)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def draw_arrivals(axes, times):
    bars(axes, times, CAME)
    tidy(axes, [])
    top = axes.get_ylim()[1]
    for (begin, end, count), words in [
        (ACROSS_A_MINUTE, "{count} in {seconds} s, half in the next minute"),
        (FLOOD, "{rate} a minute for {minutes} min"),
        (BURST, "{count} in {seconds} s"),
    ]:
        words = words.format(count=count, seconds=end - begin, rate=count * 60 // (end - begin), minutes=(end - begin) / 60)
        axes.text((begin + end) / 120, top * 1.02, words, ha="center", va="bottom", size=8, color=FAINT)
    name_row(axes, "requests", "")


def draw_result(axes, strip, times, result, limit, top):
    at, counts = in_minute_before(result.times)
    within = [min(count, limit) for count in counts]
    axes.fill_between(at, within, color=THROUGH, alpha=0.28, linewidth=0)
    axes.fill_between(at, counts, within, [count > limit for count in counts], color=BEYOND, alpha=0.45, linewidth=0)
    axes.plot(at, counts, color=THROUGH, linewidth=1.1)
    axes.axhline(limit, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))

    in_last_minute = result.in_last_minute()
    most = max(in_last_minute)
    when = minutes(result.times[in_last_minute.index(most)])
    axes.plot(when, most, "o", color=INK, markersize=4, clip_on=False)
    axes.annotate(f"at most {most}", (when, most), (5, 3), textcoords="offset points", weight="bold")
    axes.set_ylim(0, top)
    tidy(axes, [0, limit, 2 * limit])
    axes.spines["bottom"].set_visible(False)

    bars(strip, times, CAME)
    bars(strip, result.times, THROUGH)
    tidy(strip, [])
    algorithm = result.rule.split(":")[0]
    axes.text(MINUTES, 2.08 * limit, IN_SHORT[algorithm], ha="right", va="top", size=8, style="italic", color=FAINT)
    name_row(axes, algorithm, f"{result.rule}\n{len(result.times)} of {len(times)}")


def draw(times, results, limit, path):
    """`times` are the times of all requests. Each result has a rule, and the times of the requests that passed."""
    top = 1.12 * max(max(result.in_last_minute()) for result in results)
    with pyplot.rc_context(STYLE):
        figure = pyplot.figure(figsize=(8.8, 9.4), facecolor="white")
        heights = [0.7] + [0.3, 1.2, 0.42] * len(results)
        grid = figure.add_gridspec(
            len(heights), 1, height_ratios=heights, hspace=0.06, left=0.185, right=0.975, top=0.905, bottom=0.05
        )
        first = figure.add_subplot(grid[0])
        draw_arrivals(first, times)
        for row, result in enumerate(results):
            axes = figure.add_subplot(grid[3 * row + 2], sharex=first)
            strip = figure.add_subplot(grid[3 * row + 3], sharex=first)
            draw_result(axes, strip, times, result, limit, top)
        first.set_xlim(0, MINUTES)
        first.set_xticks(range(MINUTES + 1))
        for axes in figure.axes[:-1]:
            axes.tick_params(labelbottom=False)
        figure.axes[-1].set_xlabel("minutes", color=FAINT)
        figure.text(0.02, 0.975, f"The same {len(times):,} requests under a limit of {limit} a minute", size=13, weight="bold")
        figure.text(
            0.02, 0.953, "curve: let through in the last minute   ·   bars: requests in five seconds, and those let through",
            size=8.5, color=FAINT,
        )
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
