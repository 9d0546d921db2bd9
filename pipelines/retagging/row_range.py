"""The range of event times to which a re-tag may be limited."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pyarrow as pa

from pipelines.errors import ConfigurationError
from pipelines.scopes import Scope, StreamScope
from pipelines.sources.event_times import bounds
from rules_index.names import back_quoted
from rules_index.workers.retagged_rows import RowRange

if TYPE_CHECKING:
    from pyspark.sql import Column


def why_no_range(scope: Scope) -> str | None:
    """Why a scope can only be re-tagged as a whole, as a sentence; None if a range of its rows can be re-tagged."""
    as_a_whole = "and is re-tagged as a whole: leave --from and --to out."
    if not isinstance(scope, StreamScope):
        return f"{scope.name} is a join, {as_a_whole}"
    if scope.event_time is None:
        return f"{scope.name} has no event_time, which --from and --to are compared with."
    if scope.stream.output == "matched":
        return f'{scope.name} writes only matched rows (output = "matched"), {as_a_whole}'
    return None


def range_of(scope: Scope, since: str | None, until: str | None) -> RowRange | None:
    """The rows with event times from `since` on and before `until`, as given on the command line; None for all rows.

    ConfigurationError if the scope has no such range (`why_no_range`), or for what `bounds` refuses.
    """
    if since is None and until is None:
        return None
    if reason := why_no_range(scope):
        raise ConfigurationError(reason)
    assert isinstance(scope, StreamScope) and scope.event_time is not None
    wanted, zone = scope.event_time.lower(), ZoneInfo(scope.workspace.configuration.rules.time_zone)
    field = next(field for field in scope.columns() if field.name.lower() == wanted)
    low, high = (
        None if bound is None else pa.scalar(bound, field.type) for bound in bounds(since, until, field.type, zone)
    )
    return RowRange(field.name, low, high)


def in_range(rows: RowRange) -> Column:
    """A Spark column that is TRUE on the rows of a range, and else FALSE; never NULL."""
    from pyspark.sql import functions

    column, found = functions.col(back_quoted(rows.column)), functions.lit(True)
    for bound, is_low in ((rows.low, True), (rows.high, False)):
        if bound is None:
            continue
        kind = bound.type
        name = "date" if pa.types.is_date(kind) else "timestamp" if kind.tz is not None else "timestamp_ntz"
        value = functions.lit(bound.as_py().isoformat()).cast(name)
        found = found & (column >= value if is_low else column < value)
    return functions.coalesce(found, functions.lit(False))
