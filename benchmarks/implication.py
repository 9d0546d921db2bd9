"""Predicate matching as Kuntschke and Kemper measure it (section 6.2, figures 9 to 15, table 7), in small.

    python -m benchmarks.implication [--repeat 5] [--plots FOLDER] [--json FILE]

Every one of 60 query predicates is matched with every one of 20 stream predicates, all 1,200 pairs in one go; for the
deviation of the queries' bounds every one of 300 with every one of 100, too: what a call costs is then spread over
30,000 pairs, and the processor cannot foresee their answers from the call before. Times are CPU seconds a pair; what
they are worth is their ratio. What exact matching answers is compared with brute force over all cells before any time
is told.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.papers.systems.disjunctive.box_trees import BoxTrees
from benchmarks.papers.systems.disjunctive.intervals import Conjunctive, Disjunction, Interval, Predicates, Space
from benchmarks.papers.systems.disjunctive.predicate_matching import Matchings, Method, match, match_each
from benchmarks.papers.systems.disjunctive.row_evaluation import scan_evaluate
from benchmarks.report import interleaved, machine, median, plot_bars, print_table
from rules_index.engines.r_tree.structure import RTree
from rules_index.implication.search_limits import Budget
from rules_index.index.boxes import Boxes

SEED = 7
BUDGET = Budget(2_000_000, 20.0)
"""Beyond it a subpredicate is left undecided, which the tables tell."""
Kind = Literal["trees", "bitmaps"]
PLAIN: Sequence[tuple[str, Method, Kind | None]] = (
    ("HSR+QC", "hsr", None),
    ("HCR+QC", "hcr", None),
    ("BFS", "em_bfs", None),
    ("BFS+I", "em_bfs", "trees"),
    ("BFS+B", "em_bfs", "bitmaps"),
    ("DFS", "em_dfs", None),
    ("DFS+I", "em_dfs", "trees"),
    ("DFS+B", "em_dfs", "bitmaps"),
    ("MIX", "em_mix", None),
    ("MIX+I", "em_mix", "trees"),
    ("MIX+B", "em_mix", "bitmaps"),
)
"""Name, method, kind of index; all with the quick check."""
COMPARISONS = ("comparisons, BFS", "comparisons, BFS+I", "comparisons, BFS+B")


@dataclass(frozen=True)
class Setup:
    """What predicates are drawn (6.2).

    queries, streams: predicates; query_boxes, stream_boxes: subpredicates of each; values: distinct bounds between 0
    and 100; deviation: the standard one of the queries' bounds; unbounded: whether a subpredicate references only some
    of the dimensions.
    """

    dimensions: int = 6
    query_boxes: int = 2
    stream_boxes: int = 20
    queries: int = 60
    streams: int = 20
    query_values: int = 21
    stream_values: int = 21
    deviation: float = 20.0
    unbounded: bool = False

    def draw(self, seed: int) -> tuple[list[Disjunction], list[Disjunction]]:
        """Query predicates, with normally distributed bounds, and stream predicates, with uniform ones."""
        choice = np.random.default_rng(seed)
        queries = [self._predicate(choice, self.query_boxes, self.query_values, True) for _ in range(self.queries)]
        streams = [self._predicate(choice, self.stream_boxes, self.stream_values, False) for _ in range(self.streams)]
        space = Space.of(*queries, *streams)
        return [space.encode(each) for each in queries], [space.encode(each) for each in streams]

    def _predicate(self, choice: np.random.Generator, boxes: int, values: int, normal: bool) -> list[Conjunctive]:
        step = 100 / (values - 1)
        shape = (boxes, self.dimensions, 2)
        drawn = (
            np.rint(choice.normal(50, self.deviation, shape) / step) if normal else choice.integers(0, values, shape)
        )
        ends = np.sort(np.clip(drawn, 0, values - 1) * step, axis=2)
        finite = np.full(boxes, self.dimensions)
        if self.unbounded:
            finite = choice.integers(1, self.dimensions + 1, boxes)
        return [
            {
                f"d{d}": Interval(*ends[box, d].tolist())
                for d in np.sort(choice.permutation(self.dimensions)[: finite[box]]).tolist()
            }
            for box in range(boxes)
        ]


def cells(predicate: Disjunction) -> np.ndarray:
    """Which cells of the space [codes of each dimension] bool a predicate holds on: brute force."""
    found = np.zeros(predicate.space.sizes, bool)
    for box in predicate.boxes:
        found[tuple(slice(low, high + 1) for low, high in box.tolist())] = True
    return found


def inserted(predicate: Disjunction, split: str) -> RTree:
    """A tree that the boxes were inserted into one by one, by Guttman's or the R*-tree's rules."""
    boxes = predicate.sparse
    nothing = np.empty(0, np.int32)
    dimensions = RTree.build(boxes).dimensions.attributes
    tree = RTree.build(
        Boxes(boxes.sizes, np.zeros(1, np.int64), nothing, nothing, nothing),
        dimensions=dimensions,
        split="r_star" if split == "r_star" else "quadratic",
    )
    for key in range(len(boxes)):
        terms = slice(boxes.start[key], boxes.start[key + 1])
        tree.insert(key, boxes.attributes[terms], boxes.low[terms], boxes.high[terms])
    return tree


class Pairs:
    """Every query predicate with every stream predicate, and the streams' indexes."""

    def __init__(self, setup: Setup, split: str = "quadratic", seed: int = SEED) -> None:
        self.queries, self.streams = setup.draw(seed)
        self._queries, self._streams = Predicates.of(self.queries), Predicates.of(self.streams)
        trees = [inserted(stream, split).tree() for stream in self.streams]
        self._indexes = {
            "trees": BoxTrees.of(trees, self._streams.start),
            "bitmaps": self._streams.index(),
        }

    def __len__(self) -> int:
        return len(self.queries) * len(self.streams)

    def run(self, method: Method, kind: Kind | None, quick_check: bool = True) -> Matchings:
        """All matchings by one method, in one go."""
        index = self._indexes[kind] if kind else None
        return match_each(self._queries, self._streams, method, quick_check=quick_check, index=index, budget=BUDGET)

    def answers(self, method: Method, kind: Kind | None, quick_check: bool = True) -> list[bool | None]:
        """Whether each pair is implied, stream by stream."""
        return self.run(method, kind, quick_check).implied

    def comparisons(self, kind: Kind | None) -> float:
        """Comparisons of a part with a box of a pair, by breadth first."""
        return int(self.run("em_bfs", kind).splits.sum()) / len(self)

    def seconds(self, method: Method, kind: Kind | None) -> float:
        """CPU seconds a pair, by as many runs as take a hundredth of a second."""
        runs, started = 0, time.process_time()
        while (taken := time.process_time() - started) < 0.01:
            self.run(method, kind)
            runs += 1
        return taken / runs / len(self)


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--plots", type=Path, help="folder for implication.png")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args(arguments)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"implication: one core; {machine()}")
    figures = {
        "answers": answers(),
        "dimensions": figure("dimensions", "9, 12", [2, 3, 4, 5, 6, 7], options.repeat),
        "query boxes": figure("query_boxes", "10, 13", [1, 2, 4, 8], options.repeat),
        "stream boxes": figure("stream_boxes", "11, 14", [5, 10, 15, 20, 25, 30, 50], options.repeat),
        "deviation": figure("deviation", "11, deviation of the queries' bounds", [20, 30, 50], options.repeat),
        "pairs": figure("deviation", "11, 30,000 pairs", [20, 30, 50], options.repeat, queries=300, streams=100),
        "unbounded": figure("dimensions", "9, some dimensions unbounded", [2, 4, 6], options.repeat, unbounded=True),
        "r_star": figure("dimensions", "12, R*-tree", [4, 6], options.repeat, split="r_star"),
        "large": large(options.repeat),
        "table 7": table_7(),
    }
    if options.plots:
        plot(options.plots / "implication.png", figures["stream boxes"])
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


def figure(
    varied: str,
    number: str,
    values: Sequence[int],
    repeat: int,
    *,
    split: str = "quadratic",
    **fixed: int,
) -> list[dict[str, float]]:
    """Seconds a pair of all methods, and comparisons by BFS, as one parameter of the set-up is varied and others are
    fixed."""
    rows, told = [], []
    for value in values:
        given = Pairs(replace(Setup(), **fixed, **{varied: value}), split)  # type: ignore[arg-type]
        undecided = check(given)
        seconds = measured(given, PLAIN, repeat)
        compared = [given.comparisons(None), given.comparisons("trees"), given.comparisons("bitmaps")]
        told.append({varied: float(value), **seconds, "undecided": float(undecided),
                     **dict(zip(COMPARISONS, compared, strict=True))})  # fmt: skip
        gains = [f"{seconds[name[:3]] / seconds[name]:.1f}" for name, _, kind in PLAIN if kind]
        rows.append(
            (value, *(_short(seconds[name]) for name, _, _ in PLAIN), *gains, *map(_figures, compared), undecided)
        )
    header = (varied.replace("_", " "), *(name for name, _, _ in PLAIN))
    gained = (f"{name[:3]} / {name}" for name, _, kind in PLAIN if kind)
    title = f"Figure {number}: CPU time a pair, medians of {repeat} runs in turn"
    print_table(title, (*header, *gained, *COMPARISONS, "BFS undecided"), rows)
    return told


def plot(path: Path, told: Sequence[Mapping[str, float]]) -> None:
    """Figures 11 and 14: time by the number of stream subpredicates."""
    # mixed takes as long as depth first
    names = [name for name, method, _ in PLAIN if method != "em_mix"]
    series = {name: [each[name] * 1e6 for each in told] for name in names}
    boxes = [f"{each['stream_boxes']:.0f}" for each in told]
    title = "Predicate matching by subpredicates of the stream predicate, 6 dimensions"
    plot_bars(path, title, "microseconds a pair", boxes, series, log=True)


def measured(given: Pairs, methods: Sequence[tuple[str, Method, Kind | None]], repeat: int) -> dict[str, float]:
    """Median seconds a pair of each method, run in turn; what Numba compiles counts for nobody."""
    tasks: Mapping[str, Callable[[], float]] = {
        name: (lambda method=method, kind=kind: given.seconds(method, kind))  # type: ignore[misc]
        for name, method, kind in methods
    }
    return {name: median(values) for name, values in interleaved(repeat, tasks).items()}


def check(given: Pairs) -> int:
    """All exact methods answer alike; ends the run where they do not. How many pairs BFS leaves undecided."""
    expected = given.answers("em_dfs", None)
    for name, method, kind in PLAIN:
        exact = method.startswith("em")
        wrong = sum(
            None not in (one, right) and (one != right if exact else one and not right)
            for one, right in zip(given.answers(method, kind), expected, strict=True)
        )
        if wrong:
            raise SystemExit(f"{name} answers {wrong} of {len(expected)} pairs wrongly.")
    return given.answers("em_bfs", None).count(None)


def answers() -> list[dict[str, float]]:
    """6.2: how many of 1,200 pairs each method sees implied, beside brute force over cells."""
    setup = Setup(dimensions=3, query_boxes=3, stream_boxes=30, unbounded=True)
    rows, told = [], []
    for seed in range(SEED, SEED + 3):
        given = Pairs(setup, seed=seed)
        held = [cells(query) for query in given.queries]
        brute = [bool((query <= cells(stream)).all()) for stream in given.streams for query in held]
        counts: dict[str, float] = {"brute force": sum(brute)}
        for name, method, kind in (*PLAIN, ("HSR", "hsr", None)):
            found = given.answers(method, kind, quick_check=name != "HSR")
            if any(one and not right for one, right in zip(found, brute, strict=True)):
                raise SystemExit(f"{name} reports an implication that does not hold.")
            counts[name] = sum(one is True for one in found)
        if any(counts[name] != counts["brute force"] for name, method, _ in PLAIN if method.startswith("em")):
            raise SystemExit("Exact matching misses an implication.")
        told.append(counts)
        rows.append((seed, *counts.values()))
    print_table("6.2: implied pairs of 1,200 (paper: exact matching 933, QC 660, HSR 0)", ("seed", *told[0]), rows)
    return told


def large(repeat: int) -> list[dict[str, float]]:
    """Figure 15: stream predicates of up to 500 subpredicates."""
    methods = [each for each in PLAIN if each[0] in ("HCR+QC", "DFS", "DFS+I", "DFS+B", "MIX", "MIX+I", "MIX+B")]
    rows, told = [], []
    for boxes in (20, 50, 100, 200, 500):
        given = Pairs(Setup(stream_boxes=boxes))
        given.run("em_dfs", "trees")
        seconds = measured(given, methods, repeat)
        told.append({"stream_boxes": float(boxes), **seconds})
        rows.append((boxes, *map(_short, seconds.values()), f"{seconds['DFS'] / seconds['HCR+QC']:.1f}"))
    header = ("stream boxes", *(name for name, _, _ in methods), "DFS / HCR+QC")
    print_table(f"Figure 15: CPU time a pair, 1,200 pairs, medians of {repeat} runs in turn", header, rows)
    return told


def table_7(rows: int = 1_000_000) -> list[dict[str, float]]:
    """Selectivity, in percent, of a stream predicate as it is matched with four queries one after the other."""
    told, cells_told = [], []
    for seed in range(SEED, SEED + 5):
        setup = Setup(queries=4, streams=1, query_values=6, stream_values=4)
        queries, streams = setup.draw(seed)
        items = np.random.default_rng(seed).uniform(0, 100, (setup.dimensions, rows))
        codes = queries[0].space.codes(items)
        for name, method, quick_check in (("HSR", "hsr", False), ("HCR", "hcr", True), ("EM", "em_dfs", True)):
            grown, shares = streams[0], []
            for query in queries:
                grown = match(query, grown, method, quick_check=quick_check).relaxed
                shares.append(100 * float(scan_evaluate(grown.sparse, codes)[0].mean()))
            told.append({"seed": float(seed), **dict(zip("ABCD", shares, strict=True))})
            cells_told.append((seed, name, *(f"{share:.2f}" for share in shares), len(grown)))
    print_table("Table 7: selectivity (%)", ("seed", "method", "p_A", "p_B", "p_C", "p_D", "boxes of p_D"), cells_told)
    return told


def _figures(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _short(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{seconds * 1e6:.3g} us"


if __name__ == "__main__":
    main()
