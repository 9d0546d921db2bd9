"""Reads a slice with the columns that its source has been given since."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pipelines.errors import SourceError

if TYPE_CHECKING:
    from pipelines.sources.positions import Slice

_STORED_AS = "delta.columnMapping.physicalName"
"""The entry of a column's metadata by which files name it, with column mapping."""


class _Later(NamedTuple):
    """What is known of a table's newest commits.

    appends: the versions, up to the newest, whose commits only appended rows and added columns; altered: the last of
    them whose commit changed the columns or the protocol, -1 if none did.
    """

    appends: range
    altered: int


_NOTHING = _Later(range(0), -1)
_known: dict[tuple[str, str], _Later] = {}
"""By a table's address and id."""


class _Log(Protocol):
    uri: str

    def fields(self, snapshot: Any) -> list[dict[str, Any]]:
        """The columns of a snapshot, in the log's form."""


def with_later_columns(
    log: _Log,
    taken: Slice,
    snapshot: Callable[[int], Any],
    newest: int,
    appended: Callable[[int], Sequence[Mapping[str, Any]]],
) -> Slice:
    """The slice, to be read with the newest columns if later commits only appended rows and added columns. Rules may
    name these columns already: an index for them could not tag the slice otherwise.

    log, newest: of the source, with its newest version; snapshot: gives that of a version, for which the log is read
    from its last checkpoint on; appended: gives the actions of a commit, SourceError if it did more than append rows
    and add columns.
    """
    version = taken.schema_version
    if not taken.files or version == newest:
        return taken
    later = _later_commits((log.uri, taken.table_id), version, newest, appended)
    if later.appends.start > version + 1:
        return taken
    if later.altered > version and not _only_adds(log.fields(snapshot(version)), log.fields(snapshot(newest))):
        return taken
    return replace(taken, schema_version=newest)


def _later_commits(
    table: tuple[str, str], version: int, newest: int, appended: Callable[[int], Sequence[Mapping[str, Any]]]
) -> _Later:
    """What the commits after `version` did. `appends` begins after the next one if one of them did more than append.

    Slices of one backlog ask this again and again, so that each commit is read once: the last one first.
    """
    known = _known.get(table, _NOTHING)
    if known.appends.stop > newest + 1:  # the table is an older copy of what it was
        known = _NOTHING
    commit, altered = newest, -1
    try:
        while commit > version:
            if commit in known.appends:
                commit, altered = known.appends.start - 1, max(altered, known.altered)
            else:
                is_altered = any("metaData" in action or "protocol" in action for action in appended(commit))
                altered = max(altered, commit if is_altered else -1)
                commit -= 1
    except SourceError:
        pass
    _known[table] = _Later(range(commit + 1, newest + 1), altered)
    return _known[table]


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
