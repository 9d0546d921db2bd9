"""Kinds of rule sets that suit different engines, of any size and of a wanted number of matches a row.

A rule set is drawn from a seed as arrays, and read either as texts for `compile_rules` or straight as conjunctions
and codes, which needs no parser.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.workload import COLUMNS, VALUES, names
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.kernels.bitmaps import COARSE_CODES

ACCOUNTS = 1_000_000
LARGEST = 1 << 30
"""Values of the thresholds' columns are below it."""
RULES_A_TUPLE = 10


@dataclass(frozen=True)
class RuleSet:
    """Rules and the rows that they are matched with.

    attributes, low, high  [rules, predicates] int32: the columns, different within a rule, and the closed ranges
    rows                   [rows, COLUMNS] int32
    """

    name: str
    attributes: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rows: np.ndarray

    def __len__(self) -> int:
        """Number of rules."""
        return len(self.attributes)

    def only(self, rules: int, rows: int) -> RuleSet:
        """The first rules over the first rows."""
        return RuleSet(self.name, self.attributes[:rules], self.low[:rules], self.high[:rules], self.rows[:rows])

    def table(self) -> pa.Table:
        """The rows as columns c0, c1, ... of type int32."""
        return pa.table({name: np.ascontiguousarray(self.rows[:, i]) for i, name in enumerate(names())})

    def texts(self) -> list[str]:
        """The rules as SQL conditions."""
        rules = zip(self.attributes.tolist(), self.low.tolist(), self.high.tolist(), strict=True)
        return [" AND ".join(_predicate(*each) for each in zip(*rule, strict=True)) for rule in rules]

    def coded(self) -> tuple[Conjunctions, np.ndarray]:
        """The conjunctions and the code matrix [COLUMNS, rows] of the same rules and rows: the regions of each column,
        then the codes of NULL and of rows that raise, which no row has. As `code_matrix` makes them, codes are bytes
        where they fit."""
        rules, predicates = self.attributes.shape
        sizes = np.empty(COLUMNS, np.int32)
        codes = np.empty((COLUMNS, len(self.rows)), np.int32)
        bounds = np.empty((rules, predicates, 2), np.int32)
        for column in range(COLUMNS):
            named = self.attributes == column
            given = self.low[named], self.high[named]
            encode, regions = _regions(*given)
            sizes[column] = regions + 2
            codes[column] = encode(self.rows[:, column])
            bounds[named] = np.stack([encode(each) for each in given], axis=1)
        order = np.argsort(self.attributes, axis=1)
        attributes = np.take_along_axis(self.attributes, order, 1).reshape(-1)
        intervals = np.take_along_axis(bounds, order[:, :, None], 1).reshape(-1, 2)
        keys = attributes.astype(np.int64) << 48 | intervals[:, 0].astype(np.int64) << 24 | intervals[:, 1]
        _, first, sets = np.unique(keys, return_index=True, return_inverse=True)
        return Conjunctions(
            sizes=sizes,
            set_start=np.arange(len(first) + 1),
            intervals=intervals[first],
            start=np.arange(0, rules * predicates + 1, predicates),
            terms=np.stack([attributes, sets.reshape(-1)], axis=1).astype(np.int32),
            target=np.arange(rules, dtype=np.int32),
            disjunction_start=np.zeros(1, np.int32),
        ), codes.astype(np.uint8) if sizes.max() <= COARSE_CODES else codes

    def brute_force(self) -> np.ndarray:
        """Matches per rule [rules] int64: one pass of NumPy for every rule."""
        columns = np.ascontiguousarray(self.rows.T)
        counts = np.zeros(len(self), np.int64)
        for rule, (attributes, low, high) in enumerate(zip(self.attributes, self.low, self.high, strict=True)):
            rows = np.arange(len(self.rows))
            for attribute, least, most in zip(attributes, low, high, strict=True):
                values = columns[attribute, rows]
                rows = rows[(values >= least) & (values <= most)]
            counts[rule] = len(rows)
        return counts


def _predicate(attribute: int, low: int, high: int) -> str:
    return f"c{attribute} = {low}" if low == high else f"c{attribute} BETWEEN {low} AND {high}"


def _regions(low: np.ndarray, high: np.ndarray) -> tuple[Callable[[np.ndarray], np.ndarray], int]:
    """How the values of a column are coded, and how many regions it has; equalities alone leave their values a region
    each and all others one, the first."""
    if np.array_equal(low, high):
        points = np.unique(low)

        def encode_points(values: np.ndarray) -> np.ndarray:
            place = np.searchsorted(points, values, "right")
            return np.where((place > 0) & (points[place - 1] == values), place, 0) if len(points) else place

        return encode_points, len(points) + 1
    cuts = np.unique(np.concatenate([low, high + 1]))
    return lambda values: np.searchsorted(cuts, values, "right"), len(cuts) + 1


@dataclass(frozen=True)
class Kind:
    """One kind of rule set.

    make(rules, matches_per_row, rows, seed) draws one. `least` and `most` matches a row can be had from `rules` rules:
    the least is what rows match that are drawn without regard to the rules.
    """

    name: str
    make: Callable[[int, float, int, int], RuleSet]
    least: Callable[[int], float]
    most: Callable[[int], float]

    def rate(self, rules: int, wanted: float) -> float:
        """The matches a row nearest to those wanted."""
        return min(max(wanted, self.least(rules)), self.most(rules))


def ranges(rules: int, matches_per_row: float, rows: int, seed: int) -> RuleSet:
    """Five ranges over columns of 100 values, from half to one and a half times as wide as the matches need."""
    random = np.random.default_rng([seed, rules, 1])
    attributes = _columns(random, rules, 5)
    share = (matches_per_row / rules) ** (1 / 5)
    width = np.clip(np.round(VALUES * share * random.uniform(0.5, 1.5, attributes.shape)), 1, VALUES).astype(np.int32)
    low = (random.random(attributes.shape) * (VALUES - width + 1)).astype(np.int32)
    return RuleSet("ranges", attributes, low, low + width - 1, _uniform_rows(random, rows))


def equality(rules: int, matches_per_row: float, rows: int, seed: int) -> RuleSet:
    """Five equalities over columns of 100 values, all equally frequent; a matching row is drawn from a rule."""
    random = np.random.default_rng([seed, rules, 2])
    attributes = _columns(random, rules, 5)
    value = random.integers(0, VALUES, attributes.shape, dtype=np.int32)
    given = RuleSet("equality", attributes, value, value, _uniform_rows(random, rows))
    _draw_rows(random, given, matches_per_row)
    return given


def zipf(rules: int, matches_per_row: float, rows: int, seed: int) -> RuleSet:
    """As `equality`, the values of rules and rows in Zipf's distribution with exponent 1.2."""
    random = np.random.default_rng([seed, rules, 3])
    attributes = _columns(random, rules, 5)
    frequency = _zipf_frequency()
    value = random.choice(VALUES, attributes.shape, p=frequency).astype(np.int32)
    values = random.choice(VALUES, (rows, COLUMNS), p=frequency).astype(np.int32)
    given = RuleSet("zipf", attributes, value, value, values)
    _draw_rows(random, given, matches_per_row - _zipf_least(rules))
    return given


def accounts(rules: int, matches_per_row: float, rows: int, seed: int) -> RuleSet:
    """Each rule names one of a million accounts, no two the same, and two ranges of 20 to 59 values of 100."""
    random = np.random.default_rng([seed, rules, 4])
    account = random.permutation(ACCOUNTS)[:rules].astype(np.int32)[:, None]
    others = 1 + _columns(random, rules, 2, COLUMNS - 1)
    width = random.integers(20, 60, others.shape, dtype=np.int32)
    low = (random.random(others.shape) * (VALUES - width + 1)).astype(np.int32)
    attributes = np.concatenate([np.zeros_like(account), others], axis=1)
    values = _uniform_rows(random, rows)
    values[:, 0] = random.integers(0, ACCOUNTS, rows)
    given = RuleSet(
        "accounts", attributes, np.concatenate([account, low], 1), np.concatenate([account, low + width - 1], 1), values
    )
    least = _accounts_least(rules)
    _draw_rows(random, given, (matches_per_row - least) / (1 - least))
    return given


def thresholds(rules: int, matches_per_row: float, rows: int, seed: int) -> RuleSet:
    """Three ranges whose ends are drawn from 2**30 values, so that hardly two are the same."""
    random = np.random.default_rng([seed, rules, 5])
    attributes = _columns(random, rules, 3)
    share = (matches_per_row / rules) ** (1 / 3)
    width = np.minimum(LARGEST - 1, LARGEST * share * random.uniform(0.5, 1.5, attributes.shape)).astype(np.int64)
    low = (random.random(attributes.shape) * (LARGEST - width)).astype(np.int32)
    values = random.integers(0, LARGEST, (rows, COLUMNS), dtype=np.int32)
    return RuleSet("thresholds", attributes, low, (low + width).astype(np.int32), values)


def tuples(rules: int, matches_per_row: float, rows: int, seed: int) -> RuleSet:
    """Every rule names a value of each of the same five columns; ten rules name the same five."""
    random = np.random.default_rng([seed, rules, 6])
    value = np.repeat(random.integers(0, VALUES, (-(-rules // RULES_A_TUPLE), 5), dtype=np.int32), RULES_A_TUPLE, 0)
    attributes = np.tile(np.arange(5, dtype=np.int32), (rules, 1))
    given = RuleSet("tuples", attributes, value[:rules], value[:rules], _uniform_rows(random, rows))
    _draw_rows(random, given, matches_per_row / RULES_A_TUPLE)
    return given


def routes(rules: int, matches_per_row: float, rows: int, seed: int) -> RuleSet:
    """Every rule names a value of each of two columns, always the same two, and of three others."""
    random = np.random.default_rng([seed, rules, 7])
    others = 2 + _columns(random, rules, 3, COLUMNS - 2)
    attributes = np.concatenate([np.tile(np.arange(2, dtype=np.int32), (rules, 1)), others], axis=1)
    value = random.integers(0, VALUES, attributes.shape, dtype=np.int32)
    given = RuleSet("routes", attributes, value, value, _uniform_rows(random, rows))
    _draw_rows(random, given, matches_per_row)
    return given


def _columns(random: np.random.Generator, rules: int, count: int, among: int = COLUMNS) -> np.ndarray:
    """Different columns [rules, count] int32 for every rule."""
    return np.argsort(random.random((rules, among), np.float32), axis=1)[:, :count].astype(np.int32)


def _uniform_rows(random: np.random.Generator, rows: int) -> np.ndarray:
    return random.integers(0, VALUES, (rows, COLUMNS), dtype=np.int32)


def _draw_rows(random: np.random.Generator, given: RuleSet, share: float) -> None:
    """Changes a share of the rows so that each satisfies some rule: it gets the low ends of the rule's ranges."""
    drawn = np.flatnonzero(random.random(len(given.rows)) < share)
    rule = random.integers(0, len(given), len(drawn))
    given.rows[drawn[:, None], given.attributes[rule]] = given.low[rule]


def _zipf_frequency() -> np.ndarray:
    weight = np.arange(1, VALUES + 1) ** -1.2
    frequency: np.ndarray = weight / weight.sum()
    return frequency


def _zipf_least(rules: int) -> float:
    return rules * float((_zipf_frequency() ** 2).sum()) ** 5


def _accounts_least(rules: int) -> float:
    mean_share = (20 + 59) / 2 / VALUES
    return rules / ACCOUNTS * mean_share**2


KINDS = {
    kind.name: kind
    for kind in (
        Kind("ranges", ranges, lambda rules: 0, float),
        Kind("equality", equality, lambda rules: 0, lambda rules: 1),
        Kind("zipf", zipf, _zipf_least, lambda rules: max(1, _zipf_least(rules))),
        Kind("accounts", accounts, _accounts_least, lambda rules: 1),
        Kind("thresholds", thresholds, lambda rules: 0, float),
        Kind("tuples", tuples, lambda rules: 0, lambda rules: RULES_A_TUPLE),
    )
}
ROUTES = Kind("routes", routes, lambda rules: 0, lambda rules: 1)
"""A kind for which hash tables have keys of several attributes."""
