"""An experiment of a paper: what is measured, what the paper shows, and the criterion by which a run is judged.

A *row* is one point of a figure, or one line of a table: the value that is varied, the panel where the figure has
several, and a number for each system. A *claim* is one statement of the paper with a criterion that is computed from
the rows. All claims met: reproduced; some: partly; none: not reproduced.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import machine, median, print_table, short

Row = dict[str, Any]
Measure = Callable[..., list[Row]]
SIZES = ("tiny", "small", "full")
"""For tests; for `make papers`; the papers' own."""


class DifferentAnswersError(Exception):
    """Two systems that have to find the same did not."""


@dataclass(frozen=True)
class Claim:
    """What a paper shows, and how rows are judged by it: `judge` gives whether it is met and this run's figure."""

    paper: str
    criterion: str
    judge: Callable[[Sequence[Row]], tuple[bool, str]]


@dataclass(frozen=True)
class Experiment:
    """A figure or table.

    name: the paper's; varied: the column of what is varied; systems: the columns of numbers; unit: of these numbers;
    panel: the column that tells panels apart; own: the paper's system, which is compared with the others;
    best: whether the `lowest` or the `highest` number is best, or nothing is compared; sizes: the parameters of
    `measure` by size; note: stand-ins, and choices of ours.
    """

    name: str
    title: str
    varied: str
    systems: tuple[str, ...]
    unit: str
    measure: Measure
    sizes: Mapping[str, Mapping[str, Any]]
    claims: tuple[Claim, ...]
    panel: str = ""
    own: str = ""
    best: str = "lowest"
    note: str = ""
    log: bool = True
    extra: tuple[str, ...] = ()
    """Further columns of the table."""

    @property
    def slug(self) -> str:
        """The name of its files."""
        return self.name.lower().replace(" ", "_").replace(".", "_").replace(",", "")


@dataclass(frozen=True)
class Paper:
    """A paper and its experiments; `shown` names those whose plots stand in the document."""

    key: str
    title: str
    experiments: tuple[Experiment, ...]
    shown: tuple[str, ...] = ()
    note: str = ""


@dataclass
class Verdict:
    """What became of an experiment: `met` for each claim, and this run's figures."""

    word: str
    met: list[bool] = field(default_factory=list)
    told: list[str] = field(default_factory=list)


def judged(experiment: Experiment, rows: Sequence[Row]) -> Verdict:
    """The verdict, computed from the rows."""
    met, told = [], []
    for claim in experiment.claims:
        holds, figure = claim.judge(rows)
        met.append(bool(holds))
        told.append(figure)
    word = "reproduced" if all(met) else "partly" if any(met) else "not reproduced"
    return Verdict(word, met, told)


def ahead(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """Where another system beats the paper's: the system, by how much, and on which row."""
    if not experiment.own:
        return []
    found = []
    for row in rows:
        own = row.get(experiment.own)
        rivals = {
            name: row[name]
            for name in experiment.systems
            if name != experiment.own and _known(row.get(name)) and name not in row.get("variants", ())
        }
        if not rivals or not _known(own):
            continue
        pick = min if experiment.best == "lowest" else max
        name = pick(rivals, key=lambda each: rivals[each])
        better = rivals[name] < own if experiment.best == "lowest" else rivals[name] > own
        if better and min(own, rivals[name]) > 0:
            factor = max(own, rivals[name]) / min(own, rivals[name])
            at = " ".join(str(row[key]) for key in (experiment.panel, experiment.varied) if key)
            found.append(f"{name} {factor:.2f} x at {at}")
    return found


def _known(value: object) -> bool:
    return isinstance(value, int | float) and not math.isnan(value)


class Progress:
    """What is being done, on standard error, with the time since it began."""

    def __init__(self, label: str, quiet: bool = False) -> None:
        self.label, self._quiet, self._started = label, quiet, time.perf_counter()

    def __call__(self, told: str) -> None:
        """One line."""
        if not self._quiet:
            minutes, seconds = divmod(int(time.perf_counter() - self._started), 60)
            clock = time.strftime("%H:%M:%S")
            print(f"{clock} [{minutes:2d}:{seconds:02d}] {self.label}: {told}", file=sys.stderr, flush=True)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self._started


def path_of(folder: Path, paper: Paper, experiment: Experiment) -> Path:
    """The file of an experiment's figures."""
    return folder / paper.key / f"{experiment.slug}.json"


def stored(folder: Path, paper: Paper, experiment: Experiment) -> dict[str, Any] | None:
    """What a run has left, or nothing."""
    path = path_of(folder, paper, experiment)
    return json.loads(path.read_text()) if path.exists() else None


def run(folder: Path, paper: Paper, experiment: Experiment, size: str) -> dict[str, Any]:
    """Measures an experiment, unless its figures with the same parameters are there, and writes JSON and PNG."""
    parameters = json.loads(json.dumps(experiment.sizes[size]))
    known = stored(folder, paper, experiment)
    progress = Progress(f"{paper.key} {experiment.name}")
    if known and known["size"] == size and known["parameters"] == parameters:
        progress("is there")
        return known
    progress(f"begins, size {size}")
    rows = experiment.measure(progress, **experiment.sizes[size])
    result = {
        "paper": paper.key, "name": experiment.name, "size": size, "parameters": parameters,
        "seconds": round(progress.seconds, 1), "machine": machine(), "rows": rows,
    }  # fmt: skip
    path = path_of(folder, paper, experiment)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1))
    plot(path.with_suffix(".png"), experiment, rows)
    print_table(f"{paper.key}, {experiment.name}: {experiment.title} ({experiment.unit})", *table(experiment, rows))
    progress(f"done: {judged(experiment, rows).word}")
    return result


def table(experiment: Experiment, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of an experiment's rows."""
    keys = [key for key in (experiment.panel, experiment.varied) if key]
    header = [*keys, *experiment.systems, *experiment.extra]
    return header, [
        [*(str(row[key]) for key in keys), *(cell(row.get(name)) for name in (*experiment.systems, *experiment.extra))]
        for row in rows
    ]


def cell(value: object) -> str:
    """A number as people say it, a dash where there is none."""
    return short(value) if isinstance(value, int | float) and _known(value) else "-" if value is None else str(value)


def cpu(task: Callable[[], object], least: float = 0.02) -> float:
    """CPU seconds of a task, the mean of as many runs as take `least` seconds."""
    runs, started = 0, time.process_time()
    while True:
        task()
        runs += 1
        taken = time.process_time() - started
        if taken >= least:
            return taken / runs


def in_turn(tasks: Mapping[str, Callable[[], object]], repeat: int, least: float = 0.02) -> dict[str, float]:
    """Median CPU seconds of each task, over turns in each of which every task runs."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeat):
        for name, task in tasks.items():
            seconds[name].append(cpu(task, least))
    return {name: median(values) for name, values in seconds.items()}


def plot(path: Path, experiment: Experiment, rows: Sequence[Row]) -> None:
    """Lines, one a system, in a panel for each value of `panel`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys(row.get(experiment.panel) for row in rows))
    figure, every = pyplot.subplots(1, len(panels), figsize=(4.2 * len(panels) + 1, 3.2), dpi=80, squeeze=False)
    for axes, panel in zip(every[0], panels, strict=True):
        own = [row for row in rows if row.get(experiment.panel) == panel]
        for name in experiment.systems:
            values = [row.get(name) if _known(row.get(name)) else math.nan for row in own]
            axes.plot(range(len(own)), values, marker="o", markersize=3, label=name)
        axes.set_xticks(range(len(own)), [str(row[experiment.varied]) for row in own], fontsize=7, rotation=30)
        axes.set_xlabel(experiment.varied, fontsize=8)
        axes.set_title(f"{experiment.name}{'' if panel is None else f', {panel}'}", fontsize=9)
        if experiment.log:
            axes.set_yscale("log")
        axes.spines[["top", "right"]].set_visible(False)
    every[0][0].set_ylabel(experiment.unit, fontsize=8)
    every[0][-1].legend(fontsize=6, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
