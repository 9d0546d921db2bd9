"""BEGen, the workloads of the BE-Tree paper (section 7.1, tables 2 and 3), and a stand-in for DBLP's 3-grams.

Base expressions of equalities are the events, 1 / MP of them. Each gives N MP subscriptions: a predicate is kept with
probability subscription size / event size, and a kept one turned, with probability 1 - equality share, into another
that the base's value satisfies. Ours: every event has just the average size, a subscription at least one predicate,
Zipf's exponent is 1, and the kinds of turned predicates of a class are equally frequent. Where Table 2 lets `<` and `>`
fail the base's value, they do not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.baselines.expressions import Events, Expressions
from rules_index.arrays import offsets_of
from rules_index.engines.be_tree.structure import Events as TreeEvents
from rules_index.index.boxes import Boxes
from rules_index.index.term_sets import TermSets

SEED = 7
IN, NOT_IN, LESS, MORE, BETWEEN, UNEQUAL, EQUAL = range(7)
CLASSES = {
    "Min": (),
    "Low": (IN,),
    "Med": (IN, LESS, MORE, BETWEEN),
    "High": (IN, LESS, MORE, BETWEEN, UNEQUAL, NOT_IN),
}
MOST_VALUES = 6


@dataclass(frozen=True)
class Workload:
    """The parameters of Table 3; equality is a fraction, width a share of the domain, mp the match probability."""

    n: int = 100_000
    dimensions: int = 400
    cardinality: int = 48
    subscription: int = 7
    event: int = 15
    width: float = 0.12
    equality: float = 0.3
    operators: str = "Med"
    mp: float = 0.01
    law: str = "uniform"
    seed: int = SEED

    def draw(self, most_events: int = 1_000) -> tuple[Expressions, Events]:
        """Subscriptions, and at most so many of the events, drawn anew where there are fewer bases."""
        draw = np.random.default_rng([self.seed, self.n, self.dimensions])
        attributes, values = self.bases(draw)
        chosen = np.arange(self.n) % len(attributes)
        draw.shuffle(chosen)
        kept = draw.random((self.n, self.event)) < self.subscription / self.event
        kept[np.arange(self.n), draw.integers(0, self.event, self.n)] |= ~kept.any(axis=1)
        owner, place = np.nonzero(kept)
        at = attributes[chosen[owner], place], values[chosen[owner], place]
        given = turned(draw, self, offsets_of(kept.sum(axis=1)), *at)
        some = draw.permutation(len(attributes))[:most_events]
        return given, Events(attributes[some], values[some])

    def bases(self, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Attributes, ascending, and values [bases, event size] int32."""
        number = max(1, round(1 / self.mp))
        weight = 1 / np.arange(1, self.dimensions + 1) if self.law == "Zipf" else np.ones(self.dimensions)
        keys = np.log(weight) + draw.gumbel(size=(number, self.dimensions))
        attributes = np.sort(np.argpartition(-keys, self.event - 1, axis=1)[:, : self.event], axis=1).astype(np.int32)
        return attributes, draw.integers(0, self.cardinality, attributes.shape, dtype=np.int32)


def turned(
    draw: np.random.Generator, workload: Workload, start: np.ndarray, attribute: np.ndarray, value: np.ndarray
) -> Expressions:
    """Equalities, some of which become other predicates that the value satisfies (Table 2b)."""
    number, top = len(value), workload.cardinality - 1
    kinds = CLASSES[workload.operators]
    kind = np.full(number, EQUAL)
    if kinds:
        change = draw.random(number) >= workload.equality
        kind[change] = draw.choice(kinds, int(change.sum()))
    low, high = value.copy(), value.copy()
    other = draw.integers(0, workload.cardinality, number)
    less, more, between = kind == LESS, kind == MORE, kind == BETWEEN
    # `<= v` with v from the value to the top, `>= v` alike: strict bounds one further hold the same values
    high[less], low[less] = np.maximum(value, other)[less], 0
    low[more], high[more] = np.minimum(value, other)[more], top
    width = np.maximum(1, workload.cardinality * workload.width * draw.uniform(0.5, 1.5, number)).astype(np.int64)
    below = (draw.random(number) * width).astype(np.int64)
    low[between] = np.maximum(0, value - below)[between]
    high[between] = np.minimum(top, value - below + width - 1).clip(value)[between]
    which = np.full(number, -1, np.int32)
    sets = np.flatnonzero(np.isin(kind, (IN, UNEQUAL, NOT_IN)))
    intervals, lengths = _sets(draw, kind[sets], value[sets], workload.cardinality)
    set_start = offsets_of(lengths)
    low[sets] = intervals[set_start[:-1], 0]
    high[sets] = intervals[set_start[1:] - 1, 1]
    which[sets] = np.arange(len(sets), dtype=np.int32)
    # a set of one interval is a range
    which[sets[lengths == 1]] = -1
    sizes = np.full(workload.dimensions, workload.cardinality, np.int32)
    return Expressions(
        sizes,
        start,
        attribute.astype(np.int32),
        low.astype(np.int32),
        high.astype(np.int32),
        which,
        set_start,
        intervals,
    )


def _sets(
    draw: np.random.Generator, kind: np.ndarray, value: np.ndarray, cardinality: int
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals [., 2] int32 of sets, and how many each has: IN has the value and up to 5 more, NOT IN lacks up to 6
    others, `<>` one."""
    number = len(kind)
    listed = draw.integers(0, cardinality, (number, MOST_VALUES))
    many = np.where(kind == UNEQUAL, 1, draw.integers(2, MOST_VALUES + 1, number))
    # what is not wanted repeats the first value
    listed = np.where(np.arange(MOST_VALUES) < many[:, None], listed, listed[:, :1])
    negated = kind != IN
    listed[~negated, 0] = value[~negated]
    listed = np.where((np.arange(MOST_VALUES) < many[:, None]) | negated[:, None], listed, value[:, None])
    # what must not be listed becomes a neighbour
    hit = negated[:, None] & (listed == value[:, None])
    listed = np.where(hit, (listed + 1) % cardinality, listed)
    listed.sort(axis=1)
    new = np.ones(listed.shape, bool)
    new[:, 1:] = listed[:, 1:] != listed[:, :-1]
    low = np.full((number, MOST_VALUES + 1), 1, np.int64)
    high = np.zeros((number, MOST_VALUES + 1), np.int64)
    low[:, :-1], high[:, :-1] = listed, np.where(new, listed, -1)
    # gaps between what is listed, the last one up to the top
    before = np.concatenate([np.full((number, 1), -1), listed], axis=1)
    after = np.concatenate([listed, np.full((number, 1), cardinality)], axis=1)
    low[negated], high[negated] = before[negated] + 1, after[negated] - 1
    some = low <= high
    return np.stack([low[some], high[some]], axis=1).astype(np.int32), some.sum(axis=1)


def boxes_of(given: Expressions) -> Boxes:
    """What a BE-Tree is built from."""
    return Boxes(given.sizes, given.start, given.attribute, given.low, given.high)


def sets_of(given: Expressions) -> TermSets:
    """What its boxes leave out."""
    has = np.flatnonzero(given.which >= 0)
    owner = np.repeat(np.arange(len(given.start) - 1), np.diff(given.start))[has]
    which = given.which[has]
    lengths = np.diff(given.set_start)[which]
    set_start = offsets_of(lengths)
    places = np.repeat(given.set_start[which] - set_start[:-1], lengths) + np.arange(set_start[-1])
    start = offsets_of(np.bincount(owner, minlength=len(given.start) - 1))
    return TermSets(start, given.attribute[has], set_start, given.intervals[places])


def tree_events(events: Events) -> TreeEvents:
    """Events as a BE-Tree takes them."""
    has = events.attribute >= 0
    value = events.value[has]
    start = np.arange(len(value) + 1, dtype=np.int64)
    return TreeEvents(offsets_of(has.sum(axis=1)), events.attribute[has], start, np.stack([value, value], axis=1))


def strings(number: int, grams: int, seed: int = SEED) -> tuple[np.ndarray, np.ndarray]:
    """3-grams of random strings, as (attributes, values) [strings, grams] int32, -1 where a string has fewer.

    They stand in for DBLP: letters follow the pair before them as often as in this repository's documents. A 3-gram
    `str` is `st = r`: the pair is the attribute, of 676, and the letter its value, of 26; of a pair's first one counts.
    """
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parents[2].glob("docs/*.md")))
    letters = np.array([ord(each) - 97 for each in text.lower() if "a" <= each <= "z"])
    counts = np.zeros((676, 26))
    np.add.at(counts, (letters[:-2] * 26 + letters[1:-1], letters[2:]), 1)
    counts += 0.05
    upto = np.cumsum(counts / counts.sum(axis=1, keepdims=True), axis=1)
    draw = np.random.default_rng([seed, number, grams])
    begin = draw.integers(0, len(letters) - 1, number)
    pair = letters[begin] * 26 + letters[begin + 1]
    attributes, values = np.empty((number, grams), np.int32), np.empty((number, grams), np.int32)
    for place in range(grams):
        following = np.minimum((draw.random(number)[:, None] > upto[pair]).sum(axis=1), 25)
        attributes[:, place], values[:, place] = pair, following
        pair = pair % 26 * 26 + following
    order = np.argsort(attributes, axis=1, kind="stable")
    attributes, values = (np.take_along_axis(each, order, axis=1) for each in (attributes, values))
    again = np.zeros(attributes.shape, bool)
    again[:, 1:] = attributes[:, 1:] == attributes[:, :-1]
    attributes[again] = -1
    return attributes, values


def string_expressions(attributes: np.ndarray, values: np.ndarray) -> Expressions:
    """The strings as expressions of equalities."""
    has = attributes >= 0
    value = values[has]
    return Expressions(
        np.full(677, 26, np.int32), offsets_of(has.sum(axis=1)), attributes[has], value, value.copy(),
        np.full(len(value), -1, np.int32), np.zeros(1, np.int64), np.empty((0, 2), np.int32),
    )  # fmt: skip
