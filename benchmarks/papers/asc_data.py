"""Data sets and query sets of the ASC paper's experiments; its Table 1 is lost, so that Q1 to Q4 are ours.

D1: 20 integers in [0, 99], uniform. D2: the same by Zipf's law with exponent 1 (ours), from a most frequent value of
each attribute upwards. D3: the paper takes the US Census of 1990; here ten columns of KDD99's connections stand in, in
their order in time.

A query has a range on some of the p-attributes: its share of the values (of the rows, in Q2) is the attribute's own,
times 0.5 to 1.5. In Q1 and Q3 half of the ranges lie around one value of their attribute, which is frequent in D2 for
three attributes in four and rare for the fourth, so that D1 and D2 are best evaluated in different orders. In Q4 the
ranges on an attribute are equally wide and side by side, but for a share that has moved to one place.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rules_index.engines.asc.constructs import SelectionConstructs
from rules_index.index.conjunction_arrays import Conjunctions

SEED = 7
VALUES = 100
COLUMNS = 20
GATHERED = 0.5
D3_COLUMNS = (
    "duration", "src_bytes", "dst_bytes", "hot", "count", "srv_count", "dst_host_count", "dst_host_srv_count",
    "dst_host_same_srv_rate", "dst_host_diff_srv_rate",
)  # fmt: skip


class Queries(NamedTuple):
    """Ranges [low, high] of values [queries, predicates] of the attributes [queries, predicates] int32, ascending."""

    attributes: np.ndarray
    low: np.ndarray
    high: np.ndarray


def uniform(rows: int) -> np.ndarray:
    """D1 [columns, rows] int32."""
    return np.random.default_rng([SEED, 1]).integers(0, VALUES, (COLUMNS, rows), dtype=np.int32)


def skewed(rows: int) -> np.ndarray:
    """D2 [columns, rows] int32."""
    draw = np.random.default_rng([SEED, 2])
    weight = 1 / np.arange(1, VALUES + 1)
    ranked = draw.choice(VALUES, (COLUMNS, rows), p=weight / weight.sum())
    return ((ranked + _frequent()[:, None]) % VALUES).astype(np.int32)


def _frequent() -> np.ndarray:
    """D2's most frequent values [columns]."""
    return np.random.default_rng([SEED, 4]).integers(0, VALUES, COLUMNS)


def connections(rows: int) -> np.ndarray | None:
    """D3's stand-in [columns, rows] int32 of ranks of values, or nothing where the data is not there."""
    path = Path(os.environ.get("DELTATAG_DATA", "")) / "kdd99" / "kdd99_10pct.parquet"
    if not path.is_file():
        return None
    import polars as pl

    frame = pl.read_parquet(path, columns=list(D3_COLUMNS)).head(rows)
    return np.stack([np.unique(frame[name].to_numpy(), return_inverse=True)[1] for name in D3_COLUMNS]).astype(np.int32)


def queries(number: int, attributes: int, predicates: int) -> Queries:
    """Q1 and Q3, over the first attributes, whose mean shares of the values run from 0.05 to 0.4."""
    draw = np.random.default_rng([SEED, number, attributes, predicates])
    named = np.sort(np.argsort(draw.random((number, attributes)), axis=1)[:, :predicates], axis=1)
    width = np.clip(VALUES * _shares(draw, attributes)[named] * draw.uniform(0.5, 1.5, named.shape), 1, VALUES - 1)
    width = width.astype(np.int64)
    low = (draw.random(named.shape) * (VALUES - width)).astype(np.int64)
    focus = (_frequent()[:attributes] + np.where(np.arange(attributes) % 4 == 3, VALUES // 2, 2)) % VALUES
    near = np.clip(focus[named] - (draw.random(named.shape) * width / 2).astype(np.int64), 0, VALUES - width)
    low = np.where(draw.random(named.shape) < GATHERED, near, low)
    return Queries(named.astype(np.int32), low, low + width - 1)


def gathering(number: int, attributes: int, predicates: int, gathered: float) -> Queries:
    """Q4: `gathered` is the share of the ranges that lie in one place, so that regions there satisfy many queries and
    others few."""
    draw = np.random.default_rng([SEED, number, attributes, predicates])
    named = np.sort(np.argsort(draw.random((number, attributes)), axis=1)[:, :predicates], axis=1)
    moved = draw.random(named.shape) < gathered
    low, high = np.empty(named.shape, np.int64), np.empty(named.shape, np.int64)
    for attribute in range(attributes):
        chosen = named == attribute
        count = int(chosen.sum())
        ends = np.linspace(0, VALUES, count + 1).astype(np.int64)
        place = np.where(moved[chosen], draw.integers(0, max(1, count)), draw.permutation(count))
        low[chosen], high[chosen] = ends[place], ends[place + 1] - 1
    return Queries(named.astype(np.int32), low, high)


def queries_of(data: np.ndarray, number: int, predicates: int) -> Queries:
    """Queries whose ranges hold such shares of the rows of the data, where values are not too frequent: Q2."""
    draw = np.random.default_rng([SEED, number, predicates, 3])
    named = np.sort(np.argsort(draw.random((number, len(data))), axis=1)[:, :predicates], axis=1)
    width = _shares(draw, len(data))[named] * draw.uniform(0.5, 1.5, named.shape)
    ordered = np.sort(data, axis=1)
    first = draw.random(named.shape) * (1 - width)
    low, high = (ordered[named, (at * (data.shape[1] - 1)).astype(np.int64)] for at in (first, first + width))
    return Queries(named.astype(np.int32), low.astype(np.int64), high.astype(np.int64))


def _shares(draw: np.random.Generator, attributes: int) -> np.ndarray:
    return np.linspace(0.05, 0.4, attributes)[draw.permutation(attributes)]


def constructs_of(given: Queries, data: list[np.ndarray]) -> tuple[SelectionConstructs, list[np.ndarray]]:
    """The constructs, over the regions between the queries' constants, and data sets as codes of regions."""
    columns = len(data[0])
    sizes = np.ones(columns, np.int32)
    codes = [np.zeros(each.shape, np.int32) for each in data]
    bounds = np.empty((*given.attributes.shape, 2), np.int32)
    for attribute in range(columns):
        chosen = given.attributes == attribute
        cuts = np.unique(np.concatenate([given.low[chosen], given.high[chosen] + 1]))
        sizes[attribute] = len(cuts) + 1
        for coded, each in zip(codes, data, strict=True):
            coded[attribute] = np.searchsorted(cuts, each[attribute], "right")
        bounds[chosen, 0] = np.searchsorted(cuts, given.low[chosen], "right")
        bounds[chosen, 1] = np.searchsorted(cuts, given.high[chosen], "right")
    number, predicates = given.attributes.shape
    terms = np.stack([given.attributes.reshape(-1), np.arange(number * predicates)], axis=1).astype(np.int32)
    conjunctions = Conjunctions(
        sizes=sizes,
        set_start=np.arange(number * predicates + 1),
        intervals=bounds.reshape(-1, 2),
        start=np.arange(0, number * predicates + 1, predicates),
        terms=terms,
        target=np.arange(number, dtype=np.int32),
        disjunction_start=np.zeros(1, np.int32),
    )
    return SelectionConstructs.build(conjunctions), codes


def matches_of(given: Queries, data: np.ndarray) -> np.ndarray:
    """Matches [rows] int64 of each row, by brute force over values."""
    found = np.zeros(data.shape[1], np.int64)
    for attributes, low, high in zip(*given, strict=True):
        values = data[attributes]
        found += ((values >= low[:, None]) & (values <= high[:, None])).all(axis=0)
    return found
