"""What every engine takes to build and to keep: CPU seconds, bytes stored, and the most memory meanwhile.

    python -m benchmarks.sizes [--kind ranges] [--rules 1000000] [--matches 1] [--engines asc be_tree] [--timeout 900]

Each engine is built in a process of its own, from conjunctions that are there already, until it has matched a first
row. An engine that does not end in time, or lacks memory, is told with the reason. Linux only.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from benchmarks.engines import SEED
from benchmarks.kinds import KINDS
from benchmarks.measured import AUTO
from benchmarks.memory import cost, cost_cells
from benchmarks.report import machine, print_table
from rules_index.index.build import SAMPLE_ROWS, build
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.engine import Engine
from rules_index.index.registry import ENGINES


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [*ENGINES, AUTO]
    parser.add_argument("--kind", default="ranges", choices=list(KINDS))
    parser.add_argument("--rules", type=int, default=1_000_000)
    parser.add_argument("--matches", type=float, default=1, help="a row, where they can be had")
    parser.add_argument("--engines", nargs="+", default=names, choices=names, metavar="ENGINE")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for each engine")
    parser.add_argument("--measure", metavar="ENGINE", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        print(json.dumps(_measure(options.measure, options.kind, options.rules, options.matches)))
        return
    given = ("--kind", options.kind, "--rules", str(options.rules), "--matches", str(options.matches))
    rows = [
        (name, *cost_cells("benchmarks.sizes", ("--measure", name, *given), options.timeout))
        for name in options.engines
    ]
    title = f"{options.rules:,} rules, {options.kind}, {options.matches:g} matches a row; {machine()}"
    print_table(title, ("engine", "CPU seconds to build", "MiB stored", "MiB more at most"), rows)


def _measure(name: str, kind: str, rules: int, matches: float) -> tuple[float, int, int]:
    """CPU seconds to build an engine, bytes of its arrays, and bytes of memory at most above what there was before."""
    warm, codes = KINDS[kind].make(1_000, 1, 4096, SEED).coded()
    build(warm, name, codes)[0].match(codes)
    c, codes = KINDS[kind].make(rules, KINDS[kind].rate(rules, matches), SAMPLE_ROWS, SEED).coded()
    engine, seconds, most = cost(lambda: _ready(name, c, codes))
    return seconds, sum(array.nbytes for array in engine.arrays.values()), most


def _ready(name: str, c: Conjunctions, codes: np.ndarray) -> Engine:
    """An engine that has matched a row, which is when all of it is there."""
    engine, _ = build(c, name, codes)
    if name != "scan":
        engine.match(np.ascontiguousarray(codes[:, :1]))
    return engine


if __name__ == "__main__":
    main()
