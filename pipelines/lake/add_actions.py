"""The `add` actions of a table's version exactly as its log holds them, read without a JVM.

delta-rs gives statistics as columns; code that rewrites a file needs them in the log's own form. Delta protocol,
"Checkpoints" and "Action Reconciliation".
"""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from rules_index.names import path_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pipelines.lake.delta_log import DeltaLog
    from rules_index.implication.widening import ColumnRange, Widened

_MILLISECOND = timedelta(milliseconds=1)


def file_name(path: str) -> str:
    """The name of a file without its folders; unique within a table."""
    return PurePosixPath(unquote(path)).name


def live_files(log: DeltaLog, version: int) -> list[dict[str, Any]] | None:
    """The `add` actions of a version's files, oldest first.

    None if they cannot be reconstructed here: a checkpoint has sidecars or only parsed statistics, or a commit is gone.
    """
    first, table = log.checkpoint(version)
    live: dict[str, dict[str, Any]] = {}
    if table is not None:
        sidecars = table["sidecar"] if "sidecar" in table.column_names else None
        if "add" not in table.column_names or (sidecars is not None and sidecars.null_count < len(sidecars)):
            return None
        for add in table["add"].to_pylist():
            if add is not None:
                if not add.get("stats") and add.get("stats_parsed"):
                    return None
                live[add["path"]] = {**add, "partitionValues": dict(add["partitionValues"] or ())}
                live[add["path"]].pop("stats_parsed", None)
                tags = live[add["path"]].pop("tags", None)
                live[add["path"]] |= {"tags": dict(tags)} if tags else {}
    for number in range(first + 1, version + 1):
        actions = log.commit(number)
        if actions is None:
            return None
        for action in actions:
            if "add" in action:
                live[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                live.pop(action["remove"]["path"], None)
    return list(live.values())


def may_match(add: Mapping[str, Any], conditions: Iterable[Widened]) -> bool:
    """Whether, by its statistics, a file may have a row on which one of the conditions is TRUE."""
    found = json.loads(add.get("stats") or "{}")
    return any(
        all(_may_hold(found, each) for each in conjunction.ranges)
        for condition in conditions
        for conjunction in condition.conjunctions
    )


def may_hold(add: Mapping[str, Any], wanted: ColumnRange) -> bool:
    """Whether, by its statistics, a file may have a row with a value in a range."""
    return _may_hold(json.loads(add.get("stats") or "{}"), wanted)


def _may_hold(stats: Mapping[str, Any], wanted: ColumnRange) -> bool:
    path = path_parts(wanted.column)
    if len(path) > 1:
        return True
    nulls = stats.get("nullCount", {}).get(path[0])
    if wanted.null and nulls != 0:
        return True
    if not wanted.holds_values or (nulls is not None and nulls == stats.get("numRecords")):
        return False
    low, high = (stats.get(bound, {}).get(path[0]) for bound in ("minValues", "maxValues"))
    if wanted.low is not None and high is not None and _is_below(high, wanted.low):
        return False
    return not (wanted.high is not None and low is not None and _is_above(low, wanted.high))


def _is_below(bound: Any, value: Any) -> bool:
    """True if a file's maximum, as the log spells it, is certainly less than a value."""
    known = _as(bound, value)
    if isinstance(known, datetime):
        # the log truncates times to milliseconds; subtracting, unlike adding one, cannot exceed Python's last datetime
        return bool(value - known > _MILLISECOND)
    return known is not None and bool(known < value)


def _is_above(bound: Any, value: Any) -> bool:
    known = _as(bound, value)
    return known is not None and bool(known > value)


def _as(bound: Any, value: Any) -> Any:
    """A bound from the log, converted to the type of `value`; None if the two cannot be compared safely.

    Floating-point bounds leave out NaN, and strings are ordered by their bytes, so only ASCII ones are compared.
    """
    if isinstance(value, bool) or isinstance(bound, bool):
        return None
    if isinstance(value, int):
        return bound if isinstance(bound, int) else None
    if isinstance(value, str) and isinstance(bound, str):
        return bound if bound.isascii() and value.isascii() else None
    if not isinstance(bound, str):
        return None
    try:
        if isinstance(value, datetime):
            instant = datetime.fromisoformat(bound)
            if (value.tzinfo is None) != (instant.tzinfo is None):
                return None
            return instant
        if isinstance(value, date):
            return date.fromisoformat(bound)
    except ValueError:
        return None
    return None
