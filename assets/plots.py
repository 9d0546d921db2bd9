"""Plots for metadata: PNG embedded in Markdown, which needs no file and no host."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pipelines.lake.runs import MicroBatch

RULES_SHOWN = 25
_LABEL = 40
_TICKS = 8
_BLUE, _ORANGE, _GREY = "#3b6fb6", "#d98b2b", "#8a8a8a"


def matches_per_rule(title: str, counts: Sequence[tuple[Any, int]]) -> str:
    """A bar chart of the rules with most matches, as a Markdown image; counts: rule and matches, most first."""
    from matplotlib.figure import Figure

    shown = list(reversed(counts[:RULES_SHOWN]))
    figure = Figure(figsize=(8, 0.9 + 0.26 * len(shown)), dpi=80, layout="constrained")
    axes = figure.subplots()
    names = [str(rule) if len(str(rule)) <= _LABEL else f"{str(rule)[: _LABEL - 1]}…" for rule, _ in shown]
    bars = axes.barh(range(len(shown)), [count for _, count in shown], color=_BLUE)
    axes.set_yticks(range(len(shown)), names)
    axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=8)
    axes.margins(x=0.12)
    more = f" ({RULES_SHOWN} of {len(counts):,} rules)" if len(counts) > RULES_SHOWN else ""
    axes.set_title(f"{title}: matches per rule{more}", fontsize=10)
    axes.set_xlabel("matches in the newest micro-batches")
    axes.spines[["top", "right"]].set_visible(False)
    return _image("matches per rule", figure)


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
