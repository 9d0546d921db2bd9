"""A small lake in the working directory, as `deltatag init` makes it."""

from __future__ import annotations

import polars as pl

STREAM = '[streams.s]\nsource = "source"\nkey = ["id"]\n'


def rules(*rows: tuple) -> None:
    """Append rules: (rule_id, scope, expression)."""
    frame = pl.DataFrame(rows, ["rule_id", "scope", "expression"], orient="row")
    frame.write_delta("lake/rules", mode="append", delta_write_options={"schema_mode": "merge"})
