"""Finds impossible combinations of attributes' values, as boxes of codes that contain no row.

Boxes treat attributes as independent, but some depend on each other: comparisons of the same values (`a < b`, `b >= a`,
`a < b AND b < c`), and computations that are NULL if their columns are. If the impossible boxes are added to those of a
predicate, exact matching also finds what follows from these dependencies.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from rules_index.arrays import gather_indices, offsets_of, segment_ids
from rules_index.domains.region_codes import Regions
from rules_index.implication.cover import COVERED, cover_boxes
from rules_index.implication.null_propagation import columns_needed, is_null_with_its_columns_only
from rules_index.implication.region_boxes import BoxArrays, Codes, RegionBoxes
from rules_index.language.evaluation.evaluate import evaluate
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.operations import can_raise
from rules_index.language.scope import Scope
from rules_index.language.typed import Constant, Expression, Leaf, Operation

Box = Mapping[int, np.ndarray]
"""The codes, ascending, of each dimension that a box names."""
_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">=", "<=>", "in", "is_null"))
_CONNECTIVES = frozenset(("and", "or", "not", "case", "coalesce"))
_SPLITS = 1 << 10
"""The comparisons of a part with a box after which the box is taken to contain a row."""
_MOST_TERMS = 4
"""The most values compared with each other for which all orders are enumerated."""
_NULL, _RAISED, _VALUE = range(3)
_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_EXACT = {
    **{wide: frozenset(_WHOLE[:place]) for place, wide in enumerate(_WHOLE)},
    pa.float32(): frozenset(_WHOLE[:2]),
    pa.float64(): frozenset((*_WHOLE[:3], pa.float32())),
}
"""For numeric types, the types all of whose values they represent exactly."""


def impossible(
    attributes: Sequence[Expression], regions: Sequence[Regions], codes: Codes, scope: Scope | None = None
) -> list[Box]:
    """Boxes that contain no row, for the attributes and regions of a compiled rule set. scope: the rules'; without it
    nothing is known about derived columns."""
    numbers = {attribute: number for number, attribute in enumerate(attributes)}
    found = [*_with_null_columns(numbers, codes, scope)]
    for terms, members in _groups(attributes):
        if len(members) + len(numbers.keys() & terms) > 1 or len(terms) == 1:
            found += _impossible_comparisons(terms, members, numbers, regions, codes)
    return found


def possible(boxes: RegionBoxes, attributes: Sequence[Expression], regions: Sequence[Regions]) -> RegionBoxes:
    """Leaves out boxes that contain no row because attributes depend on each other."""
    added = boxes.with_boxes(impossible(attributes, regions, boxes.codes))
    a, numbers = added.arrays, added.added
    # only a box that names a computed attribute can be impossible
    computed = np.zeros(len(a.sizes), bool)
    computed[: len(attributes)] = [isinstance(attribute, Operation) for attribute in attributes]
    terms, owner = _terms(a, numbers, computed)
    order = np.argsort(a.dimensions[terms], kind="stable")
    naming = numbers[owner[order]]
    first = offsets_of(np.bincount(a.dimensions[terms], minlength=len(a.sizes)))
    computed_terms, owner = _terms(a, np.arange(len(boxes.rule)), computed)
    gather, each = gather_indices(first, a.dimensions[computed_terms])
    begins = each[np.searchsorted(owner, np.arange(len(boxes.rule) + 1))]
    suspects = np.flatnonzero(np.diff(begins) > 0)
    how = cover_boxes(suspects, suspects, begins, naming[gather], _SPLITS, a, np.empty((len(suspects), 0), np.int32))
    return boxes.only(~np.isin(np.arange(len(boxes.rule)), suspects[how == COVERED]))


def _terms(a: BoxArrays, boxes: np.ndarray, dimensions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The indices [.] int64 of the terms of some boxes in some dimensions [dimensions] bool, and the box of each.

    The boxes are numbered from 0 in the order given.
    """
    terms, start = gather_indices(a.start, boxes)
    kept = dimensions[a.dimensions[terms]]
    return terms[kept], segment_ids(start)[kept]


def _classes(number: int, attribute: Expression, codes: Codes) -> list[np.ndarray]:
    """The codes of an attribute for NULL, for failed evaluation, and for values, at `_NULL`, `_RAISED` and `_VALUE`."""
    size, raises = int(codes.sizes[number]), can_raise(attribute)
    every = np.arange(size)
    null = size - 1 - raises
    return [every[null : null + 1], every[null + 1 :], every[:null]]


def _with_null_columns(numbers: Mapping[Expression, int], codes: Codes, scope: Scope | None) -> Iterator[Box]:
    """Yields boxes in which an attribute has a value although a column that it needs is NULL, or is NULL although its
    only column has a value."""
    for attribute, number in numbers.items():
        codes_of_attribute = _classes(number, attribute, codes)
        leaves = columns_needed(attribute, scope)
        for leaf in leaves - {attribute}:
            column = numbers.get(leaf)
            if column is None:
                continue
            codes_of_column = _classes(column, leaf, codes)
            yield {number: codes_of_attribute[_VALUE], column: codes_of_column[_NULL]}
            if len(leaves) == 1 and is_null_with_its_columns_only(attribute):
                yield {number: codes_of_attribute[_NULL], column: codes_of_column[_VALUE]}


# Comparisons


def _groups(attributes: Sequence[Expression]) -> Iterator[tuple[list[Expression], dict[int, Expression]]]:
    """Yields groups of values that are compared with each other, and the attributes that compare them, by number: as
    expressions over columns "0", "1", ... that stand for the values. Values are in one group if attributes connect
    them. If that is more than `_MOST_TERMS`, only attributes that compare the same values share a group, and larger
    ones are left out.
    """
    terms_of: dict[int, frozenset[Expression]] = {}
    for number, attribute in enumerate(attributes):
        terms: dict[Expression, int] = {}
        if _over(attribute, terms) is not None:
            terms_of[number] = frozenset(terms)
    for joined, members in _connected(terms_of):
        parts: dict[frozenset[Expression], list[int]] = {frozenset(): members}
        if len(joined) > _MOST_TERMS:
            parts = {}
            for number in members:
                parts.setdefault(terms_of[number], []).append(number)
        for numbers in parts.values():
            order: dict[Expression, int] = {}
            forms = {number: _over(attributes[number], order) for number in sorted(numbers)}
            if len(order) <= _MOST_TERMS:
                yield list(order), {number: form for number, form in forms.items() if form is not None}


def _connected(terms_of: Mapping[int, frozenset[Expression]]) -> Iterator[tuple[set[Expression], list[int]]]:
    """The connected components of terms and attributes (by number) that share terms."""
    naming: dict[Expression, list[int]] = {}
    for number, terms in terms_of.items():
        for term in terms:
            naming.setdefault(term, []).append(number)
    left = set(terms_of)
    while left:
        waiting, members = [left.pop()], []
        joined: set[Expression] = set()
        while waiting:
            number = waiting.pop()
            members.append(number)
            for term in terms_of[number] - joined:
                joined.add(term)
                waiting += left.intersection(naming[term])
                left.difference_update(naming[term])
        yield joined, members


def _over(value: Expression, terms: dict[Expression, int]) -> Expression | None:
    """A truth value as an expression over the compared values `terms`, to which new ones are added; None if it depends
    on anything else."""
    if not isinstance(value, Operation):
        return value if isinstance(value, Constant) and (value.value is None or isinstance(value.value, bool)) else None
    if value.name in _COMPARISONS:
        if any(isinstance(operand, Constant) for operand in value.operands):
            return None
        bare = map(_without_widening, value.operands)
        leaves = tuple(Leaf(str(terms.setdefault(term, len(terms))), pa.int64()) for term in bare)
        return Operation(value.name, leaves, value.type)
    if value.name not in _CONNECTIVES or not pa.types.is_boolean(value.type):
        return None
    operands = [over for operand in value.operands if (over := _over(operand, terms)) is not None]
    return Operation(value.name, tuple(operands), value.type) if len(operands) == len(value.operands) else None


def _without_widening(value: Expression) -> Expression:
    """Strips casts to a wider numeric type. They do not change a number, which so counts as the same value in all
    comparisons."""
    while isinstance(value, Operation) and value.name == "cast":
        held = _EXACT.get(value.type, frozenset())
        if value.operands[0].type not in held:
            break
        value = value.operands[0]
    return value


def _impossible_comparisons(
    terms: Sequence[Expression],
    members: Mapping[int, Expression],
    numbers: Mapping[Expression, int],
    regions: Sequence[Regions],
    codes: Codes,
) -> Iterator[Box]:
    """Yields boxes of results that comparisons of the same values cannot have together.

    Tries all orders of the values, each of which can also be NULL (-1) or fail (-2). terms: the values; members: by
    number the attributes that compare them, over columns "0", "1", ...; numbers: those of all attributes.
    """
    states = [[-1, *([-2] if can_raise(term) else []), *range(len(terms))] for term in terms]
    ranks = np.array(list(itertools.product(*states)), np.int64).T
    outcomes = ranks.shape[1]
    inputs = {
        str(place): Evaluated(pa.array(rank, mask=rank < 0), rank == -2 if (rank == -2).any() else None)
        for place, rank in enumerate(ranks)
    }
    columns, choices = [], []
    for place, term in enumerate(terms):
        if term in numbers:
            columns.append(np.select([ranks[place] == -1, ranks[place] == -2], [_NULL, _RAISED], _VALUE))
            choices.append((numbers[term], _classes(numbers[term], term, codes)))
    for number, form in members.items():
        result = evaluate(form, inputs, outcomes)
        met = np.empty(outcomes, np.int32)
        regions[number].encode(result.values, result.raised, met)
        columns.append(codes.code[codes.old_start[number] + met])
        choices.append((number, list(np.arange(codes.sizes[number])[:, None])))
    yield from _complement(np.unique(np.stack(columns, axis=1), axis=0), choices)


def _complement(points: np.ndarray, choices: Sequence[tuple[int, list[np.ndarray]]]) -> Iterator[Box]:
    """Yields boxes that together contain everything but some points [points, dimensions].

    choices: the number of each dimension, and its codes divided into classes; a point names a class of each dimension.
    """
    if not choices:
        return
    (dimension, classes), *others = choices
    tails: dict[bytes, list[int]] = {}
    for which in np.unique(points[:, 0]).tolist():
        tails.setdefault(points[points[:, 0] == which, 1:].tobytes(), []).append(which)
    met = np.unique(points[:, 0])
    absent = [each for which, each in enumerate(classes) if which not in met]
    if sum(map(len, absent)):
        yield {dimension: np.sort(np.concatenate(absent))}
    for alike in tails.values():
        here = np.sort(np.concatenate([classes[which] for which in alike]))
        if len(here):
            for box in _complement(points[points[:, 0] == alike[0], 1:], others):
                yield {dimension: here, **box}
