"""Refuses to replace rows of a table that only takes new ones, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pipelines.errors import TableError

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake


def refuse_append_only(lake: Lake, names: Iterable[str], why: str) -> None:
    """TableError if one of these tables only takes new rows. why: what replaces rows, as in `a re-tag replaces`."""
    for name in filter(lake.exists, names):
        if (lake.delta(name).metadata().configuration.get("delta.appendOnly") or "").lower() == "true":
            raise TableError(
                f"The table {name} is append-only, and {why} rows of it. To allow that: deltatag sql "
                f"\"ALTER TABLE {name} SET TBLPROPERTIES ('delta.appendOnly' = 'false')\""
            )
