"""Value lists: the Delta tables of the lists that rules name, as in `account IN LIST('sanctioned')`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

import rules_index as ri
from pipelines.error_texts import first_line
from pipelines.errors import MissingTableError, PipelineError, SourceError
from pipelines.lake.added_files import files_in
from pipelines.lake.lake import open_delta, rows_in
from pipelines.lake.reading import arrow_reads, as_dataset, read_rows
from rules_index.domains.list_names import NAMES_ANY, names_in

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from pipelines.settings.model import Configuration, ListTable
    from rules_index.domains.value_lists import AnyList

LISTS = "lists"
"""Name of the column that `contents` returns."""
LEAST_EDITED = 100_000
"""Number of values from which a list is updated by the changes of its table; a shorter list is read as a whole."""
Versions = Mapping[str, Sequence[Any]]
"""For each list, by name, what its values depend on: table id, version, column and a digest of the version's files; or
why it has no values."""


@dataclass(frozen=True, slots=True)
class HeldLists:
    """The lists that an index holds, by name, and the versions of those with current values."""

    lists: Mapping[str, ri.ValueList]
    versions: Versions

    @classmethod
    def of(cls, compiled: ri.CompiledRules, versions: Versions) -> HeldLists:
        """The lists of an index whose rules were compiled with these versions.

        A list that none of its rules names now may have older values: where no rule changes by a version, the index
        stays as it is.
        """
        from rules_index.language.typed import lists_of

        named = {each.name for attribute in compiled.attributes for each in lists_of(attribute)}
        return cls(compiled.lists, {name: version for name, version in versions.items() if name in named})


def lists_named(configuration: Configuration, expressions: pl.Series) -> list[str]:
    """The configured lists that at least one expression names, ascending."""
    if not configuration.lists:
        return []
    texts = expressions.filter(expressions.str.contains(NAMES_ANY).fill_null(False))
    return sorted({name for text in texts.to_list() for name in names_in(text)} & set(configuration.lists))


def list_versions(configuration: Configuration, names: Iterable[str]) -> Versions:
    """The current versions of lists, without reading their values. Raises SourceError as `read_lists` does."""
    return {name: _opened(configuration.lists[name])[1] for name in names}


def read_lists(
    configuration: Configuration, expressions: pl.Series, held: HeldLists | None = None
) -> tuple[list[AnyList], Versions]:
    """The current lists that expressions name, and their versions.

    held: lists of an index. A list with an unchanged version is used again; a long one with another version is updated
    by the changes of its table. A list becomes a `MissingList` if it has no table, or if its column is missing or not
    comparable: then only the rules that name it are rejected. SourceError if a table exists but cannot be read: the
    index that was compiled before then stays in use.
    """
    from rules_index.domains.value_lists import MissingList

    lists: list[AnyList] = []
    versions: dict[str, Sequence[Any]] = {}
    for name in lists_named(configuration, expressions):
        found, versions[name] = _opened(configuration.lists[name])
        known = held.lists.get(name) if held is not None and held.versions.get(name) == versions[name] else None
        if isinstance(found, str):
            lists.append(MissingList(name, found))
        else:
            before = held.lists.get(name) if held is not None else None
            lists.append(known or _next(before, configuration.lists[name], *found))
    return lists, versions


class ListReader:
    """Reads the lists of several sets of rules, one after the other: a list that two of them name only once."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._held = HeldLists({}, {})

    def read(self, expressions: pl.Series) -> list[AnyList]:
        """The current lists that expressions name, as `read_lists` gives them. They are held until the next call."""
        lists, versions = read_lists(self._configuration, expressions, self._held)
        self._held = HeldLists({each.name: each for each in lists if isinstance(each, ri.ValueList)}, versions)
        return lists


def contents(rules: pl.DataFrame, lists: Iterable[AnyList]) -> pl.Series:
    """For each rule, the lists that it names with the digests of their values, as one text; NULL if it names none."""
    digests = {each.name: each.digest for each in lists}
    named = rules["expression"].str.contains(NAMES_ANY).to_list()
    named_digests = [
        ",".join(f"{name}={digests.get(name, '')}" for name in names_in(text)) if may else None
        for text, may in zip(rules["expression"].to_list(), named, strict=True)
    ]
    return pl.Series(LISTS, [each or None for each in named_digests], dtype=pl.String)


def _opened(wanted: ListTable) -> tuple[tuple[DeltaTable, str] | str, Sequence[Any]]:
    """A list's table and column, or the reason why it has none; and its version, see `Versions`."""
    statement = f"CREATE TABLE delta.`{wanted.source}` (value STRING) USING delta"
    how = f"Make it, for instance with: deltatag sql {quote(statement)}"
    try:
        table = open_delta(wanted.source, None, f"the table of the list {wanted.name}", how)
    except MissingTableError as error:
        return str(error), [str(error)]
    columns = [field.name for field in table.schema().fields]
    column = columns[0] if wanted.column is None and len(columns) == 1 else wanted.column
    shown = ", ".join(columns)
    if column is None:
        reason = (
            f"The table of the list {wanted.name} has the columns {shown}; name one as column in [lists.{wanted.name}]."
        )
        return reason, [reason]
    spelled = next((each for each in columns if each.lower() == column.lower()), None)
    if spelled is None:
        reason = f"The table of the list {wanted.name} has no column {column}; it has {shown}."
        return reason, [reason]
    return (table, spelled), json.loads(_stamp(table, spelled))


def _next(held: ri.ValueList | None, wanted: ListTable, table: DeltaTable, column: str) -> AnyList:
    """The current list: a long held one with the changes of its table applied, otherwise read as a whole."""
    found = _edited(held, wanted, table, column) if held is not None and held.count >= LEAST_EDITED else None
    return found or _read(wanted, table, column)


def _edited(held: ri.ValueList, wanted: ListTable, table: DeltaTable, column: str) -> ri.ValueList | None:
    """The held list with the changes of its table applied.

    None if it was read from another table or column, or from a version that the table no longer has, or if its changes
    cannot be found.
    """
    from pipelines.list_changes import changed_values
    from rules_index.domains.list_edits import edited

    stamp = _stamp(table, column)
    then, now = (json.loads(each or "[]") for each in (held.stamp, stamp))
    # an index of an earlier version of deltatag has no digest of the files
    if len(then) != len(now) or [then[0], then[2]] != [now[0], now[2]]:
        return None
    _, version, _, files = then
    if not _has_version(wanted, version, files):
        return None
    rows = rows_in(table)
    for changed in changed_values(table, wanted.source, column, version):
        found = edited(held, *changed, stamp)
        # other writers may leave their changes out of the feed: at least the number of rows must be right
        if found is not None and rows in (None, found.rows):
            return found
    return None


def _has_version(wanted: ListTable, version: int, files: str) -> bool:
    """Whether a version of a list's table still has these files: an older copy that was put in the table's place has
    the same id, and reuses the numbers of later versions."""
    try:
        return _files_digest(open_delta(wanted.source, version, "a list", "")) == files
    except PipelineError:
        return False


def _stamp(table: DeltaTable, column: str) -> str:
    """What a list was read from, as JSON: the table's id, its version, the column and a digest of its files."""
    return json.dumps([str(table.metadata().id), int(table.version()), column, _files_digest(table)])


def _files_digest(table: DeltaTable) -> str:
    """A digest of the names of a version's files, which no other version has."""
    return hashlib.sha256("\n".join(sorted(files_in(table)["path"].to_pylist())).encode()).hexdigest()[:16]


def _read(wanted: ListTable, table: DeltaTable, column: str) -> AnyList:
    from deltalake import exceptions

    from rules_index.domains.value_lists import MissingList

    try:
        read = as_dataset(table).to_table([column]) if arrow_reads(table) else read_rows(table, [column])
        values = read.column(0)
    except (exceptions.DeltaError, OSError, pa.ArrowException) as error:
        raise SourceError(f"The list {wanted.name} at {wanted.source} cannot be read: {first_line(error)}") from error
    try:
        return ri.value_list(wanted.name, values, _stamp(table, column))
    except ri.RulesIndexError as error:
        return MissingList(wanted.name, str(error))
