"""Finds the smallest change of one or two columns with which a rule would have matched a row.

First the sets of columns that could change the result are determined: a predicate with the wrong truth needs a change
of one of its columns, an AND needs the changes of all its parts, an OR those of one part. Only changes of such columns
are tried, nearest values first. Floating-point numbers then get as few digits as the rule allows. The change that is
returned has been matched.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rules_index.domains.values import is_indexable
from rules_index.errors import SchemaError
from rules_index.explaining.candidates import candidates, repeated
from rules_index.explaining.evaluation import inputs_of_row, truth_of_parts
from rules_index.explaining.readable_numbers import readable_near, shortest
from rules_index.explaining.rule import Part
from rules_index.explaining.tree import Change, NearMiss
from rules_index.explaining.truth import FALSE, TRUE, Truths
from rules_index.index.single_rows import value_in
from rules_index.language.coercion import is_float
from rules_index.language.evaluation.datetime_parser import zone_of
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.typed import Expression, Leaf, Operation, leaves_of
from rules_index.names import column_key, field_key, path_parts

if TYPE_CHECKING:
    from rules_index.index.compiled import CompiledRules, RuleId

MOST_OF_A_PAIR = 32
"""The most values of each column that are tried if two columns are changed."""
MOST_TRIED = 1 << 15
"""The most pairs of values that are tried."""
MOST_MATCHED = 8
"""The most changes that are matched, one after the other, before the search ends without a result."""
AT_ONCE = 1 << 22
"""The most values of parts of the rule that are computed at a time: of fewer rows, the more parts there are."""
MOST_COMPUTED = 1 << 27
"""The most values of parts of the rule that are computed for one near miss."""
MOST_SETS = 512
"""The most sets of columns that are kept for a part of a rule."""
Columns = frozenset[str]


def near_miss(
    compiled: CompiledRules, rule: Part, rule_id: RuleId, row: Mapping[str, Any], fixed: Collection[str]
) -> NearMiss | None:
    """The smallest change of one or two columns, other than `fixed`, with which the rule matches; None if none is
    found.

    A change of one column counts as smaller than a change of two; then the relative difference decides; NULL comes
    last.
    """
    return _Search(compiled, rule, rule_id, row, fixed).found()


class _Search:
    def __init__(
        self, compiled: CompiledRules, rule: Part, rule_id: RuleId, row: Mapping[str, Any], fixed: Collection[str]
    ) -> None:
        self._compiled, self._rule, self._rule_id, self._row = compiled, rule, rule_id, row
        self._inputs = inputs_of_row(row, rule.leaves, compiled.time_zone)
        self._leaves = {leaf.name: leaf for leaf in _changeable(rule, fixed)}
        self._candidates: dict[str, tuple[pa.Array, np.ndarray]] = {}
        self._width = sum(_parts_of(attribute) for part in rule.predicates for attribute in part.attributes) or 1
        self._left = MOST_COMPUTED

    def found(self) -> NearMiss | None:
        """The smallest change of one or two values with which the rule matches, if one is found within the limit."""
        truths = truth_of_parts(self._rule, Truths(self._inputs, 1))
        needed = self._needed(self._rule, {part: int(truth[0]) for part, truth in truths.items()}, TRUE)
        singles = sorted({name for columns in needed if len(columns) == 1 for name in columns})
        best = self._first_that_matches([each for name in singles for each in self._of_one(name)])
        if best is not None:
            return self._readable(best)
        left, pairs = MOST_TRIED, []
        for pair in combinations(sorted(self._leaves), 2):
            if any(columns <= frozenset(pair) for columns in needed):
                left -= self._size(pair)
                if left < 0:
                    break
                pairs += self._of_two(*pair)
        found = self._first_that_matches(pairs)
        return None if found is None else self._readable(found)

    def _readable(self, miss: NearMiss) -> NearMiss:
        """Returns a near miss with fewer digits in its floating-point numbers, as far as the rule still matches."""
        for place, change in enumerate(miss):
            data_type = self._leaves[change.column].type
            if not is_float(data_type) or change.after is None:
                continue
            now = self._inputs[change.column].values[0].as_py()
            numbers = list(readable_near(change.after, now, data_type))
            changed = {
                each.column: pa.array([each.after] * len(numbers), self._leaves[each.column].type) for each in miss
            }
            changed[change.column] = pa.array(numbers, data_type)
            # the distances keep the order of the numbers, from few digits to many
            tried = [found for _, found in self._satisfying(changed, np.arange(len(numbers), dtype=float))]
            kept = (tuple(each if at == place else miss[at] for at, each in enumerate(found)) for found in tried)
            miss = next((found for found in kept if self._matches(found)), miss)
        return miss

    def _first_that_matches(self, tried: list[tuple[float, NearMiss]]) -> NearMiss | None:
        """Returns the nearest change with which the index matches, out of the nearest `MOST_MATCHED`; None if there is
        none."""
        ordered = sorted(tried, key=lambda each: each[0])[:MOST_MATCHED]
        return next((miss for _, miss in ordered if self._matches(miss)), None)

    def _needed(self, part: Part, truth: Mapping[Part, int], wanted: int) -> set[Columns]:
        """Returns the minimal sets of at most two columns: all columns of one of them must change for a part to have
        the wanted truth."""
        if truth[part] == wanted:
            return {frozenset()}
        if not part.children:
            read = {leaf.name for attribute in part.attributes for leaf in leaves_of(attribute)}
            return {frozenset((name,)) for name in read if name in self._leaves}
        if part.operator == "NOT":
            return self._needed(part.children[0], truth, FALSE if wanted == TRUE else TRUE)
        each = [self._needed(child, truth, wanted) for child in part.children]
        if (part.operator == "AND") != (wanted == TRUE):
            return _least(columns for sets in each for columns in sets)
        found: set[Columns] = {frozenset()}
        for sets in each:
            if not found:
                break
            found = _least(one | other for one in found for other in sets if len(one | other) <= 2)
        return found

    def _values(self, name: str) -> tuple[pa.Array, np.ndarray]:
        if name not in self._candidates:
            leaf = self._leaves[name]
            readers = [part.formula for part in self._rule.predicates if leaf in part.columns and part.formula]
            self._candidates[name] = candidates(leaf, readers, self._inputs)
        return self._candidates[name]

    def _size(self, pair: tuple[str, str]) -> int:
        return int(np.prod([min(len(self._values(name)[0]), MOST_OF_A_PAIR) for name in pair]))

    def _of_one(self, name: str) -> list[tuple[float, NearMiss]]:
        values, distances = self._values(name)
        return self._satisfying({name: values}, distances)

    def _of_two(self, one: str, other: str) -> list[tuple[float, NearMiss]]:
        (first, near), (second, far) = self._shortened(one), self._shortened(other)
        places = np.indices((len(first), len(second))).reshape(2, -1)
        changed = {one: first.take(pa.array(places[0])), other: second.take(pa.array(places[1]))}
        return self._satisfying(changed, near[places[0]] + far[places[1]])

    def _shortened(self, name: str) -> tuple[pa.Array, np.ndarray]:
        """The nearest values of a column, and NULL."""
        values, distances = self._values(name)
        if len(values) <= MOST_OF_A_PAIR:
            return values, distances
        chosen = np.append(np.arange(MOST_OF_A_PAIR - 1), len(values) - 1)
        return values.take(pa.array(chosen)), distances[chosen]

    def _satisfying(self, changed: Mapping[str, pa.Array], distances: np.ndarray) -> list[tuple[float, NearMiss]]:
        """Returns the nearest changes, out of n, with which the rule is TRUE: at most `MOST_MATCHED`, nearest first,
        with their distances. changed: the new values [n] by column; distances: [n]."""
        found: list[int] = []
        ordered, at_once = np.argsort(distances, kind="stable"), max(1, AT_ONCE // self._width)
        for start in range(0, len(ordered), at_once):
            rows = ordered[start : start + at_once]
            self._left -= len(rows) * self._width
            if self._left < 0 or len(found) >= MOST_MATCHED:
                break
            inputs = {name: repeated(each, len(rows)) for name, each in self._inputs.items()}
            inputs |= {name: Evaluated(values.take(pa.array(rows))) for name, values in changed.items()}
            truth = truth_of_parts(self._rule, Truths(inputs, len(rows)))[self._rule]
            found += rows[truth == TRUE].tolist()
        return [
            (float(distances[place]), tuple(self._change(name, each[place].as_py()) for name, each in changed.items()))
            for place in found[:MOST_MATCHED]
        ]

    def _change(self, name: str, after: Any) -> Change:
        leaf = self._leaves[name]
        if pa.types.is_timestamp(leaf.type) and leaf.type.tz is not None and after is not None:
            after = after.astimezone(zone_of(self._compiled.time_zone))
        if is_float(leaf.type) and after is not None:
            after = shortest(after, leaf.type)
        return Change(name, value_in(self._row, leaf), after)

    def _matches(self, miss: NearMiss) -> bool:
        """Whether the index matches the changed row; if the row lacks columns that only other rules read, whether the
        rule's text is TRUE."""
        changed = {**self._row, **{_key_of(change.column): change.after for change in miss}}
        try:
            return self._rule_id in self._compiled.match_one(changed)
        except SchemaError:
            inputs = inputs_of_row(changed, self._rule.leaves, self._compiled.time_zone)
            return int(truth_of_parts(self._rule, Truths(inputs, 1))[self._rule][0]) == TRUE


def _key_of(column: str) -> str:
    """The key of a column's value in a row: a column's own name, and the path of a field of a STRUCT."""
    parts = path_parts(column)
    return parts[0] if len(parts) == 1 else column


def _parts_of(attribute: Expression) -> int:
    return attribute.size if isinstance(attribute, Operation) else 1


def _changeable(rule: Part, fixed: Collection[str]) -> list[Leaf]:
    """Returns the columns that may be changed: their effect on the rule is known without Spark, and they do not overlap
    another column that the rule reads."""
    read = {leaf.name: leaf for part in rule.predicates for leaf in part.columns}
    compared = {leaf.name for leaf in rule.leaves}  # no other column has an effect
    frozen = _named(read, [fixed] if isinstance(fixed, str) else fixed)
    for part in rule.predicates:
        if any(leaf.text is not None for attribute in part.attributes for leaf in leaves_of(attribute)):
            frozen |= {leaf.name for leaf in part.columns}
    return [
        leaf
        for name, leaf in read.items()
        if is_indexable(leaf.type)
        and name in compared
        and name not in frozen
        and not any(_overlap(name, other) for other in read if other != name)
    ]


def _named(read: Iterable[str], wanted: Iterable[str]) -> set[str]:
    """The leaves in `read` that are one of the wanted columns or fields, or within one, in any spelling. A column may
    be wanted by its plain name too, without backticks."""
    keys = {_key(parts) for each in wanted for parts in ([each], path_parts(each)) if parts}
    paths = {name: _key(path_parts(name)) for name in read}
    return {name for name, key in paths.items() if any(key[:length] in keys for length in range(1, len(key) + 1))}


def _key(parts: list[str]) -> tuple[Hashable, ...]:
    return (column_key(parts[0]), *map(field_key, parts[1:]))


def _overlap(one: str, other: str) -> bool:
    """Whether a column is a field of another."""
    return one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _least(sets: Iterable[Columns]) -> set[Columns]:
    """The minimal sets: those that contain no other one."""
    found: set[Columns] = set()
    for columns in sorted(set(sets), key=lambda each: (len(each), sorted(each))):
        if len(found) < MOST_SETS and not any(other <= columns for other in found):
            found.add(columns)
    return found
