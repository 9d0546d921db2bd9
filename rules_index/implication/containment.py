"""Finds rules that other rules imply: rules that are TRUE only where the others are.

A rule is implied by others if each of its boxes is covered by theirs. Candidates for the others are found by matching
rows inside the rule, on each of which one of them must be TRUE. If the candidates leave a row of the rule uncovered,
that row is matched next. It adds candidates, unless no further rule is TRUE on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rules_index.arrays import gather_indices, offsets_of, segment_counts, segment_ids
from rules_index.implication.corner_matching import CornerMatching, corner_matching, region_codes
from rules_index.implication.cover import COVERED, UNCOVERED, UNDECIDED, cover_boxes
from rules_index.implication.covering_rules import covering_rules, further_covering_rules
from rules_index.implication.region_boxes import RegionBoxes
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.engine import Matching
from rules_index.index.hybrid import Hybrid

ROUNDS = 64
"""The most uncovered rows per rule that are matched in search of further candidates for a union."""
MOST_COVERING = 1 << 10
"""A corner is matched with a larger sample of the rules only if at most about so many of these should be TRUE on it."""
_SAMPLES = (512, 64, 8, 1)
"""Corners are matched with one rule in so many: the smallest sample comes first, and all rules come last."""
_LEAST_SAMPLED = 1 << 12
"""Up to so many rules are matched without samples."""
_MOST_CODES, _MOST_HITS = 1 << 24, 1 << 25
"""The most codes and matches in memory at once."""
_FIRST_RULES = 1 << 8
"""The number of rules in the first batch; later ones depend on how many matches a row has had so far."""
_MOST_UNIONS = 1 << 12
"""The number of rules for which unions are searched for at once."""


@dataclass(frozen=True)
class RulesWithOthers:
    """Rules [n], and for each the other rules others[start[i]:start[i + 1]]."""

    rules: np.ndarray
    start: np.ndarray
    others: np.ndarray

    @classmethod
    def of(cls, rules: np.ndarray, padded: np.ndarray, count: np.ndarray) -> RulesWithOthers:
        """Takes the first count[i] of padded[i] [n, .] as the others of rule i."""
        taken = np.arange(padded.shape[1]) < count[:, None]
        return cls(rules, offsets_of(count), padded[taken])

    def only(self, chosen: np.ndarray) -> RulesWithOthers:
        """Only the chosen rules [n] bool, with their others."""
        gather, start = gather_indices(self.start, np.flatnonzero(chosen))
        return RulesWithOthers(self.rules[chosen], start, self.others[gather])

    def of_all(self, rules: np.ndarray) -> RulesWithOthers:
        """The same others for the rules [.], which contain the present ones in their order; added rules have none."""
        lengths = np.zeros(len(rules), np.int64)
        lengths[np.isin(rules, self.rules)] = np.diff(self.start)
        return RulesWithOthers(rules, offsets_of(lengths), self.others)

    def with_more(self, added: np.ndarray, count: np.ndarray) -> RulesWithOthers:
        """Appends the first count[i] of added[i] [n, .] to the others of rule i."""
        taken = np.arange(added.shape[1]) < count[:, None]
        order = np.argsort(np.concatenate([segment_ids(self.start), np.nonzero(taken)[0]]), kind="stable")
        others = np.concatenate([self.others, added[taken]])[order]
        return RulesWithOthers(self.rules, offsets_of(np.diff(self.start) + count), others)


def joined(parts: list[RulesWithOthers]) -> RulesWithOthers:
    """Concatenates parts."""
    nothing = np.empty(0, np.int64)
    return RulesWithOthers(
        np.concatenate([nothing, *(part.rules for part in parts)]),
        offsets_of(np.concatenate([nothing, *(np.diff(part.start) for part in parts)])),
        np.concatenate([np.empty(0, np.int32), *(part.others for part in parts)]),
    )


class Containment:
    """Compares the boxes of a rule set's rules, with an engine that finds the rules that are TRUE on a row.

    kept: [.] int64, the boxes that the rules consist of; redundant ones can be left out. conjunctions: the engine's.
    splits: `most` of `cover_boxes`.
    """

    def __init__(
        self, boxes: RegionBoxes, kept: np.ndarray, conjunctions: Conjunctions, engine: Matching, splits: int
    ) -> None:
        self._boxes = boxes
        self._kept = kept
        self._conjunctions = conjunctions
        self._attributes = len(conjunctions.sizes)
        self._engine = engine
        self._splits = splits
        self.box_start = np.searchsorted(boxes.rule[kept], np.arange(boxes.rules + 1))

    def found(self, eligible: np.ndarray) -> tuple[RulesWithOthers, RulesWithOthers]:
        """Compares the eligible rules [rules] bool with each other. Returns those that a single other rule implies,
        with that rule, and those that several others imply together, with as few others as were found.

        Corners of boxes are matched with a sample of the rules first. A corner on which very many of these are TRUE is
        not matched with larger samples, so that there are at most about `MOST_COVERING` times as many matches as
        corners.
        """
        single, together = [], []
        rules = np.flatnonzero(eligible)
        order = np.random.default_rng(0).permutation(rules)
        light = np.ones(2 * len(self._kept), bool)
        samples = _SAMPLES if len(rules) > _LEAST_SAMPLED else _SAMPLES[-1:]
        for sample, following in zip(samples, (*samples[1:], 0), strict=True):
            others = np.zeros_like(eligible)
            others[order[: len(order) // sample]] = True
            conjunctions = self._conjunctions if sample == 1 else _of_rules(self._conjunctions, others)
            engine = self._engine if sample == 1 else Hybrid.scanning(conjunctions)
            most = MOST_COVERING * following // sample
            left, unions = [], []
            matching = corner_matching(self._boxes, conjunctions, engine)
            for chosen, alone, candidates, crowded in self._candidates(matching, rules, others, light, most):
                implied = self._one_of(alone)
                single.append(implied)
                is_open = ~np.isin(chosen, implied.rules)
                left.append(chosen[is_open & ~crowded])
                unions.append(candidates.only(np.isin(candidates.rules, chosen[is_open & crowded])))
            together.append(self._without_unneeded(self._unions(engine, joined(unions), others)[0]))
            rules = np.concatenate([rules[:0], *left])
        return joined(single), joined(together)

    def implied(
        self, rules: np.ndarray, others: np.ndarray, always: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns which of `rules` [n] int64 the others [rules] bool imply, alone or together; which of them have a row
        on which none of the others is TRUE; and the codes [., attributes] int32 of such a row. The remaining rules are
        undecided.

        Each of `rules` must have boxes. always: [.] int32, rules that have boxes but no conjunctions, so that the
        engine never finds them; they are among the candidates of every rule.
        """
        order = np.random.default_rng(0).permutation(np.flatnonzero(others))
        light = np.ones(2 * len(self._kept), bool)
        found, left, rows = [rules[:0]], [rules[:0]], [np.empty((0, self._attributes), np.int32)]
        for sample in _SAMPLES if len(order) > _LEAST_SAMPLED else _SAMPLES[-1:]:
            some = np.zeros_like(others)
            some[order[: len(order) // sample]] = True
            conjunctions = _of_rules(self._conjunctions, some)
            engine = Hybrid.scanning(conjunctions)
            matching, unions = corner_matching(self._boxes, conjunctions, engine), []
            for chosen, alone, candidates, _ in self._candidates(matching, rules, some, light, len(others)):
                implied = self._one_of(alone).rules
                found.append(implied)
                unions.append(candidates.of_all(chosen).only(~np.isin(chosen, implied)))
            rules = np.concatenate([rules[:0], *(each.rules for each in unions)])
        for begin in range(0, len(rules), _MOST_UNIONS):
            candidates = joined(unions).only(np.arange(len(rules)) // _MOST_UNIONS == begin // _MOST_UNIONS)
            each = len(candidates.rules)
            candidates = candidates.with_more(np.tile(always, (each, 1)), np.full(each, len(always)))
            covered, open_rules, uncovered = self._unions(engine, candidates, others)
            found.append(covered.rules)
            left.append(open_rules)
            rows.append(uncovered)
        return np.concatenate(found), np.concatenate(left), np.concatenate(rows)

    def _candidates(
        self, matching: CornerMatching, rules: np.ndarray, eligible: np.ndarray, light: np.ndarray, most: int
    ) -> Iterator[tuple[np.ndarray, RulesWithOthers, RulesWithOthers, np.ndarray]]:
        """Yields batch by batch: the rules [n] int64; for each, other rules that are TRUE on all its corners; for each,
        some other rules that are TRUE on a corner, leaving out rules with a corner on which no other one is; and which
        rules [n] bool have no light corner left.

        light: [2 * kept] bool, the corners to match; those on which more than `most` rules are TRUE are cleared here.
        """
        begin, share = 0, _FIRST_RULES
        boxes, first_box = gather_indices(self.box_start, rules)
        terms = offsets_of(np.diff(self._boxes.arrays.start)[self._kept[boxes]])[first_box]
        while begin < len(rules):
            few = np.searchsorted(terms, terms[begin] + matching.most_terms, "right") - 1
            chosen = rules[begin : max(begin + 1, min(begin + share, int(few)))]
            gather, first = gather_indices(self.box_start, chosen)
            numbers = np.stack([2 * gather, 2 * gather + 1], axis=1).reshape(-1)
            looked_at = light[numbers]
            row_start = offsets_of(segment_counts(looked_at, 2 * first))
            offsets, hits = matching.match(self._kept[gather], looked_at)
            light[numbers[looked_at]] = np.diff(offsets) <= most
            alone, alone_count, in_union, count = covering_rules(chosen, row_start, offsets, hits, eligible)
            yield (
                chosen,
                RulesWithOthers.of(chosen, alone, alone_count),
                RulesWithOthers.of(chosen, in_union, count).only(count > 0),
                segment_counts(light[numbers], 2 * first) == 0,
            )
            begin += len(chosen)
            rows = len(offsets) - 1
            width = min(self._attributes, matching.most_terms)
            most_rows = min(_MOST_CODES // max(width, 1), _MOST_HITS * rows // max(len(hits), 1))
            share = max(1, min(4 * share, most_rows * len(chosen) // rows))

    def _one_of(self, alone: RulesWithOthers) -> RulesWithOthers:
        """Returns for each rule the first of its others that implies it; rules without one are left out."""
        count = np.diff(alone.start)
        implying = np.full(len(count), -1)
        for turn in range(int(count.max(initial=0))):
            chosen = np.flatnonzero((implying < 0) & (count > turn))
            others = alone.others[alone.start[chosen] + turn]
            how, _ = self._covers(RulesWithOthers(alone.rules[chosen], np.arange(len(chosen) + 1), others))
            implying[chosen[how == COVERED]] = turn
        implied = np.flatnonzero(implying >= 0)
        others = alone.others[alone.start[implied] + implying[implied]]
        return RulesWithOthers(alone.rules[implied], np.arange(len(implied) + 1), others)

    def _unions(
        self, engine: Matching, candidates: RulesWithOthers, eligible: np.ndarray
    ) -> tuple[RulesWithOthers, np.ndarray, np.ndarray]:
        """Returns the rules that their candidates imply together, with these candidates; the rules [n] int64 that have
        a row on which no rule of the engine is TRUE; and the codes [n, attributes] int32 of that row. No rule of the
        engine itself has such a row."""
        found, left, left_over = [], [np.empty(0, np.int64)], [np.empty((0, self._attributes), np.int32)]
        for _ in range(ROUNDS):
            if not len(candidates.rules):
                break
            how, rows = self._covers(candidates)
            found.append(candidates.only(how == COVERED))
            candidates, rows = candidates.only(how == UNCOVERED), rows[how == UNCOVERED]
            offsets, hits = engine.match(region_codes(rows, np.arange(self._attributes), self._boxes.codes))
            added, count = further_covering_rules(
                candidates.rules, candidates.start, candidates.others, offsets, hits, eligible
            )
            # a row that adds no candidate ends the search: no other rule is TRUE on it, or only rules that were
            # candidates before, and then it depends on a shared disjunction
            held = np.diff(offsets) > 0
            left.append(candidates.rules[~held])
            left_over.append(rows[~held])
            candidates = candidates.with_more(added, count).only(count > 0)
        return joined(found), np.concatenate(left), np.concatenate(left_over)

    def _without_unneeded(self, covered: RulesWithOthers) -> RulesWithOthers:
        """Removes the others that a rule does not need, from the last to the first: the remaining ones still cover
        it."""
        needed = np.ones(len(covered.others), bool)
        count = np.diff(covered.start)
        for turn in range(int(count.max(initial=0))):
            chosen = np.flatnonzero(count > turn)
            place = covered.start[chosen + 1] - 1 - turn
            needed[place] = False
            how, _ = self._covers(_without(covered, needed).only(np.isin(np.arange(len(count)), chosen)))
            needed[place] = how != COVERED
        return _without(covered, needed)

    def _covers(self, given: RulesWithOthers) -> tuple[np.ndarray, np.ndarray]:
        """Returns for each rule whether its others cover it, `COVERED`, `UNCOVERED` or `UNDECIDED` [n] int8; and for
        each uncovered rule the codes [n, attributes] int32 of a row that they do not cover."""
        gather, first = gather_indices(self.box_start, given.rules)
        boxes = self._kept[gather]
        covering, ends = gather_indices(self.box_start, given.others)
        rows = np.empty((len(boxes), self._attributes), np.int32)
        how = cover_boxes(
            boxes, segment_ids(first), ends[given.start], self._kept[covering], self._splits, self._boxes.arrays, rows
        )
        verdicts = np.full(len(given.rules), COVERED, np.int8)
        verdicts[segment_ids(first)[how == UNDECIDED]] = UNDECIDED
        uncovered = np.flatnonzero(how == UNCOVERED)
        rules, place = np.unique(segment_ids(first)[uncovered], return_index=True)
        verdicts[rules] = UNCOVERED
        found = np.zeros((len(given.rules), self._attributes), np.int32)
        found[rules] = rows[uncovered[place]]
        return verdicts, found


def _without(given: RulesWithOthers, needed: np.ndarray) -> RulesWithOthers:
    """Keeps only the needed [.] bool of the others."""
    kept = np.concatenate([[0], np.cumsum(needed)])
    return RulesWithOthers(given.rules, kept[given.start], given.others[needed])


def _of_rules(conjunctions: Conjunctions, chosen: np.ndarray) -> Conjunctions:
    """The conjunctions of the chosen rules [rules] bool, which keep their ordinals, and all shared disjunctions."""
    c = conjunctions
    first = int(c.disjunction_start[-1])
    kept = np.append(np.ones(first, bool), chosen[c.target[first:]])
    gather, start = gather_indices(c.start, np.flatnonzero(kept))
    return replace(c, start=start, terms=c.terms[gather], target=c.target[kept])
