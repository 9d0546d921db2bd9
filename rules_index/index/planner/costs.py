"""The measured costs of the kernel's steps (`benchmarks.calibrate`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Costs:
    """Nanoseconds on one core.

    row_ns                per row: writing its list, whatever it contains
    coarsen_ns            per row and named attribute: narrowing its code to a coarse one
    copy_byte_ns          the same if all codes are bytes already
    bitmap_ns             per row: its bit in one bitmap
    small_block_bitmap_ns the same in a block of a sorted run, which has fewer rows
    scan_ns               per row and conjunction: intersecting the bitmaps of its first two terms
    narrow_ns             per row and conjunction: two further terms, if many words are left
    summary_ns            per row: its share of the summary of one bitmap
    summary_scan_ns       per row and conjunction: its share of the AND of the summaries of the rarest terms
    summary_hit_ns        per conjunction and block in which that AND is not empty: reading all its summaries
    word_group_ns         per group of words whose bitmaps are read then
    word_ns               per non-zero word of a block that two terms leave: reading the further terms
    row_by_code_ns        per row: listing it under its code of an attribute, for equality blocks
    equality_block_ns     per row and equality block: the comparison
    equality_hit_ns       per pair of a row and a conjunction that passes an equality block
    run_scan_ns           per row and term of a conjunction, in a block of a sorted run
    hit_ns                per row that satisfies a conjunction: appending the hit
    conjunction_hit_ns    per conjunction and block in which its terms leave some row
    check_ns              per exact check of a row that coarse codes let pass
    transposed_hit_ns     like hit_ns, if lists are made by transposing bitmaps
    transpose_ns          per row and conjunction: its bit in that transposition
    filter_ns             per row: looking it up in a table's prefilter
    slot_ns               per row that the prefilter lets pass: finding its slot in a table
    plain_slot_ns         the same, if the slots of a single table are the lists of all rows
    candidate_ns          per pair of a row and a conjunction in its slot
    plain_candidate_ns    the same, if only the codes need to be compared
    fetch_ns              per cache miss on a slot or an entry of a table
    run_sort_ns           per row: sorting it for a sorted run
    run_gather_ns         per row and attribute: gathering its coarse code in that order
    hit_sort_ns           per match: sorting it into the order of the lists; not needed if all conjunctions are scanned
                          or in a single table
    large_hit_sort_ns     the same, if rows have more than `lists.MANY` / 2 matches on average
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
