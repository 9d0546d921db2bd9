"""The papers whose experiments are run."""

from benchmarks.papers import asc, cei
from benchmarks.papers.experiment import Paper

PAPERS: tuple[Paper, ...] = (asc.PAPER, cei.PAPER)
