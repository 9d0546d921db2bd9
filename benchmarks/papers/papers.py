"""The papers whose experiments are run."""

from benchmarks.papers import asc, be_tree, cei, disjunctive, pdfa
from benchmarks.papers.experiment import Paper

PAPERS: tuple[Paper, ...] = (be_tree.PAPER, asc.PAPER, cei.PAPER, pdfa.PAPER, disjunctive.PAPER)
