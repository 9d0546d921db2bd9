"""The papers' structures beside themselves: built at once and box by box, what they are made of, and adapting.

    python -m benchmarks.structures [--boxes 10000] [--rows 500] [--json FILE]

1. R-tree, R*-tree and grid file, bulk loaded and by insertion, and the BE-Tree both ways, over the boxes of the kind
   *ranges*: milliseconds to build, microseconds of CPU and nodes and boxes looked at for each row. Keys are compared.
2. Is a row in the union of the boxes? SE, IE and IE+SC (Kuntschke and Kemper, section 4), rows of 5 dimensions.
3. Where the bytes of a BE-Tree and of CEI are.
4. A BE-Tree whose workload changes: predicates evaluated an event by one that adapts (section 5 of its paper), and by
   one that does not. These are counted, so that a busy machine does not change them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.systems.disjunctive.row_evaluation import scan_evaluate, tree_evaluate
from benchmarks.report import machine, median, print_table, short
from benchmarks.workload import COLUMNS, VALUES, ranges
from rules_index.engines.be_tree.store import C_USED, P_USED, WORDS_USED
from rules_index.engines.be_tree.structure import BETree
from rules_index.engines.cei.structure import Cei
from rules_index.engines.grid_file.structure import GridFile
from rules_index.engines.r_tree.structure import RTree
from rules_index.index.boxes import Boxes

MIB = 1 << 20


def boxes_of(count: int) -> tuple[Boxes, np.ndarray]:
    """The boxes of `count` rules of the kind *ranges* over codes that are values, and rows [columns, rows] int32."""
    workload = ranges(count, 20_000)
    order = np.argsort(workload.attributes, axis=1)
    columns = (workload.attributes, workload.low, workload.high)
    attributes, low, high = (np.take_along_axis(each, order, 1).reshape(-1).astype(np.int32) for each in columns)
    start = np.arange(count + 1, dtype=np.int64) * workload.attributes.shape[1]
    return Boxes(np.full(COLUMNS, VALUES, np.int32), start, attributes, low, high), np.ascontiguousarray(
        workload.rows.T
    )


def inserted(empty: Any, boxes: Boxes) -> Any:
    """A structure to which all boxes are added one by one."""
    for key in range(len(boxes)):
        own = slice(boxes.start[key], boxes.start[key + 1])
        empty.insert(key, boxes.attributes[own], boxes.low[own], boxes.high[own])
    return empty


def variants(boxes: Boxes) -> dict[str, Callable[[], Any]]:
    """How each structure is made."""
    none = Boxes(boxes.sizes, boxes.start[:1], boxes.attributes[:0], boxes.low[:0], boxes.high[:0])
    return {
        "R-tree, bulk loaded": lambda: RTree.build(boxes),
        "R-tree, inserted": lambda: inserted(RTree.build(none, dimensions=_dimensions(boxes)), boxes),
        "R*-tree, inserted": lambda: inserted(RTree.build(none, dimensions=_dimensions(boxes), split="r_star"), boxes),
        "grid file, bulk loaded": lambda: GridFile.build(boxes),
        "grid file, inserted": lambda: inserted(GridFile.build(none, dimensions=_dimensions(boxes)), boxes),
        "BE-Tree, batch": lambda: BETree.build(boxes),
        "BE-Tree, inserted": lambda: BETree.build(boxes, batch=False),
        "CEI, narrowest": lambda: Cei.build(boxes, access="narrowest"),
    }


def _dimensions(boxes: Boxes) -> np.ndarray:
    return RTree.build(boxes).dimensions.attributes


def compare_variants(boxes: Boxes, rows: np.ndarray) -> list[tuple[str, float, float, dict[str, float]]]:
    """Of each variant the seconds to build, microseconds a row, and what a row costs in the paper's terms."""
    figures, expected = [], None
    for name, make in variants(boxes).items():
        started = time.process_time()
        structure = make()
        built = time.process_time() - started
        offsets, keys, counters = structure.search_rows(rows)
        found = [np.sort(keys[a:b]).tolist() for a, b in pairwise(offsets.tolist())]
        assert expected is None or found == expected, name
        expected = found
        seconds = []
        for _ in range(5):
            started = time.process_time()
            structure.search_rows(rows)
            seconds.append(time.process_time() - started)
        each = {what: count / rows.shape[1] for what, count in counters.items()}
        figures.append((name, built, 1e6 * median(seconds) / rows.shape[1], each))
    return figures


def union(count: int, rows: int) -> dict[str, float]:
    """Microseconds a row of SE, IE and IE+SC; answers are compared. Boxes bound five dimensions of 1,000 codes."""
    draw = np.random.default_rng(7)
    sizes = np.full(5, 1_000, np.int32)
    centre, half = draw.integers(0, 1_000, (count, 5)), draw.integers(20, 120, (count, 5))
    low, high = np.maximum(centre - half, 0), np.minimum(centre + half, 999)
    by_volume = np.argsort(-np.prod((high - low + 1).astype(np.float64), axis=1))
    low, high = (each[by_volume].reshape(-1).astype(np.int32) for each in (low, high))
    boxes = Boxes(
        sizes, np.arange(count + 1, dtype=np.int64) * 5, np.tile(np.arange(5, dtype=np.int32), count), low, high
    )
    codes = draw.integers(0, 1_000, (5, rows)).astype(np.int32)
    tree = RTree.build(boxes)
    ways: dict[str, Callable[[], np.ndarray]] = {
        "SE": lambda: scan_evaluate(boxes, codes)[0],
        "IE": lambda: tree_evaluate(tree, codes, short_circuit=False)[0],
        "IE+SC": lambda: tree_evaluate(tree, codes)[0],
    }
    answers = [ask() for ask in ways.values()]
    assert all(np.array_equal(answer, answers[0]) for answer in answers)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(5):
        for name, ask in ways.items():
            started = time.process_time()
            ask()
            seconds[name].append(time.process_time() - started)
    micros = {name: 1e6 * median(values) / rows for name, values in seconds.items()}
    return micros | {"rows in the union": float(answers[0].mean())}


def bytes_of(boxes: Boxes) -> dict[str, float]:
    """MiB of the parts of a BE-Tree and of CEI."""
    store = BETree.build(boxes)._store
    used = store.scalars
    cei = Cei.build(boxes, access="narrowest").arrays
    return {
        "BE-Tree: predicates": 12 * len(boxes.attributes) / MIB,
        "BE-Tree: headers of expressions": (4 * int(used[WORDS_USED]) - 12 * len(boxes.attributes)) / MIB,
        "BE-Tree: c-nodes": int(used[C_USED]) * store.c_nodes.itemsize / MIB,
        "BE-Tree: p-nodes": int(used[P_USED]) * store.p_nodes.itemsize / MIB,
        "BE-Tree: directory": store.directory.nbytes / MIB,
        "BE-Tree: key to expression": store.expressions.nbytes / MIB,
        "CEI: headers of constructs": cei["list_start"].nbytes / MIB,
        "CEI: ids": cei["ids"].nbytes / MIB,
        "CEI: boxes": sum(cei[name].nbytes for name in ("keys", "start", "terms")) / MIB,
    }


def adaptation(boxes: Boxes, rows: np.ndarray, thetas: tuple[float, ...]) -> dict[str, list[float]]:
    """Predicates evaluated an event, a tenth of the events after the other, and then microseconds of CPU an event. Half
    of the events are uniform, then low values are frequent."""
    half = rows.shape[1] // 2
    skewed = np.minimum(np.random.default_rng(8).geometric(0.05, (len(rows), half)) - 1, VALUES - 1).astype(np.int32)
    events = np.ascontiguousarray(np.concatenate([rows[:, :half], skewed], axis=1))
    figures: dict[str, list[float]] = {}
    for theta in (None, *thetas):
        tree = BETree.build(boxes) if theta is None else BETree.build(boxes, theta=theta)
        tenths = np.array_split(np.arange(events.shape[1]), 10)
        started = time.process_time()
        costs = [
            tree.search_rows(np.ascontiguousarray(events[:, at]), adapt=theta is not None)[2]["predicates_evaluated"]
            for at in tenths
        ]
        name = "as it was built" if theta is None else f"adapting, theta {theta:g}"
        seconds = time.process_time() - started
        figures[name] = [cost / len(at) for cost, at in zip(costs, tenths, strict=True)]
        figures[name].append(1e6 * seconds / events.shape[1])
    return figures


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--boxes", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--thetas", type=float, nargs="+", default=[0.0, 0.5, 1.0])
    parser.add_argument("--events", type=int, default=10_000, help="of the changing workload")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args(arguments)
    print(f"structures: {machine()}")
    small, few = boxes_of(100)
    compare_variants(small, few[:, :10])
    union(50, 10)
    boxes, rows = boxes_of(options.boxes)
    compared = compare_variants(boxes, np.ascontiguousarray(rows[:, : options.rows]))
    title = f"{options.boxes:,} boxes of five predicates over {COLUMNS} columns of {VALUES} codes"
    cells = [
        (name, short(1e3 * built), short(micros), ", ".join(f"{what} {short(each)}" for what, each in cost.items()))
        for name, built, micros, cost in compared
    ]
    print_table(title, ("structure", "ms to build", "µs a row", "of a row"), cells)
    in_union = union(options.boxes, options.rows)
    print_table("Is a row in the union? µs of CPU", [*in_union], [[short(value) for value in in_union.values()]])
    sizes = bytes_of(boxes)
    print_table("MiB", ("part", "MiB"), [(name, short(value)) for name, value in sizes.items()])
    adapted = adaptation(boxes, rows[:, : options.events], tuple(options.thetas))
    header = ("tree", *(f"{tenth + 1}" for tenth in range(10)), "µs")
    lines = [(name, *(short(value) for value in values)) for name, values in adapted.items()]
    print_table("Predicates evaluated an event, by tenths of the events; they change after the fifth", header, lines)
    if options.json:
        figures = {"variants": compared, "union": in_union, "mib": sizes, "adaptation": adapted}
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
