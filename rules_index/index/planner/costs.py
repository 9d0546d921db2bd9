"""What the steps of the kernel cost, as measured (`benchmarks.calibrate`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Costs:
    """Nanoseconds of one core.

    row        a row's list, whatever is in it
    coarsen    a row's code made coarse, of one attribute that is named
    byte       the same where all codes are bytes already
    bitmap     a row's bit in one bitmap
    few_rows   the same in a block of sorted rows, which has fewer of them
    scan       a row in a conjunction's first two terms
    narrow     a row in two further terms
    summary    a row's share in the summaries of one bitmap
    skim       a row's share in looking at the summaries of a conjunction's rarest terms
    likely     a conjunction that may have a row in a block by these, and is looked at in all its summaries
    group      a group of words that its bitmaps are then looked at in
    word       a word of a block with a row that two terms leave, looked at in the further ones
    listed     a row listed under its code of an attribute, for panels
    panel      a row compared with a panel of conjunctions
    held       a row and a conjunction that panels leave
    slice      a row in a term of a conjunction, in a block of sorted rows
    survivor   a row that satisfies a conjunction, and is put into its list
    found      a conjunction whose terms leave some row of a block
    check      a row that coarse codes leave and a code of it that is checked
    dense      a row that they leave, where rows satisfy so many rules that lists are made from bitmaps
    turned     a row's bit of a conjunction turned from rows to lists then
    sign       a code of a row looked up in one plane of a table's signs
    probe      a row looked up in a table's filter
    slot       a row's slot in a table, where neither tells that it is empty
    plain      the same, where the slots of one table are the lists of all rows
    candidate  a row and a conjunction in its slot
    copied     the same, where nothing but the codes is to be checked
    fetch      a slot or an entry of a table that is brought into the nearer caches
    sort       a row sorted for a sorted run
    gather     a row's coarse code brought into that order, of one attribute
    order      a match brought into the order of the lists; where all are scanned or come from a single table they
               stand in it
    many       the same, in lists of more than half of `lists.MANY`
    """

    row: float
    coarsen: float
    byte: float
    bitmap: float
    few_rows: float
    scan: float
    narrow: float
    summary: float
    skim: float
    likely: float
    group: float
    word: float
    listed: float
    panel: float
    held: float
    slice: float
    survivor: float
    found: float
    check: float
    dense: float
    turned: float
    sign: float
    probe: float
    slot: float
    plain: float
    candidate: float
    copied: float
    fetch: float
    sort: float
    gather: float
    order: float
    many: float


@cache
def measured_costs() -> Costs:
    """The costs that are kept with the code."""
    text = resources.files("rules_index.index.planner").joinpath("costs.json").read_text("utf-8")
    return Costs(**json.loads(text)["nanoseconds"])
