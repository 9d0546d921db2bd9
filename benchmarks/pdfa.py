"""Selection-join queries a row at a time: the naive filter of joined rows and PDFA, on an R-tree and on a grid file.

    python -m benchmarks.pdfa [--figures 11 8 9 10 12 13] [--queries 100000] [--arrivals 100] [--seconds 5]

The figures are those of Wang and Kitsuregawa, section 4.2, each of which varies one parameter of Table 1 and leaves
the others at their defaults: 100,000 queries, 5 attributes a stream, 2 streams, 0.01 % of the queries satisfied by a
joined row. With D attributes in all each query has an interval of the D-th root of that share on each of them, whose
place is uniform, and so are rows. All rows have one key, so that an arriving row meets every row that is kept.

Times are milliseconds of one core for an arriving row: joining it, filtering what comes of it and keeping it. A system
that is slow meets fewer arriving rows. All systems meet the same rows; what they find is compared before any time.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from benchmarks.papers.systems.pdfa.selection_join import SelectionJoin
from benchmarks.report import machine, print_table, short
from rules_index.index.boxes import Boxes

SEED = 7
VALUES = 1 << 16
"""Attributes are 16-bit integers."""
FOREVER = 1 << 40
SYSTEMS = {
    "naive, R-tree": {"index": "r_tree", "search": "naive"},
    "PDFA, R-tree": {"index": "r_tree", "search": "list"},
    "naive, grid file": {"index": "grid_file", "search": "naive"},
    "PDFA, grid file": {"index": "grid_file", "search": "list"},
    "scan": {"index": "grid_file", "search": "scan"},
}


@dataclass(frozen=True)
class Workload:
    """The parameters of Table 1; `attributes` of each stream, `partners` rows of each other stream are kept."""

    queries: int = 100_000
    attributes: tuple[int, ...] = (5, 5)
    selectivity: float = 1e-4
    partners: int = 10

    def boxes(self) -> Boxes:
        """The queries."""
        count = sum(self.attributes)
        width = round(self.selectivity ** (1 / count) * VALUES)
        low = np.random.default_rng(SEED).integers(0, VALUES - width + 1, (self.queries, count), dtype=np.int32)
        return Boxes(
            np.full(count, VALUES, np.int32),
            np.arange(self.queries + 1, dtype=np.int64) * count,
            np.tile(np.arange(count, dtype=np.int32), self.queries),
            low.reshape(-1),
            (low + width - 1).reshape(-1),
        )


@dataclass
class Measured:
    """Milliseconds for an arriving row, joined rows and queries that it gave, and what was counted."""

    milliseconds: float
    joined: float
    found: float
    counters: dict[str, int]
    digest: list[tuple[int, int]]


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--figures", type=int, nargs="*", default=[11], choices=range(8, 14))
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--arrivals", type=int, default=100, help="arriving rows that are measured, at most")
    parser.add_argument("--seconds", type=float, default=5.0, help="that one system may take, about")
    options = parser.parse_args(arguments)
    print(f"pdfa: one core, {machine()}")
    for figure in options.figures:
        varied, workloads = workloads_of(figure, replace(Workload(), queries=options.queries))
        header = [varied, "joined rows", "queries found", *SYSTEMS]
        cells = [_cells(name, workload, options.arrivals, options.seconds) for name, workload in workloads]
        times, costs = zip(*cells, strict=True)
        print_table(f"Figure {figure}: milliseconds for an arriving row", header, times)
        print_table(f"Figure {figure}: nodes visited + entries checked for an arriving row", header, costs)


def workloads_of(figure: int, default: Workload) -> tuple[str, list[tuple[str, Workload]]]:
    """What a figure varies, and the workloads by its value."""
    if figure == 8:
        return "queries", [(f"{n:,}", replace(default, queries=n)) for n in (50_000, 100_000, 250_000, 500_000)]
    if figure == 9:
        return "attributes a stream", [(str(n), replace(default, attributes=(n, n))) for n in (3, 5, 9, 13, 17)]
    if figure == 10:
        return "selectivity", [(f"{s:.3%}", replace(default, selectivity=s)) for s in (1e-5, 1e-4, 1e-3)]
    if figure == 11:
        return "partners", [(str(n), replace(default, partners=n)) for n in (1, 5, 10, 100, 1_000)]
    if figure == 12:
        return "streams", [(str(n), replace(default, attributes=(5,) * n, partners=2)) for n in range(2, 7)]
    ratios = ((2, 10), (3, 9), (4, 8), (6, 6), (8, 4), (9, 3), (10, 2))
    return "attributes", [(f"{a}:{b}", replace(default, attributes=(a, b))) for a, b in ratios]


def _cells(name: str, workload: Workload, arrivals: int, seconds: float) -> tuple[list[str], list[str]]:
    """The lines of a workload: times, and what was counted."""
    boxes = workload.boxes()
    measured = [measure_system(workload, boxes, system, arrivals, seconds) for system in SYSTEMS.values()]
    for one, other in pairwise(measured):
        both = min(len(one.digest), len(other.digest))
        if one.digest[:both] != other.digest[:both]:
            raise SystemExit(f"pdfa: the systems found different queries ({name})")
    most = max(measured, key=lambda each: len(each.digest))
    line = [name, short(most.joined), short(most.found)]
    costs = [
        " + ".join(short(each.counters[of] / len(each.digest)) for of in ("nodes", "entries")) for each in measured
    ]
    return line + [f"{each.milliseconds:.3g}" for each in measured], line + costs


def measure_system(workload: Workload, boxes: Boxes, system: dict[str, str], arrivals: int, seconds: float) -> Measured:
    """What a system takes for arriving rows, at most so many, and not much longer than so many seconds."""
    stream_of = np.repeat(np.arange(len(workload.attributes)), workload.attributes)
    index: dict[str, object] = {**system, "dimensions": range(len(stream_of))}
    joining = SelectionJoin(boxes, stream_of, [FOREVER] * len(workload.attributes), **index)  # type: ignore[arg-type]
    random = np.random.default_rng(SEED + 1)
    for stream, count in enumerate(workload.attributes[1:], start=1):
        for row in random_rows(random, workload.partners, count):
            joining.buffer.insert(stream, 0, 0, row)
    rows = random_rows(random, arrivals + 2, workload.attributes[0])
    # what is met first compiles the kernels and fills the caches, and leaves much to be collected
    for row in rows[:2]:
        joining.arrive(0, 0, 0, row)
    gc.collect()
    joining.counters = dict.fromkeys(joining.counters, 0)
    digest: list[tuple[int, int]] = []
    spent = 0.0
    for row in rows[2:]:
        started = time.process_time()
        found = joining.arrive(0, 0, 0, row)
        spent += time.process_time() - started
        digest.append((len(found.keys), int(found.keys.sum(dtype=np.int64))))
        if spent > seconds:
            break
    count = len(digest)
    joined = joining.counters["joined_rows"] / count
    return Measured(1e3 * spent / count, joined, sum(n for n, _ in digest) / count, joining.counters, digest)


def random_rows(random: np.random.Generator, rows: int, attributes: int) -> Sequence[np.ndarray]:
    """Rows [rows, attributes] int32 of uniform values."""
    return random.integers(0, VALUES, (rows, attributes), dtype=np.int32)


if __name__ == "__main__":
    main()
