"""The measured costs of the kernel's steps (`benchmarks.calibrate`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Costs:
    """Nanoseconds on one core.

    row_ns                per row: its list, whatever is in it
    coarsen_ns            per row and named attribute: narrowing its code to a coarse one
    copy_byte_ns          the same where all codes are bytes already
    bitmap_ns             per row: its bit in one bitmap
    small_block_bitmap_ns the same in a block of sorted rows, which has fewer rows
    scan_ns               per row and conjunction: the first two terms
    narrow_ns             per row: two further terms
    summary_ns            per row: its share of the summary of one bitmap
    summary_scan_ns       per row: its share of the AND of the summaries of a conjunction's rarest terms
    summary_hit_ns        per conjunction and block where that AND is not empty: all its summaries
    word_group_ns         per group of words that is then read in the bitmaps
    word_ns               per word of a block that two terms leave: the further terms
    row_by_code_ns        per row: listing it under its code of an attribute, for equality blocks
    equality_block_ns     per row and equality block: the comparison
    equality_hit_ns       per row and conjunction that pass an equality block
    run_scan_ns           per row and term of a conjunction, in a block of sorted rows
    hit_ns                per row that satisfies a conjunction: appending it to its list
    conjunction_hit_ns    per conjunction whose terms leave some row of a block
    check_ns              per row that coarse codes leave, and code: the exact check
    transposed_hit_ns     per row that they leave, where lists are made by transposing bitmaps
    transpose_ns          per row and conjunction: its bit in that transposition
    filter_ns             per row: its lookup in a table's filter
    slot_ns               per row that the prefilter lets pass: its slot in a table
    plain_slot_ns         the same, where the slots of one table are the lists of all rows
    candidate_ns          per row and conjunction in its slot
    plain_candidate_ns    the same, where only the codes need to be compared
    fetch_ns              per slot or entry of a table: the cache miss
    run_sort_ns           per row: sorting it for a sorted run
    run_gather_ns         per row and attribute: gathering its coarse code in that order
    hit_sort_ns           per match: sorting it into the order of the lists; not needed where all conjunctions are
                          scanned or in a single table
    large_hit_sort_ns     the same, in lists of more than half of `lists.MANY`
    """

    row_ns: float
    coarsen_ns: float
    copy_byte_ns: float
    bitmap_ns: float
    small_block_bitmap_ns: float
    scan_ns: float
    narrow_ns: float
    summary_ns: float
    summary_scan_ns: float
    summary_hit_ns: float
    word_group_ns: float
    word_ns: float
    row_by_code_ns: float
    equality_block_ns: float
    equality_hit_ns: float
    run_scan_ns: float
    hit_ns: float
    conjunction_hit_ns: float
    check_ns: float
    transposed_hit_ns: float
    transpose_ns: float
    filter_ns: float
    slot_ns: float
    plain_slot_ns: float
    candidate_ns: float
    plain_candidate_ns: float
    fetch_ns: float
    run_sort_ns: float
    run_gather_ns: float
    hit_sort_ns: float
    large_hit_sort_ns: float


@cache
def measured_costs() -> Costs:
    """The costs stored in `costs.json` beside this module."""
    text = resources.files("rules_index.index.planner").joinpath("costs.json").read_text("utf-8")
    return Costs(**json.loads(text)["nanoseconds"])
