"""The syntax tree of a regular expression: sets of code points, sequence, choice, repetition, assertions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from rules_index.domains.values import ValueSet


class Place(IntEnum):
    """A condition on the place between two code points; `MULTI` is the flag (?m), `UNIX` the flag (?d).

    INSIDE_PAIR is the place between a carriage return and its line feed.
    """

    START = 0
    END = 1
    DOLLAR = 2
    DOLLAR_UNIX = 3
    DOLLAR_MULTI = 4
    DOLLAR_MULTI_UNIX = 5
    CARET_MULTI = 6
    CARET_MULTI_UNIX = 7
    WORD_EDGE = 8
    WORD_EDGE_UNICODE = 9
    INSIDE_PAIR = 10


@dataclass(frozen=True, slots=True)
class Characters:
    """Matches one code point of a set. If only Java knows the set, `members` are all code points, and `is_known` is
    False."""

    members: ValueSet
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class Sequence:
    """Matches its items one after the other; without items the empty string.

    `group` is its number if it is a capturing group, else 0.
    """

    items: tuple[Node, ...]
    group: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """Matches any of its items."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Matches its item `low` to `high` times (None: without limit), as often as possible or, if lazy, as rarely."""

    item: Node
    low: int
    high: int | None
    is_lazy: bool = False


@dataclass(frozen=True, slots=True)
class Assertion:
    """Holds at places of one kind (or, if `negated`, at all others), and consumes nothing."""

    place: Place
    negated: bool = False


Node = Characters | Sequence | Choice | Repeat | Assertion
EMPTY = Sequence(())


def size(node: Node) -> int:
    """The number of automaton states of a node, with counted repetitions expanded."""
    match node:
        case Characters() | Assertion():
            return 1
        case Sequence(items) | Choice(items):
            return 1 + sum(size(item) for item in items)
        case Repeat(item, low, high):
            return (size(item) + 1) * max(low + 1 if high is None else high, 1)
