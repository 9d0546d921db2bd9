"""Sums and averages of decimals, with the types and the rounding that Spark gives them."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal

import polars as pl
import pyarrow as pa

from pipelines.local_sql.expressions import evaluable

LONGEST = 28
"""Maximum digits of decimals that are summed: with ten more, which Spark gives to a sum, it cannot overflow."""
LONGEST_IN_DOUBLES = 11
"""Maximum digits of decimals of which Spark computes the average in DOUBLEs."""
_CONTEXT = Context(prec=76, rounding=ROUND_HALF_UP)


def sums_of(digits: pl.Series, kind: pa.DataType) -> pa.Array:
    """Sums of decimals of the type `kind`. digits: the sums of their digits, without the point."""
    whole = digits.cast(pl.Decimal(38, 0)).to_arrow()
    summed = pa.decimal128(kind.precision + 10, kind.scale)
    return pa.Array.from_buffers(summed, len(whole), whole.buffers(), whole.null_count, whole.offset)


def means_of(sums: pa.ChunkedArray, counts: pa.ChunkedArray, kind: pa.DataType, zone: str) -> pa.Array:
    """Averages of decimals of the type `kind`, NULL where there are none: with four more digits behind the point.

    sums: as `sums_of` gives them; of short decimals, the sum of the digits must be exact as a DOUBLE.
    """
    mean = pa.decimal128(kind.precision + 4, kind.scale + 4)
    if kind.precision <= LONGEST_IN_DOUBLES:
        digits = pl.Series(pl.from_arrow(sums)).to_physical().cast(pl.Float64)
        rows = pl.DataFrame({"mean": digits / pl.Series(pl.from_arrow(counts)).cast(pl.Float64)}).to_arrow()
        text = f"CAST(mean / 1E{kind.scale}D AS DECIMAL({mean.precision}, {mean.scale}))"
        return evaluable(text, rows.schema, zone).values(rows)
    step = Decimal(1).scaleb(-mean.scale)
    found = [
        None if total is None else _CONTEXT.quantize(_CONTEXT.divide(total, Decimal(count)), step)
        for total, count in zip(sums.to_pylist(), counts.to_pylist(), strict=True)
    ]
    return pa.array(found, mean)
