"""Each step of the matching kernel alone, on one core, over data of the size that it has in a match.

Beside every run a loop of always the same work is timed: the median of their ratio counts, times what the loop takes
where nothing disturbs it, so that a busy host is busy for both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np

from benchmarks.report import median
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.hybrid import Hybrid
from rules_index.index.layout import BLOCK_ROWS, AccessPlan
from rules_index.index.planner import CHUNK_ROWS, Costs
from rules_index.kernels import bitmaps, equality_blocks, fill, lists, prefilter, scan, sorted_runs, summaries
from rules_index.kernels.llvm import GROUP, LANES
from rules_index.kernels.vectors import SPILLED

ATTRIBUTES, VALUES = 20, 100
TABLES = 64
WORDS = BLOCK_ROWS >> 6
_draw = np.random.default_rng(11)
CODES = _draw.integers(0, VALUES, (ATTRIBUTES, CHUNK_ROWS)).astype(np.int32)
COARSE = CODES.astype(np.uint8).reshape(-1)
SHIFT = np.zeros(ATTRIBUTES, np.int32)
NONE, NO_BYTES = np.empty(0, np.int32), np.empty((ATTRIBUTES, 0), np.uint8)


def measure(repeat: int) -> Costs:
    """The costs on this machine."""
    scanned, narrowed = _scan(repeat, share=0.01, terms=2), _scan(repeat, share=0.2, terms=4)
    left = WORDS * -math.expm1(-64 * 0.05**2)
    probe, slot, plain = _look_ups(repeat)
    sort, gather = _sorted_runs(repeat)
    survivor, found = _survivor(repeat)
    skim, likely, group = _summaries(repeat)
    listed, equality_block = _equality_blocks(repeat)
    candidate, bitmap = _candidate(repeat, 3), _bitmap(repeat)
    return Costs(
        row_ns=_row(repeat),
        coarsen_ns=_coarsen(repeat, CODES, NO_BYTES),
        copy_byte_ns=_coarsen(repeat, CODES[:, :0], CODES.astype(np.uint8)),
        bitmap_ns=bitmap,
        small_block_bitmap_ns=_bitmap(repeat, sorted_runs.RUN_WORDS),
        scan_ns=scanned,
        narrow_ns=max(0.0, narrowed - scanned),
        summary_ns=_summary(repeat),
        summary_scan_ns=skim,
        summary_hit_ns=likely,
        word_group_ns=group,
        word_ns=max(0.0, _scan(repeat, share=0.05, terms=5) - scanned) * BLOCK_ROWS / left,
        row_by_code_ns=listed,
        equality_block_ns=equality_block,
        # the same work, and too little of it to be told from what is around it
        equality_hit_ns=candidate,
        check_ns=candidate,
        transpose_ns=bitmap,
        run_scan_ns=_scan(repeat, share=0.05, terms=5, words=sorted_runs.RUN_WORDS) / 5,
        hit_ns=survivor,
        conjunction_hit_ns=found,
        transposed_hit_ns=_match(repeat, 2_000, 1),
        filter_ns=probe,
        slot_ns=slot,
        plain_slot_ns=plain,
        candidate_ns=candidate,
        plain_candidate_ns=_candidate(repeat, 2),
        fetch_ns=_fetch(repeat),
        run_sort_ns=sort,
        run_gather_ns=gather,
        hit_sort_ns=_order(repeat, 4),
        large_hit_sort_ns=_order(repeat, 2 * lists.MANY),
    )


def nanoseconds(repeat: int, run: Callable[..., Any], *arguments: Any) -> float:
    """Nanoseconds of CPU time of a run, as many times the loop's as in the median of the runs; the first one, which
    compiles, does not count."""
    run(*arguments)
    least, ratios = _undisturbed(), []
    for _ in range(repeat):
        before = _seconds(_same_work, COARSE)
        taken = _seconds(run, *arguments)
        ratios.append(2 * taken / (before + _seconds(_same_work, COARSE)))
    return median(ratios) * least * 1e9


def _seconds(run: Callable[..., Any], *arguments: Any) -> float:
    started = time.process_time()
    run(*arguments)
    return time.process_time() - started


@cache
def _undisturbed() -> float:
    """The least seconds of the loop among many."""
    return min(_seconds(_same_work, COARSE) for _ in range(2_000))


@numba.njit(nogil=True)
def _same_work(codes: Any) -> int:
    """Some hundred microseconds of reading in order, and of reading what is farther than the nearest cache."""
    total = 0
    for at in range(1 << 17):
        total += (total ^ codes[at]) + codes[(at * 7919) & ((1 << 18) - 1)]
    return total


def _coarsen(repeat: int, codes: np.ndarray, byte_codes: np.ndarray) -> float:
    out = np.empty_like(COARSE)

    @numba.njit(nogil=True)
    def run(codes: Any, byte_codes: Any, shift: Any, out: Any) -> None:
        bitmaps.coarsen(codes, byte_codes, 0, CHUNK_ROWS, shift, CHUNK_ROWS, out)

    return nanoseconds(repeat, run, codes, byte_codes, SHIFT, out) / CODES.size


def _single_codes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A bitmap for every code of every attribute: their attributes, starts and intervals."""
    attribute = np.concatenate([[-1, -1], np.repeat(np.arange(ATTRIBUTES), VALUES)]).astype(np.int32)
    code = np.tile(np.arange(VALUES), ATTRIBUTES).astype(np.int32)
    starts = np.concatenate([[0, 0], np.arange(len(code) + 1)])
    return attribute, starts.astype(np.int64), np.stack([code, code], 1)


def _bitmap(repeat: int, words: int = WORDS) -> float:
    attribute, starts, intervals = _single_codes()
    bits = np.zeros(len(attribute) * words, np.uint64)
    rows = words << 6

    @numba.njit(nogil=True)
    def run(coarse: Any, attribute: Any, starts: Any, intervals: Any, bits: Any) -> None:
        fill.fill_bitmaps(coarse, CHUNK_ROWS, 0, rows, words, attribute, starts, intervals, bits)

    taken = nanoseconds(repeat, run, COARSE, attribute, starts, intervals, bits)
    return taken / rows / (len(attribute) - 2)


def _summary(repeat: int) -> float:
    kinds = ATTRIBUTES * VALUES
    bits = np.zeros(kinds * WORDS, np.uint64)
    made = np.zeros(kinds * GROUP, np.uint64)

    @numba.njit(nogil=True)
    def run(bits: Any, made: Any) -> None:
        summaries.summarise(kinds, WORDS, bits, made)

    return nanoseconds(repeat, run, bits, made) / BLOCK_ROWS / kinds


def _summaries(repeat: int) -> tuple[float, float, float]:
    """A row in the summaries of a conjunction; a conjunction that may have a row by its rarest terms; a group of words
    in which it may have one by all."""
    # nanoseconds of a conjunction in a block, how many may have a row, in how many groups
    alone, some, many = (_scanned_by_summaries(repeat, share) for share in (0.001, 0.02, 0.1))
    least = alone[0]
    likely, group = np.linalg.solve([some[1:], many[1:]], [some[0] - least, many[0] - least])
    return least / BLOCK_ROWS, max(0.1, float(likely)), max(0.1, float(group))


def _scanned_by_summaries(repeat: int, share: float, conjunctions: int = 100_000) -> tuple[float, float, float]:
    kinds = ATTRIBUTES * VALUES
    bits = np.packbits(_draw.random((kinds, BLOCK_ROWS)) < share, bitorder="little").view(np.uint64)
    made = np.zeros(kinds * GROUP, np.uint64)
    summary_terms = _draw.integers(0, kinds, conjunctions * summaries.SUMMARY_TERMS).astype(np.int32)

    @numba.njit(nogil=True)
    def run(bits: Any, summary_terms: Any, made: Any) -> int:
        at_once, count = scan.SUMMARIES_AT_ONCE, 0
        groups = np.empty(at_once + (at_once + 1) * GROUP, np.int32)
        current, places = np.empty((at_once << 6) + GROUP, np.uint64), np.empty((at_once << 6) + SPILLED, np.int32)
        for begin in range(0, conjunctions, at_once):
            end = min(conjunctions, begin + at_once)
            found = scan._intersect_summary_terms(begin, end, WORDS, bits, summary_terms, made, groups, current, places)
            count += found[1]
        return count

    @numba.njit(nogil=True)
    def tell(bits: Any, summary_terms: Any, made: Any) -> Any:
        summaries.summarise(kinds, WORDS, bits, made)
        likely, found, numbers = np.uint64(0), np.uint64(0), np.empty(2 * GROUP, np.int32)
        for at in range(np.uint64(0), np.uint64(len(summary_terms)), np.uint64(summaries.SUMMARY_TERMS)):
            likely += summaries.share_summaries(made, summary_terms, at)
            found += summaries.add_groups(made, summary_terms, at, numbers, np.uint64(0), np.int32(0))
        return likely, found

    likely, found = tell(bits, summary_terms, made)
    taken = nanoseconds(repeat, run, bits, summary_terms, made)
    return taken / conjunctions, int(likely) / conjunctions, int(found) / conjunctions


def _scan(repeat: int, share: float, terms: int, words: int = WORDS, conjunctions: int = 400_000) -> float:
    """A row in one conjunction whose terms hold this share of the rows each; what is left is not counted."""
    kinds = 2_000
    held = np.zeros((kinds + 2, words << 6), np.uint8)
    held[2:] = _draw.random((kinds, words << 6)) < share
    held[1] = 1
    bits = np.packbits(held, axis=1, bitorder="little").view(np.uint64).reshape(-1)
    pairs = np.zeros((conjunctions * terms, 2), np.int32)
    pairs[:, 1] = 2 + _draw.integers(0, kinds, len(pairs))
    starts = np.arange(0, len(pairs) + 1, terms, dtype=np.int64)

    @numba.njit(nogil=True)
    def run(starts: Any, pairs: Any, bits: Any) -> int:
        current, next_term = np.empty(scan.AT_ONCE << 6, np.uint64), np.empty(scan.AT_ONCE, np.int64)
        places, total = np.empty((scan.AT_ONCE << 6) + SPILLED, np.int32), 0
        for begin in range(0, len(starts) - 1, scan.AT_ONCE):
            end = min(len(starts) - 1, begin + scan.AT_ONCE)
            found = scan._intersect_first_terms(begin, end, words, bits, starts, pairs, current, next_term, places)
            total += scan._apply_rest(begin, found, False, words, bits, starts, pairs, next_term, current, places)[1]
        return total

    return nanoseconds(repeat, run, starts, pairs, bits) / (words << 6) / conjunctions


def _conjunctions(rules: int, named: int, values: int = VALUES) -> Conjunctions:
    """Rules of equalities on `named` attributes each, with one of the first values."""
    attributes = np.argsort(_draw.random((rules, ATTRIBUTES)), axis=1)[:, :named]
    sets = np.sort(attributes, axis=1) * VALUES + _draw.integers(0, values, (rules, named))
    code = np.tile(np.arange(VALUES), ATTRIBUTES).astype(np.int32)
    return Conjunctions(
        sizes=np.full(ATTRIBUTES, VALUES + 2, np.int32),
        set_start=np.arange(len(code) + 1),
        intervals=np.stack([code, code], 1),
        start=np.arange(0, rules * named + 1, named),
        terms=np.stack([sets.reshape(-1) // VALUES, sets.reshape(-1)], 1).astype(np.int32),
        target=np.arange(rules, dtype=np.int32),
        disjunction_start=np.zeros(1, np.int32),
    )


def _match(repeat: int, rules: int, named: int, values: int = VALUES) -> float:
    """A match of a scanned conjunction: rules of so many equalities each, against the same without any matching row."""
    c, codes = _conjunctions(rules, named, values), CODES % values
    engine = Hybrid(c, access_plan=AccessPlan(*(np.full(rules, -1, np.int32),) * 2, (), (), CHUNK_ROWS))
    matches = len(engine.match(codes)[1])
    taken = nanoseconds(repeat, engine.match, codes)
    return max(0.1, (taken - nanoseconds(repeat, engine.match, np.full_like(codes, VALUES))) / matches)


def _equality_blocks(repeat: int) -> tuple[float, float]:
    """A row put side by side and listed under its code, of one attribute; a row compared with an equality block."""
    places = np.arange(0, ATTRIBUTES + -ATTRIBUTES % GROUP, dtype=np.uint64) % ATTRIBUTES * CHUNK_ROWS
    stride, room = equality_blocks.WIDEST >> 1, BLOCK_ROWS + LANES
    by_row = np.zeros((BLOCK_ROWS + 1) * stride + LANES, np.uint8)
    listed, length = np.empty(equality_blocks.CODES * room, np.uint16), np.empty(equality_blocks.CODES, np.int32)

    @numba.njit(nogil=True)
    def list_rows(coarse: Any, places: Any, by_row: Any, listed: Any, length: Any) -> None:
        equality_blocks._put_side_by_side(coarse, places, BLOCK_ROWS, stride, by_row)
        for attribute in range(ATTRIBUTES):
            equality_blocks._list_rows(coarse, places[attribute], BLOCK_ROWS, room, listed, length)

    listing = nanoseconds(repeat, list_rows, COARSE, places, by_row, listed, length) / BLOCK_ROWS / ATTRIBUTES
    count, met = 20_000, BLOCK_ROWS // VALUES
    terms = np.stack(
        [_draw.integers(0, high, (count, equality_blocks.NAMED, LANES)) for high in (ATTRIBUTES, VALUES)], 2
    )
    found_rows, found_blocks = np.empty((2, BLOCK_ROWS), np.int32)
    found = np.empty(BLOCK_ROWS, np.uint64)

    @numba.njit(nogil=True)
    def compare(terms: Any, by_row: Any, listed: Any, rows: Any, numbers: Any, found: Any) -> int:
        total = 0
        for equality_block in range(count):
            begin = equality_block % VALUES * room
            total += equality_blocks._compare(
                equality_block, terms, by_row, stride, listed, begin, met, rows, numbers, found, 0
            )
        return total

    some = terms.astype(np.uint8).reshape(-1)
    comparing = nanoseconds(repeat, compare, some, by_row, listed, found_rows, found_blocks, found)
    return listing, comparing / count / met


def _survivor(repeat: int) -> tuple[float, float]:
    """A match beside others of its conjunction in a block, and what the first one there costs more."""
    each = []
    for rules, values in ((20_000, VALUES), (2_000, 24)):
        rows = BLOCK_ROWS / values**2
        # how many matches of a conjunction are the first ones
        each.append((_match(repeat, rules, 2, values), -math.expm1(-rows) / rows))
    (alone, most), (together, few) = each
    found = max(0.0, (alone - together) / (most - few))
    return max(0.1, alone - most * found), found


def _look_ups(repeat: int) -> tuple[float, float, float]:
    """A look-up in a filter; a slot of a table without one, and of one that has the rows' lists."""
    attributes, found = np.arange(3, dtype=np.int32), np.empty(CHUNK_ROWS + prefilter.WORD_ROWS, np.uint16)
    words = np.packbits(_draw.random(1 << 16) < 1 / 64, bitorder="little").view(np.int32)

    @numba.njit(nogil=True)
    def look_up(coarse: Any, attributes: Any, words: Any, found: Any) -> int:
        count: int = prefilter._look_up(coarse, CHUNK_ROWS, attributes, words, np.uint32(16), CHUNK_ROWS, found)
        return count

    probe = nanoseconds(repeat, look_up, COARSE, attributes, words, found) / CHUNK_ROWS
    slot = nanoseconds(repeat, _keyed(10, 1, 3).match, CODES) / CHUNK_ROWS
    plain = nanoseconds(repeat, _keyed(10, 1, 1).match, CODES) / CHUNK_ROWS
    return probe, slot, plain


def _candidate(repeat: int, named: int) -> float:
    """A candidate in its slot in a table of two attributes, of conjunctions that name so many."""
    few, many = _keyed(20_000, 2, named), _keyed(100_000, 2, named)
    per_row = (nanoseconds(repeat, many.match, CODES) - nanoseconds(repeat, few.match, CODES)) / CHUNK_ROWS
    return max(0.1, per_row / (80_000 / VALUES**2))


def _fetch(repeat: int) -> float:
    """An entry read from memory that no cache has, of several at once."""
    entries = np.zeros((1 << 23, 4), np.int32)
    places = _draw.permutation(len(entries))[: 1 << 18]

    @numba.njit(nogil=True)
    def run(entries: Any, places: Any) -> int:
        total = 0
        for place in places:
            total += entries[place, 0]
        return total

    return nanoseconds(repeat, run, entries, places) / len(places)


def _keyed(rules: int, width: int, named: int) -> Hybrid:
    """Rules of equalities on `named` of the same attributes, filed under the first `width` of them in one table."""
    c = _conjunctions(rules, named)
    first = np.sort(_draw.integers(0, VALUES, (rules, named)) + np.arange(named) * VALUES, axis=1)
    terms = np.stack([first.reshape(-1) // VALUES, first.reshape(-1)], 1).astype(np.int32)
    c = Conjunctions(c.sizes, c.set_start, c.intervals, c.start, terms, c.target, c.disjunction_start)
    table, sorted_by = np.zeros(rules, np.int32), np.full(rules, -1, np.int32)
    return Hybrid(c, access_plan=AccessPlan(table, sorted_by, (tuple(range(width)),), (), CHUNK_ROWS))


def _row(repeat: int) -> float:
    """A row's list with nothing in it."""
    at, offsets = np.empty(CHUNK_ROWS, np.int32), np.zeros(CHUNK_ROWS + 1, np.int64)

    @numba.njit(nogil=True)
    def run(none: Any, at: Any, offsets: Any) -> None:
        lists.row_lists(none, none, 0, len(at), 1, 1, at, offsets, none)

    return nanoseconds(repeat, run, NONE, at, offsets) / CHUNK_ROWS


def _order(repeat: int, matches: int) -> float:
    """A match in lists of so many a row, those of a chunk as `TABLES` tables give them, against those of a block in
    order: each table's are in the order of the rows, of any rules."""

    @numba.njit(nogil=True)
    def run(rows: Any, rules: Any, ascending: int, at: Any, offsets: Any, ordinals: Any) -> None:
        lists.row_lists(rows, rules, len(rows), len(at), ascending, 1, at, offsets, ordinals)

    taken = []
    for count, ascending in ((CHUNK_ROWS, 0), (BLOCK_ROWS, 1)):
        rules = np.arange(count * matches, dtype=np.int32) // count
        rows = np.tile(np.arange(count, dtype=np.int32), matches)
        if not ascending:
            table = _draw.integers(0, TABLES, len(rows))
            given = np.lexsort((rows, table))
            rows, rules = rows[given], _draw.permutation(rules)
        scratch = np.empty(count, np.int32), np.zeros(count + 1, np.int64), np.empty_like(rules)
        taken.append(nanoseconds(repeat, run, rows, rules, ascending, *scratch) / len(rows))
    return max(0.0, taken[0] - taken[1])


def _sorted_runs(repeat: int) -> tuple[float, float]:
    """Sorting a row by an attribute; bringing a coarse code of a row into that order."""
    order, out = np.empty(CHUNK_ROWS, np.int32), np.empty(ATTRIBUTES * BLOCK_ROWS, np.uint8)

    @numba.njit(nogil=True)
    def sort(coarse: Any, order: Any) -> None:
        sorted_runs._sort(coarse[:CHUNK_ROWS], order)

    @numba.njit(nogil=True)
    def gather(coarse: Any, shift: Any, order: Any, out: Any) -> None:
        sorted_runs._gather(coarse, CHUNK_ROWS, shift, order[:BLOCK_ROWS], BLOCK_ROWS, out)

    sorting = nanoseconds(repeat, sort, COARSE, order) / CHUNK_ROWS
    return sorting, nanoseconds(repeat, gather, COARSE, SHIFT, order, out) / BLOCK_ROWS / ATTRIBUTES
