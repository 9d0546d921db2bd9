"""Which conjunctions are scanned, keyed or sliced: chosen by what each is expected to cost a row.

The costs of the kernel's steps were measured (`costs.json`, written by `benchmarks/calibrate.py`). How often a row has
a code and satisfies a conjunction is counted in a sample of rows or, without one, guessed: codes half as if all were
alike and half as often as rules name them, conjunctions as if attributes knew nothing of each other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources

import numpy as np

from rules_index.engines.asc import Asc
from rules_index.engines.flat import GATE, Conjunctions
from rules_index.engines.layout import BLOCK_ROWS, FILTERED, PASSED, Placement, set_widths, terms_of
from rules_index.kernels.bitmaps import COARSE_CODES
from rules_index.kernels.sift import MOST_CHUNK_ROWS, MOST_PLANES, PLANE_CLASSES, SIFTED

CHUNK_ROWS = MOST_CHUNK_ROWS
"""Rows that are keyed and sliced together."""
SAMPLED = 20_000
"""Conjunctions by which tables and slicings are chosen."""
KEY_CODES = 4
"""Most codes of a set that a conjunction is keyed by."""
LONGEST_KEY = 3
"""Attributes of a table; but where many conjunctions name the same attributes, all of these may be its key."""
COMMON = 0.01
"""Share of the conjunctions that makes the attributes they name a key."""
CROWDED_ROWS = 20
"""Rows that two terms leave of a block, above which further terms are read as whole bitmaps."""
MOST_TABLES = 512
KEPT_SHARES = 32
"""Attributes whose shares of all conjunctions are kept in memory while conjunctions are placed."""


@dataclass(frozen=True)
class Costs:
    """Nanoseconds of one core.

    coarsen    a row's code made coarse, of one attribute
    bitmap     a row's bit in one bitmap
    scan       a row in a conjunction's first two terms
    narrow     a row in two further terms
    survivor   a row that is left by a conjunction's terms
    sign       a row looked up in one plane of a table's signs
    probe      a row looked up in a table's filter
    slot       a row's slot in a table, where neither tells that it is empty
    candidate  a row and a conjunction in its slot
    copied     the same, where nothing but the codes is to be checked
    sort       a row sorted for slicing
    gather     a row's coarse code brought into that order, of one attribute
    order      a match that is not scanned, brought into the order of the lists; where all come from a single table
               they stand in it
    """

    coarsen: float
    bitmap: float
    scan: float
    narrow: float
    survivor: float
    sign: float
    probe: float
    slot: float
    candidate: float
    copied: float
    sort: float
    gather: float
    order: float


@cache
def measured_costs() -> Costs:
    """The costs that are kept with the code."""
    text = resources.files("rules_index.engines").joinpath("costs.json").read_text("utf-8")
    return Costs(**json.loads(text)["nanoseconds"])


@dataclass(frozen=True)
class Plan:
    """A placement, how many conjunctions it puts where, and its expected nanoseconds a row, matches not counted."""

    placement: Placement
    cost: float

    @property
    def keyed(self) -> int:
        """Conjunctions in tables."""
        return int((self.placement.table >= 0).sum())

    @property
    def sliced(self) -> int:
        """Conjunctions that are sliced."""
        return int((self.placement.slicing >= 0).sum())

    @property
    def scanned(self) -> int:
        """Conjunctions that are scanned."""
        return len(self.placement.table) - self.keyed - self.sliced


def plans(c: Conjunctions, sample: np.ndarray | None = None) -> tuple[Plan, Plan]:
    """Every conjunction scanned, and the cheapest of scanning, keying, slicing and their mixtures.

    sample: codes [attributes, rows] of some rows.
    """
    code_shares = _code_shares(c, sample)
    shares = _set_shares(c, code_shares)
    first = int(c.gate_start[-1])
    count = len(c.target) - first
    draw = np.random.default_rng(0)
    drawn: np.ndarray = np.arange(count)
    if count > SAMPLED:
        drawn = np.sort(draw.choice(count, SAMPLED, replace=False))
    alike = _alike_codes(c, code_shares)
    matches = None if sample is None or not sample.shape[1] else _matches(c, first + drawn, sample)
    planner = _Planner(c, first + drawn, shares, alike, max(1, count) / max(1, len(drawn)), matches)
    scanning = planner.choose(keyed=False, sliced=False)
    found = [planner.choose(keyed, sliced) for keyed, sliced in ((False, True), (True, False), (True, True))]
    if any(each.scans for each in found):
        # the last scanned conjunctions may cost the bitmaps of all attributes
        found += [planner.choose(keyed=True, sliced=sliced, eagerness=10.0) for sliced in (False, True)]
    best = min([scanning, *found], key=lambda each: each.cost)
    nowhere = np.full(count, -1, np.int32)
    scan_all = Plan(Placement(nowhere, nowhere, (), ()), scanning.cost)
    if best is scanning:
        return scan_all, scan_all
    if len(drawn) < count:
        planner = _Planner(c, np.arange(first, first + count), shares, alike, 1.0)
    placement = planner.place(best)
    return scan_all, Plan(replace(placement, shares=code_shares), best.cost)


def _matches(c: Conjunctions, conjunctions: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """The share of the sampled rows [conjunctions] float64 that satisfy each of these, gates taken to be passed."""
    terms = terms_of(c, conjunctions)
    named = terms.attribute != GATE
    lengths = np.bincount(terms.owner[named], minlength=len(conjunctions))
    alone = Conjunctions(
        sizes=c.sizes,
        set_start=c.set_start,
        intervals=c.intervals,
        start=np.concatenate([[0], np.cumsum(lengths)]),
        terms=np.column_stack([terms.attribute[named], terms.which[named]]).astype(np.int32),
        target=np.arange(len(conjunctions), dtype=np.int32),
        gate_start=np.zeros(1, np.int32),
    )
    _, found = Asc.build(alone).match(sample)
    return np.bincount(found, minlength=len(conjunctions)) / sample.shape[1]


def _code_shares(c: Conjunctions, sample: np.ndarray | None) -> np.ndarray:
    """The expected share of the rows [codes] for every code of every attribute, one attribute after the other."""
    sizes = c.sizes.astype(np.int64)
    uniform = np.repeat(1 / np.maximum(sizes, 1), sizes)
    if sample is not None and sample.shape[1]:
        counted = zip(sample, sizes.tolist(), strict=True)
        seen = np.concatenate([np.bincount(codes, minlength=size) for codes, size in counted])
        # a code that the sample lacks is not one that no row has
        return np.asarray((seen + uniform) / (sample.shape[1] + 1))
    attribute, named = _attribute_of_sets(c)
    single = np.flatnonzero(set_widths(c) == 1)
    uses = np.bincount(c.terms[named, 1], minlength=len(attribute))[single]
    of = attribute[single]
    at = (np.cumsum(sizes) - sizes)[of] + c.intervals[c.set_start[single], 0]
    seen = np.bincount(at, weights=uses, minlength=len(uniform))
    total = np.repeat(np.bincount(of, weights=uses, minlength=len(sizes)), sizes)
    return np.where(total > 0, 0.5 * uniform + 0.5 * seen / np.maximum(total, 1), uniform)


def _alike_codes(c: Conjunctions, code_shares: np.ndarray) -> np.ndarray:
    """Of every attribute [attributes] the number of coarse codes that, being all alike, would be as often equal in two
    rows as its codes are (Simpson's)."""
    starts = np.cumsum(c.sizes.astype(np.int64)) - c.sizes
    return np.minimum(COARSE_CODES, 1 / np.add.reduceat(code_shares**2, starts)) if len(starts) else np.ones(0)


def _attribute_of_sets(c: Conjunctions) -> tuple[np.ndarray, np.ndarray]:
    """The attribute [sets] of every set, and which terms [terms] bool name one."""
    named = c.terms[:, 0] != GATE
    attribute = np.zeros(len(c.set_start) - 1, np.int64)
    attribute[c.terms[named, 1]] = c.terms[named, 0]
    return attribute, named


def _set_shares(c: Conjunctions, code_shares: np.ndarray) -> np.ndarray:
    """The expected share of the rows [sets] float32 in every set."""
    sizes = c.sizes.astype(np.int64)
    attribute, _ = _attribute_of_sets(c)
    below = np.concatenate([[0.0], np.cumsum(code_shares)])
    place = np.repeat((np.cumsum(sizes) - sizes)[attribute], np.diff(c.set_start))
    shares = below[place + c.intervals[:, 1] + 1] - below[place + c.intervals[:, 0]]
    return np.add.reduceat(shares, c.set_start[:-1]).astype(np.float32) if len(shares) else np.empty(0, np.float32)


@dataclass(frozen=True)
class _Choice:
    """The tables and slicings of a placement, whether it scans, and its expected cost."""

    tables: list[tuple[int, ...]]
    slicings: list[int]
    scans: bool
    cost: float
    eagerness: float


class _Planner:
    """Expected costs of some of a rule set's conjunctions, each of which stands for `scale` of them."""

    def __init__(
        self,
        c: Conjunctions,
        conjunctions: np.ndarray,
        shares: np.ndarray,
        alike: np.ndarray,
        scale: float,
        matches: np.ndarray | None = None,
    ) -> None:
        """matches: the share of the rows [conjunctions] that satisfy each, where it was counted."""
        self.c = c
        self.alike = alike
        self.costs = measured_costs()
        self.count = len(conjunctions)
        self.scale = scale
        self.terms = terms_of(c, conjunctions)
        named = self.terms.attribute != GATE
        self.share = np.ones(len(named), np.float32)
        self.share[named] = shares[self.terms.which[named]]
        widths = np.full(len(named), KEY_CODES + 1)
        widths[named] = set_widths(c)[self.terms.which[named]]
        self.narrow_enough = widths <= KEY_CODES
        self.lengths = np.bincount(self.terms.owner, minlength=self.count)
        self._named: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._shares: dict[int, np.ndarray] = {}
        self.counted = np.zeros(self.count) if matches is None else matches
        self.matches = self._expected_matches() if matches is None else matches
        self.scan_cost = self._scan_cost()

    def _scan_cost(self) -> np.ndarray:
        """Of every conjunction [conjunctions] float32 in a block of bitmaps that are filled already."""
        order = np.lexsort((self.share, self.terms.owner))
        lengths = self.lengths
        begin = np.cumsum(lengths) - lengths
        padded = np.append(self.share[order], np.float32(1))
        first = padded[np.where(lengths > 0, begin, len(order))]
        second = padded[np.where(lengths > 1, begin + 1, len(order))]
        crowded = first * second * BLOCK_ROWS > CROWDED_ROWS
        cost = self.costs.scan + self.costs.narrow * (crowded & (lengths > 2)) + self.costs.survivor * self.matches
        return np.asarray(cost, np.float32)

    def _expected_matches(self) -> np.ndarray:
        logs = np.bincount(self.terms.owner, weights=np.log(np.maximum(self.share, 1e-12)), minlength=self.count)
        return np.asarray(np.exp(logs))

    def choose(self, keyed: bool, sliced: bool, eagerness: float = 1.0) -> _Choice:
        """With or without tables and slicings; `eagerness` is how much dearer scanning is taken to be."""
        cost = self.scan_cost * np.float32(eagerness)
        slicings = self._slicings(cost) if sliced else []
        best = self._sliced(slicings, cost)[1]
        tables = self._tables(best) if keyed else []
        table, key_cost = self._keyed(tables, best)
        rest = table < 0
        slicings = self._slicings(np.where(rest, cost, 0)) if sliced else []
        slicing, slice_cost = self._sliced(slicings, self.scan_cost)
        scanned = rest & (slicing < 0)
        total = key_cost[~rest].sum() + slice_cost[rest].sum()
        if len(tables) != 1 or slicings or scanned.any():
            total += self.costs.order * self.matches[~scanned].sum()
        total = float(total) * self.scale + self._fixed(tables, table, slicings, scanned, rest & ~scanned)
        return _Choice(tables, slicings, bool(scanned.any()), total, eagerness)

    def place(self, choice: _Choice) -> Placement:
        """The conjunctions in the tables and slicings chosen."""
        cost = self.scan_cost * np.float32(choice.eagerness)
        table, _ = self._keyed(choice.tables, self._sliced(choice.slicings, cost)[1])
        slicing, _ = self._sliced(choice.slicings, self.scan_cost)
        slicing[table >= 0] = -1
        return Placement(table, slicing, choice.tables, choice.slicings, CHUNK_ROWS)

    def _fixed(
        self,
        tables: Sequence[tuple[int, ...]],
        table: np.ndarray,
        slicings: Sequence[int],
        scanned: np.ndarray,
        sliced: np.ndarray,
    ) -> float:
        """What every row costs, whatever it matches."""
        costs, attributes = self.costs, len(self.c.sizes)
        entries = np.bincount(table[table >= 0], minlength=len(tables)) * self.scale
        total = costs.coarsen * attributes + sum(map(self._probe_cost, tables, entries.tolist()))
        if scanned.any() or self.c.gates:
            total += costs.bitmap * self._bitmaps(scanned)
        if slicings:
            each = costs.sort + costs.gather * attributes + costs.bitmap * self._bitmaps(scanned | sliced)
            total += each * len(slicings)
        return total

    def _bitmaps(self, of: np.ndarray) -> float:
        """About how many bitmaps these conjunctions need: one for every end of an interval."""
        at = of[self.terms.owner] & (self.terms.attribute != GATE)
        ends = 2 * self.scale * np.bincount(self.terms.attribute[at], minlength=len(self.c.sizes))
        return float(np.minimum(ends, np.minimum(self.c.sizes, COARSE_CODES)).sum())

    def _probe_cost(self, names: tuple[int, ...], entries: float) -> float:
        """Of a table, whatever a row meets there: its signs, its filter or its slot; entries are taken to be spread
        evenly over as many codes as are `alike`."""
        costs = self.costs
        sifted = list(names)[:SIFTED]
        sizes = self.alike[sifted]
        filtered = len(names) > 1 and bool((self.c.sizes[sifted] <= COARSE_CODES).all())
        filtered &= float(np.prod(self.c.sizes[sifted].astype(np.float64))) > FILTERED * entries
        planes = np.arange(1, MOST_PLANES + 1)[:, None]
        classes = planes * PLANE_CLASSES
        codes = sizes * -np.expm1(-entries / classes / sizes)
        codes[:, :1] = sizes[0] * -np.expm1(-entries / sizes[0]) / classes
        passing = classes[:, 0] * (codes / sizes).prod(1)
        passed = PASSED * costs.sign if filtered else costs.slot
        signed = float((costs.sign * planes[:, 0] + passed * passing).min())
        return min(signed, costs.probe if filtered else costs.slot)

    def _candidate_cost(self, owner: np.ndarray, named: np.ndarray | int) -> np.ndarray:
        """Of conjunctions [.] in a row's slot of a table of so many attributes."""
        return np.where(self.lengths[owner] == named, self.costs.copied, self.costs.candidate).astype(np.float32)

    def _tables(self, cost: np.ndarray) -> list[tuple[int, ...]]:
        """The keys that save most, one after the other, each only where it saves more than its probes cost."""
        owner, key, share, names = self._candidate_keys
        if not len(owner):
            return []
        # a row that satisfies a conjunction meets it under any key
        share = np.maximum(share, self.counted[owner])
        by_owner = np.argsort(owner, kind="stable")
        width = np.array([len(names[number]) for number in range(len(names))])
        own = (share * self._candidate_cost(owner, width[key]))[by_owner]
        owner, key = owner[by_owner], key[by_owner]
        starts = np.searchsorted(owner, np.arange(self.count + 1))
        of_key = np.argsort(key, kind="stable")
        key_starts = np.searchsorted(key[of_key], np.arange(len(names) + 1))
        expected = cost.astype(np.float64)
        saved = np.bincount(key, weights=np.maximum(0, expected[owner] - own), minlength=len(names))
        # of the keys that a conjunction could have it gets one
        chances = self.scale / np.bincount(owner, minlength=self.count)[owner]
        entries_of = np.bincount(key, weights=chances, minlength=len(names)).tolist()
        probes = np.array([self._probe_cost(names[number], entries_of[number]) for number in range(len(names))])
        chosen: list[int] = []
        while len(chosen) < MOST_TABLES:
            best = int(np.argmax(saved * self.scale - probes))
            if saved[best] * self.scale <= probes[best]:
                break
            chosen.append(best)
            entries = of_key[key_starts[best] : key_starts[best + 1]]
            better = own[entries] < expected[owner[entries]]
            changed, cheaper = owner[entries[better]], own[entries[better]]
            lengths = starts[changed + 1] - starts[changed]
            others = np.repeat(starts[changed] - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
            before, after = expected[owner[others]], np.repeat(cheaper, lengths)
            less = np.maximum(0, before - own[others]) - np.maximum(0, after - own[others])
            saved -= np.bincount(key[others], weights=less, minlength=len(names))
            expected[changed] = cheaper
        return [names[number] for number in chosen]

    @cached_property
    def _candidate_keys(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[int, tuple[int, ...]]]:
        """Every key that a conjunction could be filed under: whose, the key's number, the share of the rows
        that meet it there, and the attributes of every number."""
        at = np.flatnonzero(self.narrow_enough)
        at = at[np.lexsort((self.terms.attribute[at], self.terms.owner[at]))]
        owner, attribute, share = self.terms.owner[at], self.terms.attribute[at].astype(np.int64), self.share[at]
        ends = np.searchsorted(owner, owner, side="right")
        parts = [(owner, attribute[:, None], share.astype(np.float64))]
        last = np.arange(len(owner))
        for _ in range(1, LONGEST_KEY):
            before, columns, product = parts[-1]
            longer = ends[last] - last - 1
            source = np.repeat(np.arange(len(before)), longer)
            step = np.arange(len(source)) - np.repeat(np.cumsum(longer) - longer, longer)
            last = last[source] + 1 + step
            parts.append(
                (before[source], np.column_stack([columns[source], attribute[last]]), product[source] * share[last])
            )
        parts += self._common_keys(owner, attribute, share)
        names: dict[int, tuple[int, ...]] = {}
        numbers: list[np.ndarray] = []
        for _, columns, _ in parts:
            distinct, inverse = np.unique(columns, axis=0, return_inverse=True)
            known = len(names)
            numbers.append(known + inverse.reshape(-1))
            names.update((known + i, tuple(row)) for i, row in enumerate(distinct.tolist()))
        return (
            np.concatenate([part[0] for part in parts]), np.concatenate(numbers),
            np.concatenate([part[2] for part in parts]), names,
        )  # fmt: skip

    def _common_keys(
        self, owner: np.ndarray, attribute: np.ndarray, share: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """All attributes that a conjunction names by few codes, where many name just these."""
        lengths = np.bincount(owner, minlength=self.count)
        begin = np.cumsum(lengths) - lengths
        found = []
        for length in range(LONGEST_KEY + 1, int(lengths.max(initial=0)) + 1):
            of = np.flatnonzero(lengths == length)
            if len(of) < COMMON * self.count:
                continue
            columns = attribute[begin[of, None] + np.arange(length)]
            _, inverse, uses = np.unique(columns, axis=0, return_inverse=True, return_counts=True)
            common = uses[inverse.reshape(-1)] >= COMMON * self.count
            product = share[begin[of, None] + np.arange(length)].astype(np.float64).prod(1)
            found.append((of[common], columns[common], product[common]))
        return found

    def _keyed(self, tables: Sequence[tuple[int, ...]], cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The table of every conjunction, -1 where it costs less without, and what it costs there."""
        table, best = np.full(self.count, -1, np.int32), cost.copy()
        for number, names in enumerate(tables):
            owner, share = self._named_by(names[0])
            for name in names[1:]:
                other = self._share_of(name)[owner]
                both = other > 0
                owner, share = owner[both], share[both] * other[both]
            keyed = np.maximum(share, self.counted[owner]).astype(np.float32)
            keyed *= self._candidate_cost(owner, len(names))
            better = keyed < best[owner]
            table[owner[better]], best[owner[better]] = number, keyed[better]
        return table, best

    def _named_by(self, attribute: int) -> tuple[np.ndarray, np.ndarray]:
        """The conjunctions that name an attribute by few codes, and the share of the rows that have one of these."""
        if attribute not in self._named:
            at = np.flatnonzero(self.narrow_enough & (self.terms.attribute == attribute))
            # a share of nothing would look like an attribute that is not named
            self._named[attribute] = self.terms.owner[at], np.maximum(self.share[at], np.float32(1e-30))
        return self._named[attribute]

    def _share_of(self, attribute: int) -> np.ndarray:
        """That share for every conjunction [conjunctions] float32, 0 where it does not name the attribute."""
        if attribute not in self._shares:
            if len(self._shares) == KEPT_SHARES:
                self._shares.clear()
            owner, share = self._named_by(attribute)
            self._shares[attribute] = np.zeros(self.count, np.float32)
            self._shares[attribute][owner] = share
        return self._shares[attribute]

    def _slicings(self, cost: np.ndarray) -> list[int]:
        """The attributes by which slicing saves most, each only where it saves more than it costs."""
        chosen: list[int] = []
        best = cost.copy()
        attributes = len(self.c.sizes)
        each = self.costs.sort + self.costs.gather * attributes + self.costs.bitmap * self._bitmaps(cost > 0)
        each /= self.scale
        saved = {a: self._saved(a, cost, best) for a in range(attributes)}
        while saved:
            attribute = max(saved, key=lambda a: saved[a])
            saved[attribute] = self._saved(attribute, cost, best)
            if saved[attribute] < max(saved.values()):
                continue
            if saved.pop(attribute) <= each:
                break
            chosen.append(attribute)
            owner, sliced = self._slice_cost(attribute, cost)
            best[owner] = np.minimum(best[owner], sliced)
        return sorted(chosen)

    def _saved(self, attribute: int, cost: np.ndarray, best: np.ndarray) -> float:
        owner, sliced = self._slice_cost(attribute, cost)
        return float(np.maximum(0, best[owner] - sliced).sum())

    def _slice_cost(self, attribute: int, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at = np.flatnonzero((self.terms.attribute == attribute) & (self.terms.pieces > 0))
        reached = np.minimum(1, self.share[at] + np.float32(BLOCK_ROWS / CHUNK_ROWS))
        return self.terms.owner[at], cost[self.terms.owner[at]] * reached

    def _sliced(self, slicings: Sequence[int], cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The slicing attribute of every conjunction, -1 where it costs less without, and what it costs there."""
        slicing, best = np.full(self.count, -1, np.int32), cost.copy()
        for attribute in slicings:
            owner, sliced = self._slice_cost(attribute, cost)
            better = sliced < best[owner]
            slicing[owner[better]], best[owner[better]] = attribute, sliced[better]
        return slicing, best
