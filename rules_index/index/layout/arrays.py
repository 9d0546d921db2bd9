"""Lays out conjunctions as the arrays that the batch kernel reads.

If an attribute has more than `COARSE_CODES` codes, bitmaps use coarse ones. Where coarse codes are not exact, the
remaining rows are checked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rules_index.index.boxes import Tree
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.layout.bitmaps import bitmaps, coarse_shift
from rules_index.index.layout.block_size import rows_between_loads, rows_of_block, rows_of_chunk
from rules_index.index.layout.hash_tables import in_tables, prefiltered_attributes, tables, with_quick_checks
from rules_index.index.layout.term_columns import AccessPlan, TermColumns, terms_of
from rules_index.kernels.bitmaps import COARSE_CODES
from rules_index.kernels.scan import FAR, NEAR


@dataclass(frozen=True)
class _Order:
    """The conjunctions of rules by access path, each [.] int64. The kernel has them in this order, behind the
    conjunctions of the shared disjunctions, of which there are `first`."""

    first: int
    scanned: np.ndarray
    keyed: np.ndarray
    in_runs: np.ndarray
    in_tree: np.ndarray

    @property
    def all(self) -> np.ndarray:
        """The conjunctions [conjunctions] in the kernel's order."""
        parts = (self.scanned, self.keyed, self.in_runs, self.in_tree)
        return np.concatenate([np.arange(self.first), *(self.first + part for part in parts)])

    @property
    def of_keyed(self) -> slice:
        """The range, in the kernel's order, of the conjunctions in hash tables."""
        begin = self.first + len(self.scanned)
        return slice(begin, begin + len(self.keyed))

    @property
    def of_runs(self) -> slice:
        """The range, in the kernel's order, of the conjunctions in sorted runs."""
        return slice(self.of_keyed.stop, self.of_keyed.stop + len(self.in_runs))


def lay_out(c: Conjunctions, access_plan: AccessPlan) -> dict[str, np.ndarray]:
    """The stored arrays of `kernels.match.KernelArrays`, by name; its numbers (`kernels.fields.SCALARS`) are one array,
    "scalars"."""
    shift = coarse_shift(c.sizes)
    order, filed, runs = _in_order(c, access_plan, shift)
    numbers = order.all
    terms = terms_of(c, numbers)
    is_keyed = (terms.owner >= order.of_keyed.start) & (terms.owner < order.of_keyed.stop)
    maps, pairs, has_bitmap, exact = bitmaps(c, terms, is_keyed, order.of_runs, shift)
    in_key = np.zeros(len(terms.owner), bool)
    table = access_plan.table[order.keyed][terms.owner[is_keyed] - order.of_keyed.start]
    in_key[is_keyed] = in_tables(access_plan.tables, table, terms.attribute[is_keyed], len(c.sizes))
    tree, depth = _tree(access_plan.tree, order.in_tree, order.of_runs.stop, shift)
    # coarse codes are only made of attributes whose coarse codes something reads
    needed = np.zeros(len(shift), bool)
    for attributes in (maps["bitmap_attribute"][2:], runs["run_attribute"], tree["tree_tests"][:, 0]):
        needed[attributes] = True
    needed[filed["key_attributes"]] |= shift[filed["key_attributes"]] == 0
    needed[prefiltered_attributes(filed)] = True
    filed["posted"], complete = with_quick_checks(
        filed["posted"], terms, ~in_key & is_keyed, shift, needed, c.target[numbers].astype(np.int64)
    )
    unchecked = in_key | exact | (is_keyed & complete[terms.owner])
    checks = _checks(terms, ~unchecked, len(numbers), shift, needed)
    return {
        "shift": np.where(needed, shift, -1).astype(np.int32),
        **maps,
        "term_start": _starts(terms.owner[has_bitmap], len(numbers)),
        "terms": pairs[has_bitmap],
        **checks,
        "target": c.target[numbers].astype(np.int32),
        **filed,
        **runs,
        **tree,
        "scalars": _scalars(c, access_plan, order, len(maps["bitmap_attribute"]), filed, depth),
    }


def _in_order(
    c: Conjunctions, access_plan: AccessPlan, shift: np.ndarray
) -> tuple[_Order, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The order of the conjunctions, the arrays of the hash tables and those of the sorted runs."""
    first = int(c.disjunction_start[-1])
    in_tree = (
        np.unique(access_plan.tree.keys).astype(np.int64) if access_plan.tree is not None else np.empty(0, np.int64)
    )
    elsewhere = np.ones(len(access_plan.table), bool)
    elsewhere[in_tree] = False
    in_table, not_in_table = elsewhere & (access_plan.table >= 0), elsewhere & (access_plan.table < 0)
    scanned = np.flatnonzero(not_in_table & (access_plan.sorted_by < 0))
    keyed, filed = tables(c, access_plan, np.flatnonzero(in_table), first, first + len(scanned))
    in_runs = np.flatnonzero(not_in_table & (access_plan.sorted_by >= 0))
    in_runs, runs = _sorted_runs(c, access_plan, in_runs, shift, first, first + len(scanned) + len(keyed))
    order = _Order(first, scanned, keyed, in_runs, in_tree)
    return order, filed, runs


def _scalars(
    c: Conjunctions, access_plan: AccessPlan, order: _Order, bitmaps: int, filed: dict[str, np.ndarray], depth: int
) -> np.ndarray:
    """The array "scalars": scanned, block_rows, chunk_rows, ascending, distinct, tree_depth, alone."""
    per_rule = np.bincount(c.target[order.first :]) if len(c.target) > order.first else np.zeros(1, np.int64)
    # the tests of two nodes can overlap once their codes are coarse
    met_once = access_plan.tree is None or len(access_plan.tree.keys) == len(order.in_tree)
    ascending, distinct = len(order.scanned) == len(access_plan.table), per_rule.max() <= 1 and met_once
    wanted = access_plan.chunk_rows
    if not len(order.in_runs):
        wanted = rows_between_loads(wanted, sum(array.nbytes for array in filed.values()))
    block_rows = rows_of_block(bitmaps, c.disjunctions)
    chunk_rows = rows_of_chunk(wanted, block_rows, c.disjunctions)
    alone = distinct and filed["key_plain"].tolist() == [1] and len(order.keyed) == len(access_plan.table)
    scalars = (len(order.scanned), block_rows, chunk_rows, ascending, distinct, depth, alone)
    return np.array(scalars, np.int64)


def _tree(tree: Tree | None, in_tree: np.ndarray, first: int, shift: np.ndarray) -> tuple[dict[str, np.ndarray], int]:
    """The arrays of `kernels.tree_descent`, and the depth of the tree. first: the kernel's number of the first
    conjunction in the tree."""
    if tree is None:
        nothing, starts = np.empty(0, np.int32), np.zeros(1, np.int64)
        tree = Tree(nothing, starts, nothing.reshape(-1, 3), starts, nothing)
    tests = tree.tests.astype(np.int32).reshape(-1, 3)
    tests[:, 1:] >>= shift[tests[:, 0], None]
    return {
        "tree_end": tree.end.astype(np.int32),
        "tree_test_start": tree.test_start.astype(np.int64),
        "tree_tests": tests,
        "tree_key_start": tree.key_start.astype(np.int64),
        "tree_keys": (first + np.searchsorted(in_tree, tree.keys)).astype(np.int32),
    }, depth_of(tree.end)


def depth_of(end: np.ndarray) -> int:
    """The number of nodes on the path from the root to the deepest node. end [nodes]: the end of each node's subtree in
    preorder."""
    changes = np.zeros(len(end) + 1, np.int64)
    changes[:-1] += 1
    np.subtract.at(changes, end, 1)
    return int(np.cumsum(changes).max(initial=0))


def _starts(owner: np.ndarray, count: int) -> np.ndarray:
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=count), out=starts[1:])
    return starts


def _checks(
    terms: TermColumns, checked: np.ndarray, conjunctions: int, shift: np.ndarray, needed: np.ndarray
) -> dict[str, np.ndarray]:
    """The checks of the terms `checked` [terms] bool, the most selective first within a conjunction. Marks in `needed`
    the attributes whose coarse codes they read."""
    at = np.flatnonzero(checked)
    at = at[np.lexsort((terms.share[at], terms.owner[at]))]
    disjunction, single = terms.attribute[at] == DISJUNCTION, terms.pieces[at] == 1
    checks = np.zeros((len(at), 4), np.int32)
    checks[:, 0] = np.where(disjunction, -1, terms.attribute[at])
    checks[:, 1] = np.where(single, terms.low[at], 0)
    checks[:, 2] = np.where(single, terms.high[at], 0)
    near = shift[np.where(disjunction, 0, terms.attribute[at])] == 0
    checks[:, 3] = np.where(single, np.where(near, NEAR, FAR), terms.which[at])
    needed[terms.attribute[at[single & near]]] = True
    return {"check_start": _starts(terms.owner[at], conjunctions), "checks": checks}


def _sorted_runs(
    c: Conjunctions, access_plan: AccessPlan, in_runs: np.ndarray, shift: np.ndarray, disjunctions_end: int, first: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The conjunctions in sorted runs in the kernel's order, and the arrays of `kernels.sorted_runs`. first: the
    kernel's number of the first of them."""
    attribute = access_plan.sorted_by[in_runs]
    terms = terms_of(c, disjunctions_end + in_runs)
    sort_terms = np.flatnonzero(terms.attribute == attribute[terms.owner])
    low, high = (np.zeros(len(in_runs), np.int64) for _ in range(2))
    low[terms.owner[sort_terms]], high[terms.owner[sort_terms]] = terms.low[sort_terms], terms.high[sort_terms]
    low, high = low >> shift[attribute], high >> shift[attribute]
    reach = high - low + 1
    # widths are rounded up to the next of four steps per power of two, so that there are few levels
    step = 1 << np.maximum(0, np.floor(np.log2(reach)).astype(np.int64) - 2)
    reach = -(-reach // step) * step
    rank = np.searchsorted(access_plan.sort_attributes, attribute) if len(access_plan.sort_attributes) else attribute
    order = np.lexsort((low, reach, rank))
    levels, begins = np.unique(np.stack([rank, reach], 1)[order], axis=0, return_index=True)
    ends = np.append(begins, len(order))[1:]
    places = [
        first + begin + np.searchsorted(low[order[begin:end]], np.arange(COARSE_CODES + 2))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
    return in_runs[order], {
        "run_attribute": np.array(access_plan.sort_attributes, np.int32),
        "run_level_start": np.searchsorted(levels[:, 0], np.arange(len(access_plan.sort_attributes) + 1)).astype(
            np.int64
        ),
        "level_width": levels[:, 1].astype(np.int32),
        "level_offsets": np.array(places, np.int32).reshape(-1, COARSE_CODES + 2),
    }
