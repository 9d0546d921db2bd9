"""The two methods of a join beside each other: what does a row cost by its partners?

    python -m benchmarks.join_methods [--rules 100 1000] [--shares 0.0001 0.01] [--partners 1 10 100] [--streams 2 3]
                                      [--pairs 4000000] [--rows 200000] [--repeat 5]

`batch` intersects lists of rows, `pdfa` lets row after row arrive. Rules and partners are as in `benchmarks.join`, in
memory and on one core: what the workers do, without Spark. Joined rows and their rules are compared before any time is
printed; the index is built, and each method has run once, before it is measured.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import numpy as np
import pyarrow as pa

import rules_index as ri
from benchmarks.report import interleaved, machine, median, print_table, short
from rules_index.join.index import JoinIndex, Method
from rules_index.join.window_partners import Side

VALUES = 1_000_000
HOUR = 3_600_000_000
SEED = 7


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rules", type=int, nargs="+", default=[100, 1_000])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0001, 0.01], help="of joined rows with a rule")
    parser.add_argument("--partners", type=int, nargs="+", default=[1, 10, 100], help="of a row in each other stream")
    parser.add_argument("--streams", type=int, nargs="+", default=[2])
    parser.add_argument("--pairs", type=int, default=4_000_000, help="combinations of rows, at most")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of a side, at most")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args(arguments)
    print(f"join_methods: one core, {machine()}")
    header = (
        *("streams", "rules", "share", "partners", "rows", "combinations", "joined rows"),
        *("batch, us a row", "pdfa, us a row", "pdfa / batch", "FIRST a row", "SECOND a row"),
    )
    lines = [
        _measured(streams, rules, share, partners, options)
        for streams in options.streams
        for rules in options.rules
        for share in options.shares
        for partners in options.partners
    ]
    print_table(f"Medians of {options.repeat} runs in turn, CPU time", header, lines)


def _measured(streams: int, rules: int, share: float, partners: int, options: argparse.Namespace) -> tuple[object, ...]:
    """One line of the table."""
    rows = min(options.rows, options.pairs // partners ** (streams - 1))
    names = "abcdef"[:streams]
    index = JoinIndex.of(_compiled(names, rules, share), list(names))
    sides = _sides(names, rows, partners)
    methods: tuple[Method, ...] = ("batch", "pdfa")
    found = {method: _digest(index, sides, method) for method in methods}
    if found["batch"] != found["pdfa"]:
        raise SystemExit(f"join_methods: the methods differ: {found} (joined rows, matches, hash)")
    before = dict(index.row_by_row.counters)
    _run(index, sides, "pdfa")
    searches = [(index.row_by_row.counters[name] - before[name]) / (streams * rows) for name in ("first", "second")]
    seconds = interleaved(options.repeat, {method: partial(_run, index, sides, method) for method in methods})
    batch, pdfa = (1e6 * median(seconds[method]) / (streams * rows) for method in methods)
    return (
        streams, f"{rules:,}", f"{share:.2%}", partners, short(streams * rows), short(rows * partners ** (streams - 1)),
        short(found["batch"][0]), f"{batch:.2f}", f"{pdfa:.2f}", f"{pdfa / batch:.2f}",
        *(f"{count:.2f}" for count in searches),
    )  # fmt: skip


def _compiled(names: str, rules: int, share: float) -> ri.CompiledRules:
    """Rules with a range on a column of each stream, which together are true of a share of all joined rows."""
    draw = np.random.default_rng(rules)
    width = max(1, round(VALUES * (share / rules) ** (1 / len(names))))
    starts = draw.integers(0, VALUES - width, (rules, len(names))).tolist()
    texts = [
        " AND ".join(f"{name}.x BETWEEN {low} AND {low + width - 1}" for name, low in zip(names, each, strict=True))
        for each in starts
    ]
    columns = pa.struct([("x", pa.int64())])
    return ri.compile_rules(list(enumerate(texts)), pa.schema([(name, columns) for name in names]))


def _sides(names: str, rows: int, partners: int) -> list[Side]:
    draw = np.random.default_rng(SEED)
    every = np.ones(rows, bool)
    keys = max(1, rows // partners)
    return [
        Side(
            pa.table({"x": draw.integers(0, VALUES, rows)}),
            draw.permutation(np.arange(rows) % keys),
            np.sort(draw.integers(0, HOUR, rows)),
            every,
            every,
        )
        for _ in names
    ]


def _digest(index: JoinIndex, sides: list[Side], method: Method) -> tuple[int, int, int]:
    """Joined rows, matches, and a sum of hashes of rows with rules that does not depend on their order."""
    joined = matches = hashes = 0
    for piece in index.match(sides, [HOUR] * len(sides), method=method):
        joined, matches = joined + len(piece), matches + len(piece.ordinals)
        mixed = np.zeros(len(piece), np.uint64)
        for row in piece.rows:
            mixed = (mixed ^ row.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        of_rule = np.repeat(mixed, np.diff(piece.offsets)) ^ piece.ordinals.astype(np.uint64)
        hashes = (hashes + int((of_rule * np.uint64(0xD6E8FEB86659FD93)).sum(dtype=np.uint64))) % (1 << 64)
    return joined, matches, hashes


def _run(index: JoinIndex, sides: list[Side], method: Method) -> float:
    """CPU seconds of one join."""
    started = time.process_time()
    for _ in index.match(sides, [HOUR] * len(sides), method=method):
        pass
    return time.process_time() - started


if __name__ == "__main__":
    main()
