"""A pattern's syntax tree as a non-deterministic finite automaton in flat arrays, for the search kernel.

LIKE and RLIKE are both evaluated by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from rules_index.domains.values import ValueSet, points
from rules_index.errors import RuleError
from rules_index.language.patterns import code_points as cp
from rules_index.language.patterns.syntax import Assertion, Characters, Choice, Node, Place, Repeat, Sequence, size
from rules_index.work_budget import Work

STATE_LIMIT = 10_000
"""The most states of an automaton."""
_CELLS_A_STEP = 100
"""How many cells, each of one interval of code points and one set, are filled in one step of work."""
CONSUME, SPLIT, ASSERT, MATCH = 0, 1, 2, 3
WORD, WORD_UNICODE, MARK, BASE = 0, 1, 2, 3
"""Rows of `membership` for word boundaries: word characters, marks, and characters that a mark can combine with."""


@dataclass(frozen=True)
class Automaton:
    """States 0 to n - 1, with the start state `start`. Code points that no set of the pattern distinguishes are one
    class. If `from_start`, a match begins where the string begins; if `to_end`, it ends where the string ends.

    `kind`, `first`, `second`, `argument` are `[states] int32`. CONSUME goes to `first` on a code point whose class is
    in row `argument` of `membership` `[sets, classes] bool`. SPLIT goes to both. ASSERT goes to `first` if bit
    `argument >> 1` of the place is not `argument & 1`. MATCH ends a match.

    `cuts` `[intervals] int32` are ascending lower ends, `classes` `[intervals] int32` the class of each interval,
    `ascii_classes` `[128] int32` those of ASCII. `slots` `[places] int32` is the bit of each kind of place, -1 for
    kinds that the pattern does not test.
    """

    kind: npt.NDArray[np.int32]
    first: npt.NDArray[np.int32]
    second: npt.NDArray[np.int32]
    argument: npt.NDArray[np.int32]
    start: int
    from_start: bool
    to_end: bool
    membership: npt.NDArray[np.bool_]
    cuts: npt.NDArray[np.int32]
    classes: npt.NDArray[np.int32]
    ascii_classes: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]


def check(node: Node, work: Work) -> None:
    """Raises `RuleError`: `PATTERN` if the automaton of the node would be too large; `TOO_COMPLEX` if too little of
    the rule's budget of work is left for it."""
    states = size(node)
    if states > STATE_LIMIT:
        raise RuleError(
            "PATTERN",
            "The regular expression cannot be used: its counted repetitions make it too large "
            f"(more than {STATE_LIMIT:,} steps when written out).",
            0,
        )
    work.spend(states)
    sets: set[ValueSet] = set()
    _collect(node, sets)
    cuts = {cut for members in sets for cut in members.cuts}
    work.spend(len(sets) * len(cuts) // _CELLS_A_STEP)


def _collect(node: Node, sets: set[ValueSet]) -> None:
    """Adds the sets of code points of a node, as `_Builder` does."""
    match node:
        case Characters(members):
            sets.add(members)
        case Sequence(items) | Choice(items):
            for item in items:
                _collect(item, sets)
        case Repeat(item, _, _):
            _collect(item, sets)
        case Assertion(place) if place in _SETS:
            sets.update(_SETS[place]().values())


def build(node: Node) -> Automaton:
    """The automaton that finds a match of a node that `check` accepts."""
    node, from_start, to_end = _anchored(node)
    builder = _Builder()
    start = builder.add(node, builder.state(MATCH))
    cuts, classes, membership = _partition(builder.sets)
    places = sorted(builder.places)
    slots = np.full(len(Place), -1, np.int32)
    slots[places] = np.arange(len(places), dtype=np.int32)
    kind = np.array(builder.kind, np.int32)
    argument = np.array(builder.argument, np.int32)
    asserts = kind == ASSERT
    argument[asserts] = slots[argument[asserts] >> 1] * 2 + (argument[asserts] & 1)
    return Automaton(
        kind=kind,
        first=np.array(builder.first, np.int32),
        second=np.array(builder.second, np.int32),
        argument=argument,
        start=start,
        from_start=from_start,
        to_end=to_end,
        membership=membership,
        cuts=cuts,
        classes=classes,
        ascii_classes=classes[np.searchsorted(cuts, np.arange(128), side="right") - 1],
        slots=slots,
    )


def _anchored(node: Node) -> tuple[Node, bool, bool]:
    """A pattern without the assertion of the string's start at its beginning, and of the string's end at its end; and
    whether it has the one and the other."""
    items = node.items if isinstance(node, Sequence) else (node,)
    from_start = items[:1] == (Assertion(Place.START),)
    items = items[from_start:]
    to_end = items[-1:] == (Assertion(Place.END),)
    return Sequence(items[: len(items) - to_end]), from_start, to_end


class _Builder:
    """Adds states from the end of the pattern to its beginning, so that every target exists already."""

    def __init__(self) -> None:
        self.kind: list[int] = []
        self.first: list[int] = []
        self.second: list[int] = []
        self.argument: list[int] = []
        self.sets: list[ValueSet] = [ValueSet(False, ())] * 4
        self.numbers: dict[ValueSet, int] = {}
        self.places: set[Place] = set()

    def state(self, kind: int, first: int = 0, second: int = 0, argument: int = 0) -> int:
        """Adds a state; returns its number."""
        self.kind.append(kind)
        self.first.append(first)
        self.second.append(second)
        self.argument.append(argument)
        return len(self.kind) - 1

    def add(self, node: Node, after: int) -> int:
        """Adds the states of a node, from which the automaton goes on to the state `after`. Returns the node's start
        state."""
        match node:
            case Characters(members):
                return self.state(CONSUME, after, argument=self.number(members))
            case Sequence(items):
                for item in reversed(items):
                    after = self.add(item, after)
                return after
            case Choice(items):
                starts = [self.add(item, after) for item in items]
                chosen = starts[-1]
                for start in reversed(starts[:-1]):
                    chosen = self.state(SPLIT, start, chosen)
                return chosen
            case Repeat(item, low, high):
                return self.repeat(item, low, high, after)
            case Assertion(place, negated):
                self.note(place)
                return self.state(ASSERT, after, argument=place * 2 + negated)

    def repeat(self, item: Node, low: int, high: int | None, after: int) -> int:
        """Adds the states of `low` to `high` repetitions (None: without limit) of an item, from which the automaton
        goes on to `after`. Returns the start state."""
        if high is None:
            loop = self.state(SPLIT, 0, after)
            self.first[loop] = self.add(item, loop)
            after = loop
        else:
            skip = after
            for _ in range(high - low):
                after = self.state(SPLIT, self.add(item, after), skip)
        for _ in range(low):
            after = self.add(item, after)
        return after

    def number(self, members: ValueSet) -> int:
        """The row in `membership` of a set of characters; equal sets share a row."""
        number = self.numbers.setdefault(members, len(self.sets))  # hashes a set only once, since it may be large
        if number == len(self.sets):
            self.sets.append(members)
        return number

    def note(self, place: Place) -> None:
        """Records that the pattern tests a kind of place. For word boundaries, adds the sets that define them."""
        self.places.add(place)
        for row, members in _SETS[place]().items() if place in _SETS else ():
            self.sets[row] = members


@cache
def _edges() -> dict[int, ValueSet]:
    """The sets by which the edges of words are found, by their rows in `membership`."""
    return {WORD: cp.letters_and_digits() | points((0x5F,)), MARK: cp.category("Mn"), BASE: cp.letters_and_digits()}


@cache
def _edges_unicode() -> dict[int, ValueSet]:
    """The same for words of Unicode."""
    return {WORD_UNICODE: cp.word(), MARK: cp.category("Mn"), BASE: cp.letters_and_digits()}


_SETS = {Place.WORD_EDGE: _edges, Place.WORD_EDGE_UNICODE: _edges_unicode}
"""The sets by which a kind of place is found."""


def spend_on_sets(characters: int, work: Work) -> None:
    """Spends the work that `check` would for the sets of a pattern with so many (`characters`) different characters."""
    work.spend(characters * 2 * characters // _CELLS_A_STEP)


def _partition(sets: list[ValueSet]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """The lower ends of intervals, the class of each, and which classes each set contains, as `Automaton` has them."""
    cuts = np.unique(np.array([0, *(cut for members in sets for cut in members.cuts)], np.int32))
    cuts = cuts[cuts < cp.CODE_POINTS]
    held = np.zeros((len(sets), len(cuts)), np.bool_)
    for row, members in enumerate(sets):
        flips = np.searchsorted(np.array(members.cuts, np.int64), cuts, side="right")
        held[row] = (flips % 2 == 1) ^ members.start
    # the sets that contain an interval become one string of bits, since NumPy takes far longer to compare columns
    packed = np.ascontiguousarray(np.packbits(held, axis=0).T)
    by_interval = packed.view(f"V{packed.shape[1]}").reshape(-1)
    _, first, classes = np.unique(by_interval, return_index=True, return_inverse=True)
    return cuts, classes.reshape(-1).astype(np.int32), np.ascontiguousarray(held[:, first])
