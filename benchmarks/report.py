"""Tables on standard output, bar charts as PNG, and what the machine was doing meanwhile."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def machine() -> str:
    """The machine and its load, for a reader who compares runs."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, load {load} (1, 5, 15 minutes)"


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table in Markdown, columns as wide as their longest cell."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print(f"\n{title}\n", *lines, sep="\n", flush=True)


def interleaved(repeat: int, tasks: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """What each task gives (seconds, or rows a second), run in turn, so that the machine's noise falls on all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(repeat):
        for name, task in tasks.items():
            seconds[name].append(task())
        told = ", ".join(f"{name} {short(values[-1])}" for name, values in seconds.items())
        print(f"turn {turn + 1} of {repeat}: {told}", file=sys.stderr, flush=True)
    return seconds


def timed(task: Callable[[], object]) -> float:
    """Seconds that a task took."""
    started = time.perf_counter()
    task()
    return time.perf_counter() - started


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def plot_bars(
    path: Path, title: str, axis: str, groups: Sequence[str], series: Mapping[str, Sequence[float]], log: bool = False
) -> None:
    """Grouped bars: one group for each of `groups`, in it one bar for each of `series`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(9, 5), dpi=120)
    width = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        places = [group + (number - (len(series) - 1) / 2) * width for group in range(len(groups))]
        bars = axes.bar(places, values, width, label=name)
        axes.bar_label(bars, [short(value) for value in values], fontsize=6)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_title(title)
    axes.set_ylabel(axis)
    if log:
        axes.set_yscale("log")
    axes.legend(fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    print(f"plot: {path}")


def short(value: float) -> str:
    """A number as people say it: 14.2 M, 310 k, 1.34."""
    if value != value:
        return "-"
    for limit, unit in ((1e6, " M"), (1e3, " k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"
