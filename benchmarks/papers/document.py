"""docs/papers.md from what runs have left: for every figure and table the paper's values, this run's, and a verdict."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.papers.experiment import Experiment, Paper, Verdict, ahead, beaten, judged, path_of, stored, table
from benchmarks.report import short

INTRODUCTION = """# The papers' experiments

For readers who want to know how far this project reproduces its five papers: for every figure and table, what the paper
shows, what a run here measured, and a verdict.

This document is written by `python -m benchmarks.papers`; do not edit it. `make papers` runs the missing experiments at
sizes that still show the shape of each figure, within thirty minutes. `make papers-full` runs them at the papers'
sizes. Both can be stopped, and then continue where they were. An experiment whose parameters have not changed is not
run again.

Each experiment first compares the answers of all systems, and is not timed if they differ. Times are CPU time of one
core. All systems are compiled in the same way, by Numba, so that their times can be compared. The papers' machines were
slower by an order of magnitude or more, so ratios and shapes are judged, not milliseconds. Counts that a paper reports
(constructs, pieces, predicates, nodes) do not depend on the machine.

A verdict is computed from the results. Each statement of the paper has a criterion. *Reproduced* means that all
criteria of an experiment are met, *partly* that some are, *not reproduced* that none is. An experiment without results
is *not run*. A line that begins with *Ahead of* lists the points at which another system is faster, or counts less,
than the system that the paper proposes. The papers' values are those in their texts, not read from their plots.
"""


def document(papers: Sequence[Paper], folder: Path) -> str:
    """The document's text."""
    lines = [INTRODUCTION]
    counts: dict[str, int] = {}
    body: list[str] = []
    for paper in papers:
        body += _section(paper, folder, counts)
    told = ", ".join(f"{count} {word}" for word, count in counts.items())
    contents = ", ".join(f"[{paper.title}](#{_anchor(paper.title)})" for paper in papers)
    return "\n".join([*lines, f"Contents: {contents}.\n", f"In all: {told}.\n", *body]).rstrip() + "\n"


def _anchor(title: str) -> str:
    """The anchor that GitHub gives to a heading: lower case, without punctuation, with hyphens for blanks."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


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
            met = "-" if known is None else "yes" if verdict.met[place] else "no"
            name, word = (experiment.name, f"**{verdict.word}**") if place == 0 else ("", "")
            told = _escaped(verdict.told[place])
            lines.append(f"| {name} | {_escaped(claim.paper)} | {told} | {met} | {word} |")
        details += _details(paper, experiment, known)
    return [*lines, "", *_led(paper, folder), *details]


def _led(paper: Paper, folder: Path) -> list[str]:
    """On how many rows each rival is ahead of the paper's own system, of those that it takes part in."""
    won: dict[tuple[str, str], list[int]] = {}
    for experiment in paper.experiments:
        known = stored(folder, paper, experiment)
        for row in known["rows"] if known else ():
            better = beaten(experiment, row)
            for name in experiment.rivals:
                if isinstance(row.get(name), int | float):
                    won.setdefault((experiment.own, name), []).append(name in better)
    if not won:
        return []
    own = next(iter(won))[0]
    told = ", ".join(f"{name} on {sum(each)} of {len(each)}" for (_, name), each in won.items())
    return [f"Points at which something else is ahead of {own}: {told}.\n"]


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
