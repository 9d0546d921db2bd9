"""What each paper's module does when it is run: its experiments, one after the other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers.experiment import SIZES, DifferentAnswersError, Paper, run

FOLDER = Path("build/papers")


def main(paper: Paper, arguments: Sequence[str] | None = None) -> int:
    """Runs a paper's experiments; 1 where systems differ in their answers."""
    parser = argparse.ArgumentParser(description=f"{paper.title}: its figures and tables.")
    add_options(parser)
    options = parser.parse_args(arguments)
    return run_paper(paper, options.to, options.size, options.only)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that all papers have."""
    parser.add_argument("--size", default="small", choices=SIZES, help="small, or the papers' own sizes: full")
    parser.add_argument("--to", type=Path, default=FOLDER, help="folder for JSON and plots")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help='such as "Figure 9"')


def run_paper(paper: Paper, folder: Path, size: str, only: Sequence[str] = ()) -> int:
    """Runs experiments of a paper, those that are there already excepted."""
    failed = 0
    for experiment in paper.experiments:
        if only and experiment.name not in only:
            continue
        try:
            run(folder, paper, experiment, size)
        except DifferentAnswersError as error:
            print(f"{paper.key}, {experiment.name}: {error}; nothing is timed.", flush=True)
            failed = 1
    return failed
