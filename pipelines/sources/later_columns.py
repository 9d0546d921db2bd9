"""Reads a slice with the columns that its source has been given since."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from pipelines.errors import SourceError

if TYPE_CHECKING:
    from pipelines.sources.positions import Slice

_STORED_AS = "delta.columnMapping.physicalName"
"""The entry of a column's metadata by which files name it, with column mapping."""

_appends: dict[tuple[str, str], range] = {}
"""A table's address and id -> the versions whose commits are known to append rows only."""


class _Log(Protocol):
    uri: str

    def fields(self, snapshot: Any) -> list[dict[str, Any]]:
        """The columns of a snapshot, in the log's form."""


def with_later_columns(
    log: _Log, taken: Slice, snapshot: Callable[[int], Any], newest: int, added: Callable[[int], object]
) -> Slice:
    """The slice, to be read with the newest columns if later commits only appended rows and added columns. Rules may
    name these columns already: an index for them could not tag the slice otherwise.

    log, newest: of the source, with its newest version; snapshot: gives that of a version; added: raises SourceError
    for a commit that did more than append rows.
    """
    version = taken.schema_version
    if not taken.files or version == newest:
        return taken
    if not _only_adds(log.fields(snapshot(version)), log.fields(snapshot(newest))):
        return taken
    only_appends = _only_appends((log.uri, taken.table_id), version, newest, added)
    return replace(taken, schema_version=newest) if only_appends else taken


def _only_appends(table: tuple[str, str], version: int, newest: int, added: Callable[[int], object]) -> bool:
    """Whether all commits after `version` only appended rows.

    Slices of one backlog ask this again and again, so that each commit is read once: the last one first.
    """
    known = _appends.get(table, range(0))
    if known.stop > newest + 1:  # the table is an older copy of what it was
        known = range(0)
    later = newest
    try:
        while later > version:
            if later in known:
                later = known.start - 1
            else:
                added(later)
                later -= 1
    except SourceError:
        return False
    finally:
        _appends[table] = range(later + 1, newest + 1)
    return True


def _only_adds(before: Sequence[Mapping[str, Any]], later: Sequence[Mapping[str, Any]]) -> bool:
    """Whether columns, in the log's form, are others, with those of `before` among them in any order, and likewise
    within structs. A file written with `before` then has the same values, and NULL in what it lacks.

    False with column mapping, by which a column may have had other names in between."""
    return list(before) != list(later) and not _is_mapped(later) and _holds(before, later)


def _holds(before: Sequence[Mapping[str, Any]], later: Sequence[Mapping[str, Any]]) -> bool:
    found = {field["name"]: field for field in later}
    return all(field["name"] in found and _type_holds(field["type"], found[field["name"]]["type"]) for field in before)


def _is_mapped(fields: Sequence[Mapping[str, Any]]) -> bool:
    return any(_STORED_AS in (field.get("metadata") or {}) for field in fields)


def _type_holds(before: Any, later: Any) -> bool:
    if isinstance(before, str) or isinstance(later, str) or before["type"] != later["type"]:
        return bool(before == later)
    if before["type"] == "struct":
        return _holds(before["fields"], later["fields"])
    parts = ("elementType",) if before["type"] == "array" else ("keyType", "valueType")
    return all(_type_holds(before[part], later[part]) for part in parts)
