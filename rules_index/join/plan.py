"""Chooses the parts (local conjuncts) whose rows are listed, by comparing costs on the rows of a batch.

A listed part costs a hit for each row on which it holds. Any other part is checked on each candidate: a joined row that
the conjunction's listed parts allow. A conjunction's part that holds on the fewest rows is always listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rules_index.arrays import gather_indices, offsets_of, segment_counts, segment_ids
from rules_index.index.build import SAMPLE_ROWS, build
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.engine import Engine
from rules_index.join.local_conjuncts import NOTHING, Parts, Split
from rules_index.join.window_partners import FIRST, LAST, OrderedRows


@dataclass(frozen=True)
class Plan:
    """How the conjunctions of a join find their rows.

    engines  for each stream the engine that finds its listed parts, renumbered; None if there are none
    listed   for each stream the number of parts that are listed
    pairs    [conjunctions, streams] int32, the pair of lists (`lists.Lists`) that is read
    checked  [conjunctions, streams] int32, the part that is checked on candidates, or `NOTHING`
    hits     [streams] expected number of listed parts that a row satisfies
    rows     the number of rows that the plan was made for
    """

    engines: tuple[Engine | None, ...]
    listed: tuple[int, ...]
    pairs: np.ndarray
    checked: np.ndarray
    hits: np.ndarray
    rows: int


def make_plan(split: Split, rows: OrderedRows, codes: Sequence[np.ndarray]) -> Plan:
    """Makes a plan for rows with these codes: for each stream [attributes, rows] int32."""
    shares = [_shares(parts.rules, each) for parts, each in zip(split.parts, codes, strict=True)]
    listed = _choose_listed(split, shares, rows)
    engines: list[Engine | None] = []
    pairs = np.empty((len(split.target), len(shares)), np.int32)
    checked = np.empty_like(pairs)
    pairs_before = 0
    for stream, (parts, chosen) in enumerate(zip(split.parts, listed, strict=True)):
        engines.append(build(_only(parts.rules, chosen), sample=_sample(codes[stream]))[0] if chosen.any() else None)
        # the appended element is for conjunctions without a part (`NOTHING`)
        is_listed = np.append(chosen, False)[parts.number]
        place = np.append(np.cumsum(chosen) - 1, 0)[parts.number]
        pairs[:, stream] = pairs_before + np.where(is_listed, place, chosen.sum())
        checked[:, stream] = np.where(is_listed, NOTHING, parts.number)
        pairs_before += int(chosen.sum()) + 1
    return Plan(
        tuple(engines),
        tuple(int(chosen.sum()) for chosen in listed),
        pairs,
        checked,
        np.array([share[chosen].sum() for share, chosen in zip(shares, listed, strict=True)]),
        len(rows),
    )


def _sample(codes: np.ndarray) -> np.ndarray:
    count = codes.shape[1]
    return codes if count <= SAMPLE_ROWS else codes[:, np.arange(SAMPLE_ROWS) * count // SAMPLE_ROWS]


def _choose_listed(split: Split, shares: list[np.ndarray], rows: OrderedRows) -> list[np.ndarray]:
    """Returns for each stream which of its parts are listed, [parts] bool."""
    sizes = np.diff(rows.begin)
    cost = np.stack(
        [np.append(share, 1.0)[parts.number] * size for share, parts, size in _zip(shares, split.parts, sizes)], axis=1
    )
    base = np.argmin(cost, axis=1)
    partners = _partners(rows)
    listed = []
    for stream, (share, parts, size) in enumerate(_zip(shares, split.parts, sizes)):
        with_part = parts.number != NOTHING
        is_base = with_part & (base == stream)
        other = with_part & ~is_base
        candidates = np.take_along_axis(cost, base[:, None], axis=1)[:, 0] * partners[base, stream]
        checks = np.bincount(parts.number[other], weights=candidates[other], minlength=len(parts)) * (1 - share)
        chosen = (share * size <= checks) | _has_disjunction(parts)
        chosen[parts.number[is_base]] = True
        listed.append(chosen)
    return listed


def _zip(
    shares: Sequence[np.ndarray], parts: Sequence[Parts], sizes: np.ndarray
) -> list[tuple[np.ndarray, Parts, int]]:
    return list(zip(shares, parts, sizes.tolist(), strict=True))


def _partners(rows: OrderedRows) -> np.ndarray:
    """Returns the mean number of rows of stream j within reach of a row of stream i, [i, j] of [streams, streams]
    float64."""
    streams = len(rows.windows)
    partners = np.zeros((streams, streams))
    for stream in range(streams):
        here = slice(rows.begin[stream], rows.begin[stream + 1])
        for other in range(streams):
            if other != stream and len(rows):
                reached = rows.reach[other, LAST, here].astype(np.int64) - rows.reach[other, FIRST, here]
                partners[stream, other] = reached.sum() / max(1, len(reached))
    return partners


def _shares(c: Conjunctions, codes: np.ndarray) -> np.ndarray:
    """Estimates the share [parts] float64 of rows on which each part holds, as if its terms were independent. Shared
    disjunctions count as satisfied.

    A term that none of these rows satisfies counts as satisfied by half a row, because later rows may differ.
    """
    begin = int(c.start[c.disjunction_start[-1]])
    attributes, sets = c.terms[begin:].T
    below = [
        np.concatenate([[0], np.cumsum(np.bincount(each, minlength=size))])
        for each, size in zip(codes, c.sizes, strict=True)
    ]
    count_start = offsets_of(c.sizes.astype(np.int64) + 1)[:-1]
    row_counts = np.concatenate([np.zeros(0, np.int64), *below])
    is_disjunction = attributes == DISJUNCTION
    gather, offsets = gather_indices(c.set_start, sets[~is_disjunction])
    low, high = c.intervals[gather].T
    first_count = count_start[attributes[~is_disjunction]][segment_ids(offsets)]
    held = offsets_of(row_counts[first_count + high + 1] - row_counts[first_count + low])[offsets]
    share = np.ones(len(sets))
    share[~is_disjunction] = np.maximum(np.diff(held), 0.5) / max(1, codes.shape[1])
    starts = c.start[int(c.disjunction_start[-1]) :] - begin
    return np.multiply.reduceat(share, starts[:-1]) if len(starts) > 1 else np.empty(0)


def _has_disjunction(parts: Parts) -> np.ndarray:
    c = parts.rules
    return segment_counts(c.terms[:, 0] == DISJUNCTION, c.start[int(c.disjunction_start[-1]) :]) > 0


def _only(c: Conjunctions, chosen: np.ndarray) -> Conjunctions:
    """Returns all shared disjunctions and only the chosen parts [parts] bool, renumbered."""
    if chosen.all():
        return c
    first = int(c.disjunction_start[-1])
    gather, start = gather_indices(c.start, np.concatenate([np.arange(first), first + np.flatnonzero(chosen)]))
    terms = c.terms[gather]
    named = terms[:, 0] != DISJUNCTION
    used = np.zeros(len(c.set_start) - 1, bool)
    used[terms[named, 1]] = True
    terms[named, 1] = (np.cumsum(used) - 1)[terms[named, 1]]
    intervals, set_start = gather_indices(c.set_start, np.flatnonzero(used))
    target = np.concatenate([c.target[:first], np.arange(int(chosen.sum()))]).astype(np.int32)
    return Conjunctions(c.sizes, set_start, c.intervals[intervals], start, terms, target, c.disjunction_start)
