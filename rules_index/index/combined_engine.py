"""Two engines as one: a base, some of whose rules are left out, and an engine of the rules that replace them.

Each has its own attributes, so a column that both read is encoded twice. In return, the constants of changed rules
split no region of the base: its arrays stay as they are, mapped into memory or in use by other threads.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rules_index.arrays import gather_indices, offsets_of, segment_ids
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.engine import Matching
from rules_index.index.events import Event
from rules_index.kernels.merged_lists import merge_lists


class CombinedEngine:
    """The engine of an updated index, made of two engines.

    attributes: the number of the base's attributes; those of the other engine follow them. base_numbers,
    changed_numbers: the new ordinal [rules] int32 of each rule of the two engines; -1 for a rule of the base that is
    left out.
    """

    def __init__(
        self, base: Matching, changed: Matching, attributes: int, base_numbers: np.ndarray, changed_numbers: np.ndarray
    ) -> None:
        self.base, self.changed = base, changed
        self._attributes = attributes
        self._base_numbers, self._changed_numbers = _read_only(base_numbers), _read_only(changed_numbers)

    @property
    def name(self) -> str:
        """The engine's name, which is the same for both."""
        return self.base.name

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The conjunctions of both, without those of rules that are left out."""
        return {name: getattr(self.conjunctions, name) for name in Conjunctions.__dataclass_fields__}

    def match(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Matches `codes` [attributes, rows]: uint8 if no attribute has more than `COARSE_CODES` codes, else int32.
        Returns (offsets [rows + 1] int64, rule ordinals [hits] int32)."""
        starts, rules = self.base.match(codes[: self._attributes])
        other_starts, other_rules = self.changed.match(codes[self._attributes :])
        offsets, out = np.empty(codes.shape[1] + 1, np.int64), np.empty(len(rules) + len(other_rules), np.int32)
        count = merge_lists(
            starts, rules, self._base_numbers, other_starts, other_rules, self._changed_numbers, offsets, out
        )
        return offsets, out[:count]

    def search(self, codes: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, that a row of codes [attributes] satisfies; and the search's cost."""
        return self._merged(self.base.search(codes[: self._attributes]), self.changed.search(codes[self._attributes :]))

    def search_event(self, event: Event) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, with a conjunction that an event given as an expression matches; and the
        search's cost."""
        attributes, start, intervals = event
        of_base = attributes < self._attributes
        events = []
        for chosen, shift in ((of_base, 0), (~of_base, self._attributes)):
            gather, starts = gather_indices(start, np.flatnonzero(chosen))
            events.append(((attributes[chosen] - shift).astype(np.int32), starts, intervals[gather]))
        return self._merged(self.base.search_event(events[0]), self.changed.search_event(events[1]))

    def _merged(
        self, base: tuple[np.ndarray, dict[str, int]], changed: tuple[np.ndarray, dict[str, int]]
    ) -> tuple[np.ndarray, dict[str, int]]:
        kept = self._base_numbers[base[0]]
        found = np.concatenate([kept[kept >= 0], self._changed_numbers[changed[0]]])
        found.sort()
        return found, added(base[1], changed[1])

    @property
    def structure_counts(self) -> dict[str, int]:
        """The number of parts of both engines' structures, by kind."""
        return added(self.base.structure_counts, self.changed.structure_counts)

    @cached_property
    def conjunctions(self) -> Conjunctions:
        """The conjunctions of both over the attributes of both, without those of rules that are left out."""
        parts = [conjunctions_of(engine) for engine in (self.base, self.changed)]
        live = self._base_numbers[parts[0].target[int(parts[0].disjunction_start[-1]) :]] >= 0
        kept = [np.flatnonzero(live), np.arange(len(parts[1].target) - int(parts[1].disjunction_start[-1]))]
        numbers = (self._base_numbers, self._changed_numbers)
        shifts = ((0, 0, 0), (self._attributes, len(parts[0].set_start) - 1, parts[0].disjunctions))
        terms = [_shifted(part.terms, *shift) for part, shift in zip(parts, shifts, strict=True)]
        first = [int(part.disjunction_start[-1]) for part in parts]
        # four lists of conjunctions: both engines' shared disjunctions, then both engines' rules; the latter are then
        # sorted by their new ordinals
        chosen = [np.arange(each) for each in first] + [begin + rules for begin, rules in zip(first, kept, strict=True)]
        gathered = [gather_indices(part.start, lists) for part, lists in zip(2 * parts, chosen, strict=True)]
        target = [
            *(part.target[:begin] + shift[2] for part, begin, shift in zip(parts, first, shifts, strict=True)),
            *(ordinals[part.target[lists]] for ordinals, part, lists in zip(numbers, parts, chosen[2:], strict=True)),
        ]
        order = np.argsort(np.concatenate(target[2:]), kind="stable") + sum(first)
        order = np.concatenate([np.arange(sum(first)), order])
        starts = offsets_of(np.concatenate([np.diff(start) for _, start in gathered]))
        flat = np.concatenate([part[gather] for part, (gather, _) in zip(2 * terms, gathered, strict=True)])
        gather, start = gather_indices(starts, order)
        return Conjunctions(
            sizes=np.concatenate([part.sizes for part in parts]),
            set_start=offsets_of(np.concatenate([np.diff(part.set_start) for part in parts])),
            intervals=np.concatenate([part.intervals for part in parts]),
            start=start,
            terms=flat[gather],
            target=np.concatenate(target).astype(np.int32)[order],
            disjunction_start=np.concatenate(
                [parts[0].disjunction_start, first[0] + parts[1].disjunction_start[1:]]
            ).astype(np.int32),
        )


def conjunctions_of(engine: Matching) -> Conjunctions:
    """The conjunctions of an engine."""
    arrays = engine.arrays
    return Conjunctions(**{name: arrays[name] for name in Conjunctions.__dataclass_fields__})


def attributes_left(c: Conjunctions, left_out: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Which of the attributes `asked` [attributes] bool remain in use, [attributes] bool, once the rules `left_out`
    [.], ascending, are gone: a conjunction of another rule names them, directly or through a shared disjunction."""
    if c.disjunctions:
        return _reached(c, left_out) & asked
    found = np.zeros(len(c.sizes), bool)
    begin, size = 0, _BLOCK
    # the remaining rules usually name all asked attributes soon, so that few conjunctions are read; blocks grow
    # fourfold
    while begin < len(c.target) and (asked & ~found).any():
        end = min(len(c.target), begin + size)
        kept = ~np.isin(c.target[begin:end], left_out)
        terms = c.terms[c.start[begin] : c.start[end], 0]
        found[terms[np.repeat(kept, np.diff(c.start[begin : end + 1]))]] = True
        begin, size = end, 4 * size
    return found & asked


_BLOCK = 1 << 12
"""The number of conjunctions that `attributes_left` reads first."""


def named_by(c: Conjunctions, rules: np.ndarray) -> np.ndarray:
    """Which attributes [attributes] bool the conjunctions of the rules [.] name. All attributes if there are shared
    disjunctions, which may name any."""
    if c.disjunctions:
        return np.ones(len(c.sizes), bool)
    named = np.zeros(len(c.sizes), bool)
    named[c.terms[gather_indices(c.start, _conjunctions_of_rules(c, rules))[0], 0]] = True
    return named


def _conjunctions_of_rules(c: Conjunctions, rules: np.ndarray) -> np.ndarray:
    first = int(c.disjunction_start[-1])
    begin, end = (first + np.searchsorted(c.target[first:], rules, side) for side in ("left", "right"))
    return np.repeat(begin - offsets_of(end - begin)[:-1], end - begin) + np.arange((end - begin).sum())


def _reached(c: Conjunctions, left_out: np.ndarray) -> np.ndarray:
    """Which attributes [attributes] bool the conjunctions of all rules but `left_out` name, directly or through shared
    disjunctions."""
    first = int(c.disjunction_start[-1])
    attributes, disjunctions = _named(c.terms[c.start[first] :], c)
    without = _named(c.terms[gather_indices(c.start, _conjunctions_of_rules(c, left_out))[0]], c)
    attributes, disjunctions = attributes - without[0], disjunctions - without[1]
    reached, of_disjunction, owner = (
        disjunctions > 0,
        np.flatnonzero(c.terms[: c.start[first], 0] == DISJUNCTION),
        segment_ids(c.disjunction_start),
    )
    of_term = np.repeat(owner, np.diff(c.start[: first + 1]))
    # a shared disjunction may name earlier ones: repeat until no further one is reached
    while True:
        before = int(reached.sum())
        reached[c.terms[of_disjunction[reached[of_term[of_disjunction]]], 1]] = True
        if int(reached.sum()) == before:
            break
    return np.asarray((attributes + _named(c.terms[: c.start[first]][reached[of_term]], c)[0]) > 0)


def _named(terms: np.ndarray, c: Conjunctions) -> tuple[np.ndarray, np.ndarray]:
    """How many terms name each attribute [attributes] and each shared disjunction [disjunctions]."""
    counts = np.bincount(terms[:, 0] - DISJUNCTION, minlength=len(c.sizes) + 1)[1:]
    if not c.disjunctions:
        return counts, np.zeros(0, np.int64)
    return counts, np.bincount(terms[terms[:, 0] == DISJUNCTION, 1], minlength=c.disjunctions)


def _shifted(terms: np.ndarray, attributes: int, sets: int, disjunctions: int) -> np.ndarray:
    is_disjunction = terms[:, 0] == DISJUNCTION
    shifted = np.empty_like(terms)
    shifted[:, 0] = np.where(is_disjunction, DISJUNCTION, terms[:, 0] + attributes)
    shifted[:, 1] = terms[:, 1] + np.where(is_disjunction, disjunctions, sets)
    return shifted


def added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """The sums of two dictionaries' values by name; a name that one of them lacks counts as 0 there."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in [*one, *(n for n in other if n not in one)]}


def _read_only(numbers: np.ndarray) -> np.ndarray:
    numbers = np.ascontiguousarray(numbers, np.int32)
    numbers.setflags(write=False)
    return numbers
