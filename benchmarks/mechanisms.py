"""What each mechanism of the batch kernel gains: the kernel with it and without it, in turn, in one process.

    python -m benchmarks.mechanisms [--rules 1000 10000 100000] [--repeat 7] [--rows 65536]

A mechanism is left out of the plan, of the layout and of what is arranged by the rows, so that the planner may choose
what is best without it. Equal answers come first, then medians of CPU seconds. A gain of 1.05 says that the kernel
takes 5 % longer without the mechanism; `match` of an Arrow table can gain no more than the kernel in it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

import rules_index as ri
from benchmarks.kinds import KINDS, ROUTES
from benchmarks.report import machine, median, print_table
from rules_index.index import engine as engine_module
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.hybrid import Hybrid
from rules_index.index.layout import hash_tables
from rules_index.index.planner import hash_table_costs, scan_costs
from rules_index.index.planner.hash_table_costs import TableCosts
from rules_index.index.planner.run_costs import RunCosts
from rules_index.kernels import match as kernel
from rules_index.kernels.jit import jit

CASES = (
    ("equality", 0.5), ("zipf", 0.5), ("accounts", 0.5), ("tuples", 0.5), ("ranges", 0.5), ("ranges", 50.0),
    ("thresholds", 0.5), ("routes", 0.5),
)  # fmt: skip
"""Kinds of rule sets, and the matches a row that they are drawn for."""
_NEVER = 1 << 62
"""More combinations of codes per entry than any table has."""


@jit
def _plain_arranged(sample: Any, index: Any, transposed: bool) -> Any:
    """`kernels.match.arranged` without equality blocks, and without transposed lists where they are not wanted."""
    count, words, chunk_rows = sample.shape[1], index.block_rows >> 6, index.block_rows
    disjunctions, bitmaps = len(index.disjunction_start) - 1, len(index.bitmap_attribute)
    coarse = np.empty(len(index.shift) * chunk_rows, np.uint8)
    bits = np.empty((bitmaps + disjunctions) * words, np.uint64)
    size_of = np.zeros(bitmaps + disjunctions, np.int32)
    disjunction_bits = np.zeros(disjunctions * words, np.uint64)
    order = np.arange(chunk_rows).astype(np.int32)
    begin = index.disjunction_start[disjunctions]
    end = begin + index.scanned
    kernel.coarsen(sample, np.empty((0, 0), np.uint8), 0, count, index.shift, chunk_rows, coarse)
    kernel._fill_block(sample, 0, coarse, 0, count, words, words, index, order, bits, disjunction_bits)
    kernel.count_rows(bitmaps + disjunctions, words, bits, size_of)
    terms = index.terms.copy()
    kernel.arrange_terms(0, len(index.target), index.term_start, terms, size_of)
    chosen = 0
    if transposed and end == len(index.target):
        found = kernel.rows_found(begin, end, words, bits, index.term_start, terms)
        chosen = int(found > kernel.TRANSPOSED_HITS * kernel.groups_of(begin, end, index.target) * count)
    last = begin if chosen else end
    summary_terms, summary_next, _ = kernel.choose_summary_terms(
        begin, last, index.term_start, terms, bitmaps + disjunctions, words, count, bits
    )
    return terms, chosen, summary_terms, summary_next, *kernel.no_equality_blocks()


@dataclass(frozen=True)
class Mechanism:
    """What is left out: names that are replaced while the index is laid out (`patches`), and what arranges the kernel's
    arrays by the rows."""

    name: str
    patches: tuple[tuple[Any, str, Any], ...] = ()
    arranged: Callable[[Any, Any], Any] | None = None

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """While this lasts, indexes are laid out and arranged without the mechanism."""
        with ExitStack() as stack:
            for where, name, value in self.patches:
                stack.enter_context(patch.object(where, name, value))
            if self.arranged:
                stack.enter_context(patch.object(engine_module, "arranged", self.arranged))
            yield


MECHANISMS = (
    Mechanism(
        "equality blocks",
        ((scan_costs, "shuffles", lambda: False),),
        arranged=lambda sample, index: _plain_arranged(sample, index, True),
    ),
    Mechanism(
        "summaries",
        ((scan_costs, "FEW_SHARED", -1),),
        arranged=lambda sample, index: _without_summaries(sample, index),
    ),
    Mechanism("even tables", ((hash_tables, "PLACES_PER_ENTRY", -1),)),
    Mechanism("prefilters", ((hash_tables, "FILTERED", _NEVER), (hash_table_costs, "FILTERED", _NEVER))),
    Mechanism(
        "keys of several attributes",
        ((hash_table_costs, "LONGEST_KEY", 1), (TableCosts, "_longer_keys", lambda self, at: [])),
    ),
    Mechanism("sorted runs", ((RunCosts, "choose", lambda self, cost: []),)),
    Mechanism("transposed lists", arranged=lambda sample, index: _with_sorted_lists(sample, index)),
)


def _with_sorted_lists(sample: np.ndarray, index: Any) -> Any:
    """Arranged as ever where lists are not transposed; else as if there were no such lists."""
    found = kernel.arranged(sample, index)
    return _plain_arranged(sample, index, False) if found[1] else found


def _without_summaries(sample: np.ndarray, index: Any) -> Any:
    terms, chosen, summary_terms, summary_next, *blocks = _plain_arranged(sample, index, True)
    return terms, chosen, summary_terms[:0], summary_next[:0], *blocks


def seconds(engine: Hybrid, codes: np.ndarray) -> float:
    """CPU seconds of a pass over the codes."""
    started = time.process_time()
    engine.match(codes)
    return time.process_time() - started


def measure(c: Conjunctions, codes: np.ndarray, repeat: int) -> dict[str, tuple[float, bool]]:
    """By mechanism its gain, and whether leaving it out changes anything."""
    sample = codes[:, : 1 << 12].astype(np.int32)
    whole = Hybrid.build(c, sample)
    expected = whole.match(codes)
    found: dict[str, tuple[float, bool]] = {}
    for mechanism in MECHANISMS:
        with mechanism.left_out():
            without = Hybrid.build(c, sample)
            answer = without.match(codes)
            assert all(np.array_equal(a, b) for a, b in zip(answer, expected, strict=True)), mechanism.name
            same = without.scan_method == whole.scan_method and _same_index(whole, without)
            pairs = [] if same else [(seconds(whole, codes), seconds(without, codes)) for _ in range(repeat)]
        found[mechanism.name] = (median([b / a for a, b in pairs]) if pairs else 1.0, not same)
    found["ns/row"] = (median([seconds(whole, codes) for _ in range(3)]) / codes.shape[1] * 1e9, True)
    return found


def _same_index(one: Hybrid, other: Hybrid) -> bool:
    """Whether two engines have just the same arrays for the kernel."""
    assert one._index is not None and other._index is not None
    return all(np.array_equal(a, b) for a, b in zip(one._index, other._index, strict=True))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rules", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--rows", type=int, default=1 << 16)
    options = parser.parse_args()
    print(f"mechanisms of the kernel: how much longer it takes without; {machine()}; rules_index {ri.__name__}")
    rows = []
    for rules in options.rules:
        for name, wanted in CASES:
            kind = ROUTES if name == ROUTES.name else KINDS[name]
            given = kind.make(rules, kind.rate(rules, wanted), options.rows, 7)
            found = measure(*given.coded(), options.repeat)
            cells = [f"{gain:.2f}" if used else "-" for gain, used in found.values()]
            rows.append((f"{rules:,}", f"{name}, {wanted:g}", *cells))
            print(rows[-1], flush=True)
    header = ("rules", "kind, matches a row", *(each.name for each in MECHANISMS), "ns/row")
    print_table("gain of each mechanism; - where it is not used", header, rows)


if __name__ == "__main__":
    main()
