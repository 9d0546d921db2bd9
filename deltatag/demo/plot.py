"""The demonstration's plot: how often each rule matched, before and after the rules were edited."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def plot_matches(path: Path, rules: Sequence[str], before: Sequence[float], after: Sequence[float]) -> None:
    """Write a PNG with two bars for each rule: matches per 1,000 flights under the first rules and the edited ones."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.26 * len(rules) + 1.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    rows = range(len(rules))
    axes.barh(
        [row - 0.2 for row in rows], before, height=0.4, color="#4c78a8", label="January to November, first rules"
    )
    axes.barh([row + 0.2 for row in rows], after, height=0.4, color="#f58518", label="December, edited rules")
    axes.set_yticks(list(rows), rules, fontsize=8)
    axes.set_ylim(len(rules) - 0.5, -0.5)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1,000"])
    axes.set_xlim(0, 1000)
    axes.set_xlabel("flights that satisfy the rule, of 1,000 (logarithmic from 1)")
    axes.set_title("Matches of each rule")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    figure.savefig(path, dpi=110)
