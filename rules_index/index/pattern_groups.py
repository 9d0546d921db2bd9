"""Evaluates many patterns over one string column in one pass over its distinct values.

A pattern matches only strings that contain one of a few texts (`patterns.needles`). An automaton finds which texts, of
all patterns, occur in which values. A pattern is then evaluated on those values alone, by the matcher that is used
everywhere else, so that its meaning is the same. For `%text%` the automaton's result is already the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import gather_indices, offsets_of
from rules_index.kernels.many_texts import build_states, find_texts
from rules_index.kernels.rows_by_rule import rows_by_rule
from rules_index.language.patterns import like_matcher, rlike_matcher
from rules_index.language.patterns.like import LikeMatcher, lower
from rules_index.language.patterns.needles import like_is_contains, like_needles, rlike_needles
from rules_index.language.patterns.rlike import RlikeMatcher
from rules_index.language.patterns.strings import buffers
from rules_index.language.typed import Expression, Leaf, Operation

LEAST_PATTERNS = 4
"""With fewer patterns over a column, the automaton costs more than it saves."""
_MOST_CELLS = 1 << 26
"""The most cells of an automaton's table; patterns that need more are evaluated one by one."""
_FALSE, _TRUE, _NULL = 0, 1, 2


@dataclass(frozen=True)
class Texts:
    """An automaton that finds texts (`kernels.many_texts`), and the patterns that each text belongs to.

    classes         [256] int32, the class of each byte
    steps           [states, classes] int32, the next state
    ends, further   [states] int32, the text that ends in a state or -1; the next shorter suffix in which one ends or 0
    starts, owners  [texts + 1] int64 and [.] int32, CSR: the patterns that contain each text
    """

    classes: np.ndarray
    steps: np.ndarray
    ends: np.ndarray
    further: np.ndarray
    starts: np.ndarray
    owners: np.ndarray

    @classmethod
    def of(cls, needles: Sequence[frozenset[bytes]]) -> Texts | None:
        """The automaton of the patterns' texts; None where its table would be too large."""
        numbered: dict[bytes, list[int]] = {}
        for pattern, texts in enumerate(needles):
            for text in texts:
                numbered.setdefault(text, []).append(pattern)
        data = np.frombuffer(b"".join(numbered), np.uint8)
        offsets = np.concatenate([[0], np.cumsum([len(text) for text in numbered])])
        used = np.unique(data)
        if (len(data) + 1) * (len(used) + 1) > _MOST_CELLS:
            return None
        classes = np.zeros(256, np.int32)
        classes[used] = 1 + np.arange(len(used))
        steps = np.zeros((len(data) + 1, len(used) + 1), np.int32)
        ends, further = np.full(len(steps), -1, np.int32), np.zeros(len(steps), np.int32)
        count = build_states(data, offsets, classes, steps, ends, further)
        starts = np.concatenate([[0], np.cumsum([len(each) for each in numbered.values()])])
        owners = np.array([pattern for each in numbered.values() for pattern in each], np.int32)
        return cls(classes, steps[:count].copy(), ends[:count].copy(), further[:count].copy(), starts, owners)

    def candidates(self, strings: pa.Array, patterns: int) -> tuple[np.ndarray, np.ndarray]:
        """For each pattern the strings that contain one of its texts, ascending, as CSR arrays: offsets [patterns + 1]
        and numbers of strings [.]."""
        data, offsets, valid = buffers(strings)
        room = 4 * len(strings) + 1024
        while True:
            texts, found = np.empty(room, np.int32), np.empty(room, np.int32)
            seen = np.full(len(self.starts) - 1, -1)
            count = find_texts(
                data, offsets, valid, self.classes, self.steps, self.ends, self.further, seen, texts, found
            )
            if count <= room:
                break
            room = count
        texts, found = texts[:count], found[:count]
        gather, offsets = gather_indices(self.starts, texts)
        lengths = np.bincount(np.repeat(found, np.diff(offsets)), minlength=len(strings)).astype(np.int32)
        starts, rows = np.zeros(patterns + 2, np.int64), np.empty(len(gather), np.int32)
        rows_by_rule(self.owners[gather], lengths, starts, rows)
        # several texts of a pattern may occur in one string
        is_first = np.ones(len(rows), bool)
        is_first[1:] = rows[1:] != rows[:-1]
        is_first[starts[starts < len(rows)]] = True
        return offsets_of(is_first)[starts[:-1]], rows[is_first]


@dataclass(frozen=True)
class Group:
    """Patterns over one column.

    leaf        the column
    folded      whether strings are searched in lower case
    numbers     the patterns' numbers among those that `groups_of` was given
    operations  the patterns
    certain     for each pattern whether every string that contains one of its texts matches
    texts       the automaton of all patterns' texts
    """

    leaf: Leaf
    folded: bool
    numbers: tuple[int, ...]
    operations: tuple[Operation, ...]
    certain: tuple[bool, ...]
    texts: Texts
    _matchers: dict[int, LikeMatcher | RlikeMatcher] = field(default_factory=dict, compare=False)

    def truths(self, strings: pa.Array) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """Evaluates the patterns. Returns the number of each row's distinct value [rows], -1 for NULL; and, for each
        pattern that matches some value, by number, the truth [values + 1] uint8 of each value, that of NULL last."""
        coded = strings.dictionary_encode()
        values = coded.dictionary
        rows = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)
        searched = lower(values) if self.folded else values
        offsets, found = self.texts.candidates(searched, len(self.numbers))
        truths: dict[int, np.ndarray] = {}
        for place in np.flatnonzero(np.diff(offsets)).tolist():
            hits = found[offsets[place] : offsets[place + 1]]
            if not self.certain[place]:
                matched = self._matcher(place).match(values.take(pa.array(hits)))
                hits = hits[matched.to_numpy(zero_copy_only=False)]
                if not len(hits):
                    continue
            truth = np.full(len(values) + 1, _FALSE, np.uint8)
            truth[hits] = _TRUE
            truth[-1] = _NULL
            truths[self.numbers[place]] = truth
        return rows, truths

    def _matcher(self, place: int) -> LikeMatcher | RlikeMatcher:
        """The matcher of a pattern. It is cached here, because the caches in the matchers' modules may hold fewer than
        a group has."""
        found = self._matchers.get(place)
        if found is None:
            operation = self.operations[place]
            make = like_matcher if operation.name == "like" else rlike_matcher
            found = self._matchers[place] = make(*operation.parameters)
        return found


def is_pattern(attribute: Expression) -> TypeGuard[Operation]:
    """Whether an attribute is a LIKE or RLIKE of a column of strings."""
    if not isinstance(attribute, Operation) or attribute.name not in ("like", "rlike"):
        return False
    (operand,) = attribute.operands
    return isinstance(operand, Leaf) and operand.text is None and pa.types.is_string(operand.type)


@lru_cache(maxsize=8)
def groups_of(patterns: tuple[Operation, ...]) -> tuple[Group, ...]:
    """The groups of patterns, each of which `is_pattern`. A column with few patterns has no group."""
    waiting: dict[tuple[Leaf, bool], list[tuple[int, Operation, frozenset[bytes], bool]]] = {}
    for number, pattern in enumerate(patterns):
        (column,) = pattern.operands
        assert isinstance(column, Leaf)
        folded, required, exact = _needles(pattern)
        if required is not None:
            waiting.setdefault((column, folded), []).append((number, pattern, required, exact))
    found = []
    for (leaf, folded), members in waiting.items():
        if len(members) < LEAST_PATTERNS:
            continue
        texts = Texts.of([needles for _, _, needles, _ in members])
        if texts is not None:
            numbers, operations = tuple(each[0] for each in members), tuple(each[1] for each in members)
            certain = tuple(each[3] for each in members)
            found.append(Group(leaf, folded, numbers, operations, certain, texts))
    return tuple(found)


def _needles(operation: Operation) -> tuple[bool, frozenset[bytes] | None, bool]:
    """Returns whether strings are searched in lower case; the texts of which a matching string contains at least one,
    None if unknown; and whether every string that contains one matches."""
    if operation.name == "rlike":
        return False, rlike_needles(*operation.parameters), False
    pattern, escape, ignore_case = operation.parameters
    return ignore_case, like_needles(pattern, escape, ignore_case), like_is_contains(pattern, escape, ignore_case)
