"""Plots for metadata: PNG embedded in Markdown, which needs no file and no host."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pipelines.lake.runs import MicroBatch

RULES_SHOWN = 25
_LABEL = 40
_TICKS = 8
_SMALL_PLOTS, _PLOTS_IN_ROW = 19, 4
_BLUE, _ORANGE, _GREY = "#3b6fb6", "#d98b2b", "#8a8a8a"


def _plain(plot: Callable[..., str]) -> Callable[..., str]:
    """Lets a plot have any names: `$` begins no formula, and letters that the font lacks give boxes, not warnings."""

    @wraps(plot)
    def drawn(*arguments: Any) -> str:
        import matplotlib

        with matplotlib.rc_context({"text.parse_math": False}), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
            return plot(*arguments)

    return drawn


@_plain
def matches_per_rule(title: str, counts: Sequence[tuple[Any, int]]) -> str:
    """A bar chart of the rules with most matches, as a Markdown image; counts: rule and matches, most first."""
    from matplotlib.figure import Figure

    shown = list(reversed(counts[:RULES_SHOWN]))
    figure = Figure(figsize=(8, 0.9 + 0.26 * len(shown)), dpi=80, layout="constrained")
    axes = figure.subplots()
    names = [_shortened(str(rule), _LABEL) for rule, _ in shown]
    bars = axes.barh(range(len(shown)), [count for _, count in shown], color=_BLUE)
    axes.set_yticks(range(len(shown)), names)
    axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=8)
    axes.margins(x=0.12)
    more = f" ({RULES_SHOWN} of {len(counts):,} rules)" if len(counts) > RULES_SHOWN else ""
    axes.set_title(f"{title}: matches per rule{more}", fontsize=10)
    axes.set_xlabel("matches in the newest micro-batches")
    axes.spines[["top", "right"]].set_visible(False)
    return _image("matches per rule", figure)


@_plain
def rows_and_matches(title: str, batches: Sequence[MicroBatch]) -> str:
    """Rows and matches of each micro-batch, as a Markdown image; batches: finished ones, ascending by number."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6), dpi=80, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    places = range(len(batches))
    refused = [batch.quarantined or 0 for batch in batches]
    sound = [(batch.rows or 0) - each for batch, each in zip(batches, refused, strict=True)]
    above.bar(places, sound, color=_BLUE, label="rows")
    if any(refused):
        above.bar(places, refused, bottom=sound, color=_GREY, label="in quarantine")
        above.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    below.bar(places, [batch.matches or 0 for batch in batches], color=_ORANGE)
    first, last = batches[0].started_at, batches[-1].started_at
    above.set_title(f"{title}: micro-batches from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC", fontsize=10)
    below.set_xlabel("micro-batch")
    shown = places[:: -(-len(batches) // _TICKS)]
    below.set_xticks(shown, [str(batches[place].batch) for place in shown])
    for axes, label in ((above, "rows"), (below, "matches")):
        _tidy(axes, label)
    return _image("rows and matches", figure)


@_plain
def matches_over_time(
    title: str, starts: Sequence[str], matched: Sequence[int], rules: Sequence[Mapping[str, Any]]
) -> str:
    """Small plots over event time, as a Markdown image: all rows with a match, then each rule's matches.

    starts: beginnings of the periods, local; matched: by period, rows with a match; rules: those with most matches
    first, each with `id` and `over_time`, its matches by period.
    """
    from matplotlib.figure import Figure

    plotted = [("any rule", matched, _ORANGE)]
    plotted += [(rule["id"], rule["over_time"], _BLUE) for rule in rules[:_SMALL_PLOTS] if rule["over_time"]]
    rows = -(-len(plotted) // _PLOTS_IN_ROW)
    figure = Figure(figsize=(8, 0.6 + 1.1 * rows), dpi=80, layout="constrained")
    places = range(len(starts))
    for axes, plot in zip_longest(figure.subplots(rows, _PLOTS_IN_ROW, squeeze=False).flat, plotted):
        if plot is None:
            axes.set_axis_off()
            continue
        name, counts, colour = plot
        axes.fill_between(places, counts, step="mid", color=colour, linewidth=0)
        axes.set_title(_shortened(str(name), 22), fontsize=8, loc="left")
        axes.set_ylim(0, max(*counts, 1))
        axes.set_xticks([])
        axes.set_yticks([max(counts)], [f"{max(counts):,}"], fontsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{title}: rows that match, {starts[0]} to {starts[-1]}", fontsize=10)
    return _image("matches over time", figure)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _tidy(axes: Axes, label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.spines[["top", "right"]].set_visible(False)


def _image(name: str, figure: Figure) -> str:
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return f"![{name}](data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()})"
