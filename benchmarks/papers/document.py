"""docs/papers.md from what runs have left: for every figure and table the paper's values, this run's, and a verdict."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.papers.experiment import Experiment, Paper, Verdict, ahead, judged, path_of, stored, table
from benchmarks.report import short

INTRODUCTION = """# The papers' experiments

Written by `python -m benchmarks.papers` from the figures of a run; do not edit. `make papers` runs what is missing at
sizes that still show each shape, within thirty minutes, `make papers-full` at the papers' sizes; both can be stopped
and go on where they were. A figure whose parameters have not changed is not run again.

Each experiment first compares what all systems answer, and is not timed where they differ. Times are CPU time of one
core. The systems and what they are compared with are compiled alike, by Numba, so that their times can be compared; the
papers' machines were slower by an order of magnitude or more, so that ratios and shapes are judged, not milliseconds.
What a paper counts itself (constructs, pieces, predicates, nodes) does not depend on the machine.

A verdict is computed from the figures: each statement of the paper has a criterion, and *reproduced* means that all
criteria are met, *partly* some, *not reproduced* none. An experiment without figures is *not run*. Under *ahead of the
paper's system* stands, point by point, whatever is faster than (or counts less than) the system that the paper
proposes. Values of the papers are those that their texts give; their plots are not in the texts.
"""


def document(papers: Sequence[Paper], folder: Path) -> str:
    """The document's text."""
    lines = [INTRODUCTION]
    counts: dict[str, int] = {}
    body: list[str] = []
    for paper in papers:
        body += _section(paper, folder, counts)
    told = ", ".join(f"{count} {word}" for word, count in counts.items())
    return "\n".join([*lines, f"In all: {told}.\n", *body]).rstrip() + "\n"


def _section(paper: Paper, folder: Path, counts: dict[str, int]) -> list[str]:
    lines = [f"## {paper.title}\n"]
    if paper.note:
        lines += [paper.note + "\n"]
    lines += ["| | what the paper shows | this run | met | verdict |", "|---|---|---|---|---|"]
    details: list[str] = []
    for experiment in paper.experiments:
        known = stored(folder, paper, experiment)
        verdict = verdict_of(experiment, known)
        counts[verdict.word] = counts.get(verdict.word, 0) + 1
        for place, claim in enumerate(experiment.claims):
            first = place == 0
            lines.append(
                f"| {experiment.name if first else ''} | {_escaped(claim.paper)} | {_escaped(verdict.told[place])} "
                f"| {'yes' if verdict.met[place] else 'no'} | {f'**{verdict.word}**' if first else ''} |"
            )
        details += _details(paper, experiment, known)
    return [*lines, "", *details]


def verdict_of(experiment: Experiment, known: dict[str, Any] | None) -> Verdict:
    """The verdict on what a run has left: *not run* where there is nothing."""
    if known is None:
        claims = len(experiment.claims)
        return Verdict("not run", [False] * claims, ["there are no figures of a run"] * claims)
    return judged(experiment, known["rows"])


def _details(paper: Paper, experiment: Experiment, known: dict[str, Any] | None) -> list[str]:
    lines = [f"### {paper.title.split(' (')[0]}, {experiment.name}: {experiment.title}\n"]
    if experiment.note:
        lines += [experiment.note + "\n"]
    lines += [f"- {claim.paper}. Criterion: {claim.criterion}." for claim in experiment.claims]
    if known is None:
        return [*lines, "", "Not run: there are no figures of it in the folder that this was written from.", ""]
    header, rows = table(experiment, known["rows"])
    lines += ["", f"{experiment.unit}; {_parameters(known)}", ""]
    lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
    faster = ahead(experiment, known["rows"])
    if experiment.own:
        lines += ["", f"Ahead of {experiment.own}: {'; '.join(faster) if faster else 'nothing'}."]
    if experiment.name in paper.shown:
        lines += ["", f"![{experiment.name}]({plot_name(paper, experiment)})"]
    return [*lines, ""]


def _parameters(known: dict[str, Any]) -> str:
    told = ", ".join(f"{name} {_told(value)}" for name, value in known["parameters"].items())
    return f"size *{known['size']}*: {told}; {known['seconds']:.0f} s in all, {known['machine']}."


def _told(value: Any) -> str:
    if isinstance(value, list):
        return "/".join(_told(each) for each in value)
    return short(value) if isinstance(value, int | float) else str(value)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def plot_name(paper: Paper, experiment: Experiment) -> str:
    """The file of a plot beside the document."""
    return f"papers-{paper.key}-{experiment.slug.replace('_', '-')}.png"


def write(papers: Sequence[Paper], folder: Path, to: Path) -> None:
    """Writes the document, and the plots that it shows beside it."""
    to.write_text(document(papers, folder), encoding="utf-8")
    for paper in papers:
        for experiment in paper.experiments:
            plot = path_of(folder, paper, experiment).with_suffix(".png")
            if experiment.name in paper.shown and plot.exists():
                shutil.copyfile(plot, to.parent / plot_name(paper, experiment))
