"""What the steps of the kernel cost, as measured (`benchmarks.calibrate`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Costs:
    """Nanoseconds of one core.

    row_ns                a row's list, whatever is in it
    coarsen_ns            a row's code made coarse, of one attribute that is named
    copy_byte_ns          the same where all codes are bytes already
    bitmap_ns             a row's bit in one bitmap
    small_block_bitmap_ns the same in a block of sorted rows, which has fewer of them
    scan_ns               a row in a conjunction's first two terms
    narrow_ns             a row in two further terms
    summary_ns            a row's share in the summaries of one bitmap
    summary_scan_ns       a row's share in looking at the summaries of a conjunction's rarest terms
    summary_hit_ns        a conjunction that may have a row in a block by these, and is looked at in all its summaries
    word_group_ns         a group of words that its bitmaps are then looked at in
    word_ns               a word of a block with a row that two terms leave, looked at in the further ones
    row_by_code_ns        a row listed under its code of an attribute, for equality blocks
    equality_block_ns     a row compared with an equality block of conjunctions
    equality_hit_ns       a row and a conjunction that equality blocks leave
    run_scan_ns           a row in a term of a conjunction, in a block of sorted rows
    hit_ns                a row that satisfies a conjunction, and is put into its list
    conjunction_hit_ns    a conjunction whose terms leave some row of a block
    check_ns              a row that coarse codes leave and a code of it that is checked
    transposed_hit_ns          a row that they leave, where rows satisfy so many rules that lists are made from bitmaps
    transpose_ns          a row's bit of a conjunction turned from rows to lists then
    signature_ns          a code of a row looked up in one plane of a table's signatures
    filter_ns             a row looked up in a table's filter
    slot_ns               a row's slot in a table, where neither tells that it is empty
    plain_slot_ns         the same, where the slots of one table are the lists of all rows
    candidate_ns          a row and a conjunction in its slot
    plain_candidate_ns    the same, where nothing but the codes is to be checked
    fetch_ns              a slot or an entry of a table that is brought into the nearer caches
    run_sort_ns           a row sorted for a sorted run
    run_gather_ns         a row's coarse code brought into that order, of one attribute
    hit_sort_ns           a match brought into the order of the lists; where all are scanned or come from a single table
                          they stand in it
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
    signature_ns: float
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
    """The costs that are kept with the code."""
    text = resources.files("rules_index.index.planner").joinpath("costs.json").read_text("utf-8")
    return Costs(**json.loads(text)["nanoseconds"])
