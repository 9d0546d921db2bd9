"""What a regular expression is made of, once parsed: sets of code points, order, choice, repetition, assertions."""

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
    """One code point of a set."""

    members: ValueSet


@dataclass(frozen=True, slots=True)
class Sequence:
    """Its items one after the other; without items the empty string."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any of its items."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Its item `low` to `high` times (None: without end)."""

    item: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Assertion:
    """Holds at the places that are (or, where `negated`, are not) of one kind, and consumes nothing."""

    place: Place
    negated: bool = False


Node = Characters | Sequence | Choice | Repeat | Assertion
EMPTY = Sequence(())


def size(node: Node) -> int:
    """How many automaton states the node needs once its counted repetitions are written out."""
    match node:
        case Characters() | Assertion():
            return 1
        case Sequence(items) | Choice(items):
            return 1 + sum(size(item) for item in items)
        case Repeat(item, low, high):
            return (size(item) + 1) * max(low + 1 if high is None else high, 1)
