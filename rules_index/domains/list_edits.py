"""Edits of a value list: makes its next version from the rows that were added and removed.

The list counts the rows of each value, so that a value leaves it only with its last row.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa

from rules_index.domains.list_digest import digest_of
from rules_index.domains.list_keys import Values, are_in, keys_of
from rules_index.domains.value_lists import ValueList, difference_of, list_type, most_counted


def edited(held: ValueList, removed: Values, added: Values, stamp: str) -> ValueList | None:
    """The list without the rows `removed` and with the rows `added`, both of which may include NULLs; it equals a list
    made from all rows.

    A value in both cancels out. Returns None if all rows must be read instead: the list does not count its rows, lacks
    some that were removed, has another type of values, or would differ too much from its base.
    """
    if held.counts is None or {list_type(removed.type), list_type(added.type)} != {held.type}:
        return None
    try:
        net = _net(keys_of(removed, held.type), keys_of(added, held.type))
    except pa.ArrowException:
        return None
    most = most_counted(held.count)
    if net.height > most:
        return None
    counts, change = _counted(held, net)
    if counts is None or counts.height > most:
        return None
    rows = held.rows + len(added) - len(removed)
    if change is None:
        return replace(held, rows=rows, counts=counts, stamp=stamp)
    difference, count = difference_of(held.regions, counts), held.count + change
    digest = digest_of(held.type, count, held.regions, difference)
    return replace(held, count=count, digest=digest, difference=difference, rows=rows, counts=counts, stamp=stamp)


def _net(removed: pl.Series, added: pl.Series) -> pl.DataFrame:
    """The columns `key` and `change`: by how many the number of rows with a key has grown. Keys without a change are
    left out."""
    signs = ((removed, -1), (added, 1))
    both = pl.concat([keys.to_frame("key").with_columns(change=pl.lit(sign, pl.Int64)) for keys, sign in signs])
    return both.group_by("key").agg(pl.col("change").sum()).filter(pl.col("change") != 0)


def _counted(held: ValueList, net: pl.DataFrame) -> tuple[pl.DataFrame | None, int | None]:
    """The new counts; and by how many the number of values has grown, None if no value has come or gone.

    The counts are None if a value would have a negative number of rows.
    """
    assert held.counts is not None
    in_base = are_in(held.regions, net["key"])
    joined = net.with_columns(pl.Series("base", in_base.astype(np.int64))).join(held.counts, on="key", how="left")
    # a value that is not counted has one row if it is in the base, else none
    before = pl.coalesce(pl.col("rows"), pl.col("base"))
    found = joined.select("key", "base", before.alias("before"), (before + pl.col("change")).alias("rows"))
    if (found["rows"] < 0).any():
        return None, None
    others = held.counts.join(net, on="key", how="anti")
    counted = found.filter(pl.col("rows") != pl.col("base")).select("key", "rows")
    is_in, was_in = (found["rows"] > 0).to_numpy(), (found["before"] > 0).to_numpy()
    change = int(is_in.sum()) - int(was_in.sum()) if (is_in != was_in).any() else None
    return pl.concat([others, counted]).sort("key"), change
