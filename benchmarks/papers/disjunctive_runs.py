"""What the experiments on disjunctive predicates run: matching of predicates by pairs, and evaluation on rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.implication import PLAIN, Pairs, Setup, cells
from benchmarks.papers.experiment import DifferentAnswersError, Progress, Row, in_turn
from benchmarks.papers.systems.disjunctive.intervals import Predicates
from benchmarks.papers.systems.disjunctive.predicate_matching import match, match_each
from benchmarks.papers.systems.disjunctive.row_evaluation import scan_evaluate, tree_evaluate
from benchmarks.report import median
from rules_index.engines.r_tree.structure import RTree
from rules_index.implication.search_limits import Budget
from rules_index.index.boxes import Boxes

SEED = 7
METHODS = {name: (method, kind) for name, method, kind in PLAIN}
VALUES = 10_000
"""Codes of a dimension, for values from 0 to 100."""


def seconds_of(given: Pairs, names: Sequence[str], repeat: int) -> dict[str, float]:
    """Median CPU microseconds a pair of each method, in turn, after their answers are compared."""
    require_equal(given, names)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeat):
        for name in names:
            taken[name].append(given.seconds(*METHODS[name]))
    return {name: 1e6 * median(values) for name, values in taken.items()}


def require_equal(given: Pairs, names: Sequence[str]) -> None:
    """Exact methods answer alike where they decide; the others report no implication that does not hold."""
    expected = given.answers("em_dfs", None)
    for name in names:
        method, kind = METHODS[name]
        for one, right in zip(given.answers(method, kind), expected, strict=True):
            if None not in (one, right) and (one != right if method.startswith("em") else one and not right):
                raise DifferentAnswersError(f"{name} answers otherwise")


def matching(
    progress: Progress, parameter: str, values: Sequence[int], names: Sequence[str], repeat: int, queries: int,
    streams: int, split: str = "quadratic", both: bool = True,
) -> list[Row]:  # fmt: skip
    """Figures 9 to 14: one parameter of the set-up is varied; dimensions all finite, and then some unbounded."""
    rows = []
    for unbounded in (False, True) if both else (False,):
        for value in values:
            setup = replace(Setup(queries=queries, streams=streams, unbounded=unbounded), **{parameter: value})
            row: Row = {"dimensions are": "some unbounded" if unbounded else "finite", parameter: value}
            rows.append(row | seconds_of(Pairs(setup, split), names, repeat))
            progress(f"{'unbounded' if unbounded else 'finite'}, {parameter} {value}")
    return rows


def large(
    progress: Progress, values: Sequence[int], names: Sequence[str], repeat: int, queries: int, streams: int,
    parts: int,
) -> list[Row]:  # fmt: skip
    """Figure 15: large stream predicates, and how many of forty pairs BFS leaves undecided with so many live parts."""
    rows = []
    for boxes in values:
        row: Row = {"stream_boxes": boxes}
        row |= seconds_of(Pairs(Setup(stream_boxes=boxes, queries=queries, streams=streams)), names, repeat)
        asked, asking = Setup(stream_boxes=boxes, queries=10, streams=4).draw(SEED)
        found = match_each(Predicates.of(asked), Predicates.of(asking), "em_bfs", budget=Budget(parts, 1.0)).implied
        rows.append(row | {"BFS undecided": float(list(found).count(None))})
        progress(f"{boxes} boxes")
    return rows


def selectivities(progress: Progress, seeds: int, rows: int) -> list[Row]:
    """Table 7: selectivity, in percent, of a stream predicate as it takes in four queries one after the other."""
    told = []
    for seed in range(SEED, SEED + seeds):
        queries, streams = Setup(queries=4, streams=1, query_values=6, stream_values=4).draw(seed)
        items = np.random.default_rng(seed).uniform(0, 100, (Setup().dimensions, rows))
        codes = queries[0].space.codes(items)
        for name, method, quick in (
            ("HSR", "hsr", False),
            ("HSR+QC", "hsr", True),
            ("HCR", "hcr", True),
            ("EM", "em_dfs", True),
        ):
            grown, row = streams[0], {"seed": seed, "method": name}
            for label, query in zip(("p_A", "p_B", "p_C", "p_D"), queries, strict=True):
                grown = match(query, grown, method, quick_check=quick).relaxed  # type: ignore[arg-type]
                row[label] = 100 * float(scan_evaluate(grown.sparse, codes)[0].mean())
            told.append(row)
        progress(f"seed {seed}")
    return told


def implied(progress: Progress, seeds: int, queries: int, streams: int) -> list[Row]:
    """Section 6.2: the pairs that each method sees implied, beside brute force over cells."""
    setup = Setup(dimensions=3, query_boxes=3, stream_boxes=30, unbounded=True, queries=queries, streams=streams)
    told = []
    for seed in range(SEED, SEED + seeds):
        given = Pairs(setup, seed=seed)
        held = [cells(query) for query in given.queries]
        brute = [bool((query <= cells(stream)).all()) for stream in given.streams for query in held]
        row: Row = {"seed": seed, "pairs": len(brute), "brute force": sum(brute)}
        for name, method, quick in (
            ("EM", "em_dfs", True),
            ("HSR+QC", "hsr", True),
            ("HCR", "hcr", True),
            ("HSR", "hsr", False),
        ):
            found = given.answers(method, None, quick_check=quick)  # type: ignore[arg-type]
            row[name] = sum(one is True for one in found)
            row[f"{name} false"] = sum(bool(one) and not right for one, right in zip(found, brute, strict=True))
        told.append(row)
        progress(f"seed {seed}")
    return told


def covering(dimensions: int, boxes: int, selectivity: float, overlap: float, seed: int = SEED) -> Boxes:
    """Boxes of which a part cover, without overlap, a cube of so large a share of the space; the others lie within it,
    normally distributed around its middle, as large as those are on average. By decreasing volume."""
    draw = np.random.default_rng([seed, dimensions, boxes])
    side = max(1, round(VALUES * selectivity ** (1 / dimensions)))
    corner = draw.integers(0, VALUES - side + 1, dimensions)
    tiles = [np.stack([corner, corner + side], axis=1)]
    while len(tiles) < max(1, round(boxes * (1 - overlap))):
        largest = max(
            range(len(tiles)), key=lambda each: float(np.prod(tiles[each][:, 1] - tiles[each][:, 0], dtype=float))
        )
        tile = tiles.pop(largest)
        along = int(np.argmax(tile[:, 1] - tile[:, 0]))
        low, high = tile[along]
        cut = int(low + max(1, round((high - low) * draw.uniform(0.35, 0.65))))
        for ends in ((low, cut), (cut, high)):
            half = tile.copy()
            half[along] = ends
            tiles.append(half)
    size = np.mean([tile[:, 1] - tile[:, 0] for tile in tiles], axis=0)
    while len(tiles) < boxes:
        centre = draw.normal(corner + side / 2, side / 6)
        low = np.clip(np.rint(centre - size / 2), corner, corner + side - 1)
        high = np.clip(np.rint(centre + size / 2), low + 1, corner + side)
        tiles.append(np.stack([low, high], axis=1).astype(np.int64))
    bounds = np.array(tiles)
    bounds = bounds[np.argsort(-np.prod((bounds[:, :, 1] - bounds[:, :, 0]).astype(float), axis=1), kind="stable")]
    return Boxes(
        np.full(dimensions, VALUES, np.int32), np.arange(boxes + 1, dtype=np.int64) * dimensions,
        np.tile(np.arange(dimensions, dtype=np.int32), boxes),
        bounds[:, :, 0].reshape(-1).astype(np.int32), (bounds[:, :, 1] - 1).reshape(-1).astype(np.int32),
    )  # fmt: skip


def grown(boxes: Boxes) -> RTree:
    """The paper's R-tree: boxes inserted one by one, nodes split the quadratic way."""
    nothing = np.empty(0, np.int32)
    tree = RTree.build(
        Boxes(boxes.sizes, np.zeros(1, np.int64), nothing, nothing, nothing), dimensions=range(len(boxes.sizes))
    )
    for key in range(len(boxes)):
        own = slice(boxes.start[key], boxes.start[key + 1])
        tree.insert(key, boxes.attributes[own], boxes.low[own], boxes.high[own])
    return tree


def throughput(boxes: Boxes, rows: int, repeat: int) -> Row:
    """Items a millisecond of SE, IE and IE+SC, after their answers are compared, and the boxes and nodes that each
    looks at for an item."""
    codes = np.random.default_rng(SEED).integers(0, VALUES, (len(boxes.sizes), rows)).astype(np.int32)
    tree = grown(boxes)
    ways: Mapping[str, Callable[[], tuple[np.ndarray, dict[str, int]]]] = {
        "SE": lambda: scan_evaluate(boxes, codes),
        "IE": lambda: tree_evaluate(tree, codes, short_circuit=False),
        "IE+SC": lambda: tree_evaluate(tree, codes),
    }
    answers = {name: ask() for name, ask in ways.items()}
    if any(not np.array_equal(answers[name][0], answers["SE"][0]) for name in ways):
        raise DifferentAnswersError("SE, IE and IE+SC answer otherwise")
    row: Row = {name: rows / (1e3 * each) for name, each in in_turn(ways, repeat).items()}
    row["held %"] = 100 * float(answers["SE"][0].mean())
    return row | {f"{name} compared": sum(cost.values()) / rows for name, (_, cost) in answers.items()}


def evaluation(
    progress: Progress,
    parameter: str,
    values: Sequence[Any],
    rows: int,
    repeat: int,
    overlaps: Sequence[float] = (0.5,),
    selectivities: Sequence[float] = (0.01,),
) -> list[Row]:
    """Figures 16 to 18 and Table 8."""
    told = []
    for selectivity in selectivities:
        for overlap in overlaps:
            for value in values:
                given = {"dimensions": 3, "boxes": 100, "selectivity": selectivity, "overlap": overlap} | {
                    parameter: value
                }
                row = {
                    name: round(100 * each) if name in ("overlap", "selectivity") else each
                    for name, each in given.items()
                }
                told.append(row | throughput(covering(**given), rows, repeat))
                progress(f"selectivity {given['selectivity']:.0%}, overlap {given['overlap']:.0%}, {parameter} {value}")
    return told
