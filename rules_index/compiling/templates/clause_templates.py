"""Compiles clauses that differ only in their literals together.

A template is a column compared with literals: `c < 5`, `5 > c`, `c [NOT] BETWEEN 1 AND 2`, `c [NOT] IN ('a', 'b')`. Its
first clause is also compiled by itself, and both results must agree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import gather_indices, segment_ids
from rules_index.compiling.templates.clauses import ClausesOfShape, StringPool
from rules_index.compiling.templates.literal_cuts import Bounds, bounds
from rules_index.domains.interned_constants import ByteKeys, keys_of
from rules_index.domains.value_sets import SetArrays, ranges, rays
from rules_index.domains.values import ValueSet
from rules_index.language.compiler import Compiler
from rules_index.language.constants import FLIPPED, domain
from rules_index.language.formula import Predicate, Truth
from rules_index.language.typed import Leaf

LEAST = 8
"""Fewer clauses of one shape are compiled faster one by one."""

_PART = rb"(?:[A-Za-z_][A-Za-z0-9_]*|`[^`]+`)"
_NAME = rb"(%b(?:\.%b)*)" % (_PART, _PART)
_LITERAL = rb"(?:(DATE|TIMESTAMP|TIMESTAMP_NTZ|TIMESTAMP_LTZ) ?)?([\x01-\x04])"
_OPERATOR = rb"(<=|>=|<>|!=|==|=|<|>)"
_COMPARISON = re.compile(rb"%b ?%b ?%b" % (_NAME, _OPERATOR, _LITERAL), re.IGNORECASE)
_TURNED = re.compile(rb"%b ?%b ?%b" % (_LITERAL, _OPERATOR, _NAME), re.IGNORECASE)
_BETWEEN = re.compile(rb"%b( NOT)? BETWEEN ?%b ?AND ?%b" % (_NAME, _LITERAL, _LITERAL), re.IGNORECASE)
_IN = re.compile(rb"%b( NOT)? IN ?\( ?%b((?: ?, ?%b)*) ?\)" % (_NAME, _LITERAL, _LITERAL), re.IGNORECASE)
_SAME = {"==": "=", "!=": "<>"}


@dataclass(frozen=True)
class Template:
    """The common part of the clauses of one shape.

    form: an operator, BETWEEN or IN; literals: the (word, kind) of each, like ("DATE", `TEXT`); a list has one for all
    its literals.
    """

    column: str
    form: str
    negated: bool
    literals: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Batch:
    """Clauses that are predicates on one column.

    A clause is TRUE where the column is in its set, NULL where the column is, else FALSE. `known` [clauses] bool are
    the clauses that have a set here. Cuts are keys, or references to `strings` (`interned_constants.ByteKeys`).
    """

    leaf: Leaf
    known: np.ndarray
    sets: SetArrays
    strings: pa.LargeBinaryArray | None

    def value_set(self, place: int) -> ValueSet:
        """The set with this number."""
        keys = keys_of(self.leaf.type)
        if isinstance(keys, ByteKeys) and self.strings is not None:
            keys.extend(self.strings)
        cuts = self.sets.cuts[self.sets.offsets[place] : self.sets.offsets[place + 1]].tolist()
        return ValueSet(bool(self.sets.start[place]), tuple(keys.key(cut) for cut in cuts))


def template_of(shape: bytes) -> Template | None:
    """The template of a shape, or None."""
    if found := _COMPARISON.fullmatch(shape):
        column, operator, word, kind = found.groups()
        return Template(column.decode(), _operator(operator), False, (_literal(word, kind),))
    if found := _TURNED.fullmatch(shape):
        word, kind, operator, column = found.groups()
        return Template(column.decode(), FLIPPED[_operator(operator)], False, (_literal(word, kind),))
    if found := _BETWEEN.fullmatch(shape):
        column, negated, *pairs = found.groups()
        sides = _literal(*pairs[:2]), _literal(*pairs[2:])
        return Template(column.decode(), "BETWEEN", negated is not None, sides)
    if found := _IN.fullmatch(shape):
        column, negated, word, kind, more = found.groups()[:5]
        first = _literal(word, kind)
        if all(_literal(*other) == first for other in re.findall(_LITERAL, more, re.IGNORECASE)):
            return Template(column.decode(), "IN", negated is not None, (first,))
    return None


def _operator(spelling: bytes) -> str:
    operator = spelling.decode()
    return _SAME.get(operator, operator)


def _literal(word: bytes | None, kind: bytes) -> tuple[str, int]:
    return (word or b"").decode().upper(), kind[0]


def instantiate(grouped_by_shape: ClausesOfShape, clauses: StringPool, compiler: Compiler) -> Batch | None:
    """The clauses of one shape as predicates; None if each has to be compiled by itself."""
    template = template_of(grouped_by_shape.shape) if len(grouped_by_shape.clauses) >= LEAST else None
    leaf = _column(template.column, compiler) if template is not None else None
    batch = (
        _batch(template, grouped_by_shape, leaf, compiler.scope.time_zone) if template is not None and leaf else None
    )
    if batch is None or not batch.known.any():
        return None
    values = batch.value_set(0)
    first = clauses[int(grouped_by_shape.clauses[batch.known][0])].decode()
    try:
        agrees = compiler.compile_clause(first) == Predicate(batch.leaf, values, ~values, Truth.NULL)
    except MemoryError:
        raise
    except Exception:  # compiling each clause by itself reports the error
        return None
    return batch if agrees else None


def _column(name: str, compiler: Compiler) -> Leaf | None:
    """The column of this name; None if there is none, or its values have no keys."""
    try:
        formula = compiler.compile_clause(f"{name} IS NULL")
    except MemoryError:
        raise
    except Exception:  # compiling each clause by itself reports the error
        return None
    leaf = formula.attribute if isinstance(formula, Predicate) else None
    return leaf if isinstance(leaf, Leaf) and leaf.text is None else None


def _batch(template: Template, grouped_by_shape: ClausesOfShape, leaf: Leaf, zone: str) -> Batch | None:
    literals, offsets = grouped_by_shape.literals, grouped_by_shape.offsets
    if template.form == "IN":
        word, kind = template.literals[0]
        found = bounds(literals, kind, word, leaf.type, zone)
        return None if found is None else _lists(template, found, offsets, leaf)
    sides = []
    for number, (word, kind) in enumerate(template.literals):
        side = bounds(literals.take(offsets[:-1] + number), kind, word, leaf.type, zone)
        if side is None:
            return None
        sides.append(side)
    if template.form == "BETWEEN":
        return _ranges(template, sides[0], sides[1], leaf)
    return _finished(leaf, sides[0].known, _compared(template.form, sides[0]), sides[0].strings)


def _compared(operator: str, side: Bounds) -> SetArrays:
    """The sets of values that compare by `operator` with the literals on one side."""
    low, high = side.low[side.known], side.high[side.known]
    if operator in ("<", "<="):
        return rays(low if operator == "<" else high, True)
    if operator in (">", ">="):
        return rays(high if operator == ">" else low, False)
    equal = ranges(low, high) if side.strings is None else _points(low, high)
    return equal if operator == "=" else equal.complements()


def _points(low: np.ndarray, high: np.ndarray) -> SetArrays:
    """The ranges [low, high), which are known not to be empty."""
    count = len(low)
    nothing = np.zeros(count, bool)
    return SetArrays(nothing, nothing, 2 * np.arange(count + 1), np.stack([low, high], axis=1).reshape(-1))


def _ranges(template: Template, low: Bounds, high: Bounds, leaf: Leaf) -> Batch:
    """Clauses with BETWEEN, given the cuts of their lower and their upper bounds."""
    known = low.known & high.known
    least, beyond = low.low[known], high.high[known]
    strings = low.strings
    if low.strings is not None and high.strings is not None:
        ordered = pc.less_equal(low.strings, high.strings).to_numpy(zero_copy_only=False)[known]
        strings = pa.concat_arrays([low.strings, high.strings])
        # the strings of the upper bounds follow those of the lower bounds
        beyond = np.where(ordered, beyond + 2 * len(low.strings), least)
    sets = ranges(least, beyond)
    return _finished(leaf, known, sets.complements() if template.negated else sets, strings)


def _lists(template: Template, found: Bounds, offsets: np.ndarray, leaf: Leaf) -> Batch:
    """Clauses with IN; clause i has the literals offsets[i] to offsets[i + 1] - 1."""
    owner = segment_ids(offsets)
    unknown = np.bincount(owner[~found.known], minlength=len(offsets) - 1)
    known = unknown == 0
    gather, kept = gather_indices(offsets, np.flatnonzero(known))
    low, high, strings = found.low[gather], found.high[gather], found.strings
    if strings is not None:
        # references in the order of the strings, so that lists can be sorted by reference
        rank = pc.rank(strings, tiebreaker="dense").to_numpy().astype(np.int64) - 1
        first = np.empty(int(rank.max(initial=-1)) + 1, np.int64)
        first[rank] = np.arange(len(rank))
        strings = strings.take(pa.array(first))
        low = 2 * rank[low // 2]
        high = low + 1
    sets = ranges(low, high, kept)
    return _finished(leaf, known, sets.complements() if template.negated else sets, strings)


def _finished(leaf: Leaf, known: np.ndarray, sets: SetArrays, strings: pa.LargeBinaryArray | None) -> Batch:
    if strings is None:
        least, greatest = domain(leaf.type)
        assert greatest is not None
        sets = sets.clamped(least, greatest)
    return Batch(leaf, known, sets, strings)
