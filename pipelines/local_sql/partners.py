"""Finds the rows of two tables that have equal keys, and the rows without a partner that a join keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa

_MOST_PAIRS = 1 << 22
"""Maximum number of pairs of rows in memory, unless one row has more partners."""
_MANY_KEYS = 1 << 20
"""So many new keys are compared with those that are known."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two tables. A key with a NULL is equal to none.

    schema: the columns that are read; keys: those of them that must be equal to the other table's, in the same order;
    keeps_all: whether its rows without a partner are kept, beside NULLs.
    """

    schema: pa.Schema
    keys: Sequence[str]
    keeps_all: bool

    def rows_of(self, batches: Iterable[pa.Table]) -> pa.Table:
        """All rows in one table."""
        return pa.concat_tables([self.schema.empty_table(), *batches]).combine_chunks()

    def nulls(self, count: int) -> pa.Table:
        """Rows of NULLs."""
        return pa.table([pa.nulls(count, field.type) for field in self.schema], schema=self.schema)


def pairs(
    held: Side, held_rows: Iterable[pa.Table], side: Side, batches: Iterable[pa.Table]
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yields rows of the table `held`, which is kept in memory, and as many of the other one, side by side."""
    known = held.rows_of(held_rows)
    places = _frame(known, held.keys)
    most = max(places.group_by(pl.exclude("row")).len()["len"].to_list(), default=1)
    if not known.num_rows and not side.keeps_all:
        return
    how: Literal["left", "inner"] = "left" if side.keeps_all else "inner"
    is_alone = np.ones(known.num_rows, bool)
    for rows in _pieces(batches, max(_MOST_PAIRS // most, 1)):
        found = _frame(rows, side.keys).join(places, on=_names(side.keys), how=how, suffix="_held")
        is_alone[found["row_held"].drop_nulls().to_numpy()] = False
        yield known.take(_places(found["row_held"])), rows.take(_places(found["row"]))
    if held.keeps_all:
        for rows in _pieces([known.filter(pa.array(is_alone))], _MOST_PAIRS):
            yield rows, side.nulls(rows.num_rows)


def chosen(
    side: Side, batches: Iterable[pa.Table], other: Side, other_batches: Iterable[pa.Table], has_partner: bool
) -> Iterator[pa.Table]:
    """Yields the rows of a table that have a partner, or those that have none. The other table's keys are kept in
    memory."""
    names = _names(other.keys)
    keys, new = _frame(other.schema.empty_table(), other.keys).select(names), []
    for rows in other_batches:
        new.append(_frame(rows, other.keys).select(names).unique())
        if sum(map(len, new)) > max(len(keys), _MANY_KEYS):
            keys, new = pl.concat([keys, *new]).unique(), []
    keys = pl.concat([keys, *new]).unique()
    for rows in batches:
        found = _frame(rows, side.keys).join(keys, on=names, how="semi" if has_partner else "anti")
        yield rows.take(_places(found["row"]))


def _pieces(batches: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
    for batch in batches:
        for start in range(0, batch.num_rows, most):
            yield batch.slice(start, most)


def _names(keys: Sequence[str]) -> list[str]:
    return [f"k{number}" for number in range(len(keys))]


def _frame(rows: pa.Table, keys: Sequence[str]) -> pl.DataFrame:
    """The key columns of rows as k0, k1, ..., integers as BIGINT, and each row's place as `row`."""
    columns = [pl.Series(name, pl.from_arrow(rows.column(key))) for name, key in zip(_names(keys), keys, strict=True)]
    wide = [each.cast(pl.Int64) if each.dtype.is_integer() else each for each in columns]
    return pl.DataFrame(wide).with_row_index("row")


def _places(column: pl.Series) -> pa.Array:
    return column.cast(pl.Int64).to_arrow()
