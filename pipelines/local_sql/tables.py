"""Reads the table that a statement names, without Spark, if the rows are then the same."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any

import pyarrow as pa

import rules_index as ri
from pipelines.error_texts import why_denied
from pipelines.errors import AccessError, MissingTableError, NeedsSparkError, PipelineError, StatementError
from pipelines.lake.add_actions import may_match
from pipelines.lake.column_types import OPAQUE, arrow_schema_of, is_opaque
from pipelines.lake.table_cache import local_folder
from pipelines.lake.table_log import table_log
from pipelines.lake.table_names import source_of, table_names
from pipelines.local_sql.condition import Condition
from pipelines.local_sql.expressions import Evaluable, evaluable, unqualified
from pipelines.local_sql.lateral_view import Exploded, lengths, pieces
from pipelines.local_sql.reader import NO_NAMES
from pipelines.local_sql.row_groups import bytes_to_read, files_to_read
from pipelines.local_sql.syntax import Computed, LateralView, Path, TableName
from pipelines.settings.configuration import is_catalog_name
from pipelines.settings.streams_over_streams import no_source
from pipelines.sources.first_rows import field_in
from pipelines.sources.readable_features import READABLE, READABLE_HERE, foreign_features
from pipelines.table_definitions import scope_tables
from pipelines.workspace import Workspace
from rules_index.domains.value_lists import ValueList
from rules_index.errors import RuleError
from rules_index.language.typed import Expression, Leaf
from rules_index.names import column_key, did_you_mean, field_key, path_parts, spelled
from rules_index.workers.source_file_reader import SourceFile, UnreadableFileError, read_batches

MOST_BYTES = 1 << 30
"""Maximum bytes of files that a statement reads here; larger tables are left to Spark's parallel tasks."""
_ALL = 1 << 62
_PLAIN_NAME = re.compile(r"[A-Za-z]\w*(?!\s*[.(\w])")
"""A name that Spark could only read as a column: it begins with a letter, unlike `_metadata`, and has no table before
it."""
_SPARK_SETTINGS = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
"""Environment variables that give Spark settings."""


class LocalTable:
    """A version of a table; NeedsSparkError if only Spark can read it, or edit it if `edited`; StatementError if there
    is none; AccessError if this user may not read it.

    aliases: other names that the statement may use like a column's.
    """

    def __init__(self, workspace: Workspace, name: TableName, edited: bool = False) -> None:
        self._begin(name, workspace.configuration.rules.time_zone, _has_no_catalog(workspace))
        uri = _place(workspace, name)
        self.log = table_log(uri, bounds=True)
        try:
            self.snapshot = self.log.latest() if name.version is None else self.log.snapshot(name.version)
        except AccessError:
            raise
        except PipelineError as error:
            raise NeedsSparkError(str(error)) from error
        if self.snapshot.number < 0:
            if is_catalog_name(uri) or local_folder(uri) is None:
                raise NeedsSparkError("there is no such table")
            if name.is_path:
                if "@" in uri or any((parent / "_delta_log").is_dir() for parent in FilePath(uri).parents):
                    raise NeedsSparkError("the path may name a version of a table, or a part of one")
                raise StatementError(f"There is no Delta table in the folder {uri}.")
            raise StatementError(why_missing(workspace, known_name(workspace, name)))
        if foreign := foreign_features(self.snapshot, READABLE if edited else READABLE_HERE):
            raise NeedsSparkError(f"the table has the feature {foreign[0]}")

    def _begin(self, name: TableName, zone: str, is_sure: bool) -> None:
        """is_sure: whether Spark would know no more names than deltatag does."""
        self.name, self.zone, self._is_sure = name, zone, is_sure
        self.aliases: tuple[str, ...] = ()
        self._lists: tuple[ValueList, ...] = ()
        self._fields: dict[str, Path] = {}
        self._computed: dict[str, Evaluable] = {}
        self._keys_of_texts: dict[str, str] = {}
        self._keys_of_trees: dict[Expression, str] = {}
        self._exploded: list[Exploded] = []

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """The table's columns."""
        return arrow_schema_of(self.snapshot.fields)

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, and those of its exploded columns."""
        return self._schema if self._exploded else self.stored_schema

    def explode(self, view: LateralView) -> None:
        """Explode a column. Raises what `column` raises; NeedsSparkError if only Spark can, or if the name of a new
        column could mean another one."""
        key = self._key_of_path(view.path)
        others = [*self.schema.names, self.name.qualifier or ""]
        is_clear = all(_PLAIN_NAME.fullmatch(name) and not _is_among(name, others) for name in view.names)
        if not is_clear or len(set(map(column_key, view.names))) < len(view.names):
            raise NeedsSparkError(f"{' or '.join(view.names)} may name several columns")
        exploded = Exploded.of(key, self.type_of(key), view.names)
        self._schema = pa.schema([*self.schema, *exploded.fields])
        self._exploded.append(exploded)

    def use_lists(self, lists: tuple[ValueList, ...]) -> None:
        """Let conditions name these value lists."""
        self._lists = lists

    def all_columns(self) -> list[Path]:
        """What `*` stands for."""
        return [(name,) for name in self.schema.names]

    def column(self, name: str) -> str:
        """A column's name in the table's spelling. StatementError if there is none; NeedsSparkError if Spark might find
        one."""
        names = self.schema.names
        found = spelled(names, name, column_key)
        if found is not None:
            return found
        others = {column_key(each) for each in (*names, *self.aliases)}
        if not self._is_sure or not _PLAIN_NAME.fullmatch(name) or column_key(name) in others:
            raise NeedsSparkError(f"the table has no column {name}")
        hint = did_you_mean(name, names, f"; its columns are: {', '.join(names)}.")
        raise StatementError(f"The table {self.name.name} has no column {name}{hint}")

    def key_of(self, value: Path | Computed) -> str:
        """The key of a column, its name, or of a field within it or an expression, for `type_of` and `batches`.

        Raises what `column` raises. Equal expressions have the same key.
        """
        if not isinstance(value, Computed):
            return self._key_of_path(value)
        if value.text not in self._keys_of_texts:
            self._keys_of_texts[value.text] = self._key_of_expression(value.text)
        return self._keys_of_texts[value.text]

    def _key_of_expression(self, text: str) -> str:
        text = self.unqualified(text)
        try:
            found = evaluable(text, self.schema, self.zone)
        except RuleError as error:
            name = _PLAIN_NAME.match(text, error.position or 0)
            known = [*NO_NAMES, *self.aliases]
            if name and error.error == "UNKNOWN_COLUMN" and self._is_sure and not _is_among(name[0], known):
                raise StatementError(f"{error.message} This is about the table {self.name.name}.") from error
            raise
        if isinstance(found.tree, Leaf):
            return self._key_of_path(tuple(path_parts(found.tree.name)))
        key = self._keys_of_trees.setdefault(found.tree, f"\2{len(self._computed)}")
        if key in self.schema.names:
            raise NeedsSparkError(f"the name of the column {key!r} is odd")
        self._computed.setdefault(key, found)
        return key

    def is_constant(self, key: str) -> bool:
        """True for an expression that reads no column."""
        return key in self._computed and not self._computed[key].inputs

    def _key_of_path(self, parts: Path) -> str:
        parts = self.unqualified_path(parts)
        name = self.column(parts[0]) if len(parts) == 1 else spelled(self.schema.names, parts[0], column_key)
        if name is None:
            raise NeedsSparkError(f"{parts[0]} may be the name of a table")
        found, kind = [name], self.schema.field(name).type
        for part in parts[1:]:
            field = spelled(kind.names, part, field_key) if pa.types.is_struct(kind) else None
            if field is None:
                raise NeedsSparkError(f"{'.'.join(found)} has no field {part}")
            found.append(field)
            kind = kind.field(field).type
        key = "\1".join(found)
        if len(found) > 1 and key in self.schema.names:
            raise NeedsSparkError(f"the name of the column {key!r} is odd")
        self._fields[key] = tuple(found)
        return key

    def unqualified_path(self, parts: Path) -> Path:
        """The path without the table's name. NeedsSparkError if that is also the name of a column."""
        qualifier = column_key(self.name.qualifier or "")
        if len(parts) < 2 or qualifier not in map(column_key, parts[:-1]):
            return parts
        if column_key(parts[0]) != qualifier or spelled(self.schema.names, parts[0], column_key) is not None:
            raise NeedsSparkError(f"{self.name.qualifier} is the name of the table and of something else")
        if self._exploded and not _is_among(parts[1], self.stored_schema.names):
            raise NeedsSparkError(f"{parts[1]} is no column of {self.name.qualifier}")
        return parts[1:]

    def shown_path(self, parts: Path) -> Path:
        """The path of a column as Spark shows it in the name of an aggregate."""
        return parts

    def is_qualifier(self, parts: Path) -> bool:
        """True for the table's name, if no column has it."""
        qualifier = column_key(self.name.qualifier or "")
        return len(parts) == 1 and column_key(parts[0]) == qualifier and not self.has_column(parts[0])

    def has_column(self, name: str) -> bool:
        """True if a column has this name in any spelling."""
        return _is_among(name, self.schema.names)

    def unqualified(self, text: str) -> str:
        """The text of an expression without the table's name. NeedsSparkError if that is also a column's."""
        if self.name.qualifier is None:
            return text
        found = unqualified(text, self.name.qualifier, self.schema.names)
        if self._exploded and found != text:
            raise NeedsSparkError(f"it names {self.name.qualifier} beside an exploded column")
        return found

    def fields_of(self, parts: Path) -> list[Path]:
        """The paths of all fields of a STRUCT. Raises what `column` raises."""
        kind = self.type_of(self._key_of_path(parts))
        if not pa.types.is_struct(kind) or column_key(self.name.qualifier or "") == column_key(parts[-1]):
            raise NeedsSparkError(f"{parts[-1]} is no STRUCT")
        return [(*parts, name) for name in kind.names]

    def type_of(self, key: str) -> pa.DataType:
        """The type of the column, field or expression with a key."""
        if key in self._computed:
            return self._computed[key].tree.type
        name, *fields = self._fields.get(key, (key,))
        kind = self.schema.field(name).type
        for field in fields:
            kind = kind.field(field).type
        return kind

    @property
    def plainest_column(self) -> str:
        """A column that is cheap to read: the first one without a nested type, if there is one."""
        columns = self.stored_schema
        plain = (field.name for field in columns if not pa.types.is_nested(field.type) and field.type != OPAQUE)
        return next(plain, columns.names[0])

    def condition(self, text: str | None) -> Condition | None:
        """The compiled condition of a WHERE; None without one. NeedsSparkError if only Spark evaluates it,
        StatementError if it names a column that the table does not have."""
        if text is None:
            return None
        text = self.unqualified(text)
        compiled = ri.compile_rules([(0, text)], self.schema, "scan", time_zone=self.zone, lists=self._lists)
        for reject in compiled.rejects.to_pylist() if self._is_sure else ():
            if reject["error"] == "UNKNOWN_COLUMN" and _PLAIN_NAME.match(text, reject["position"]):
                raise StatementError(f"{reject['message']} This is about the table {self.name.name}.")
        if len(compiled) != 1 or compiled.derived:
            raise NeedsSparkError(f"only Spark evaluates {text}")
        found = Condition(compiled)
        if self._exploded and found.may_raise:
            raise NeedsSparkError("the condition may raise on a row without elements")
        return found

    def batches(self, columns: Sequence[str], kept: Condition | None, most_rows: int = _ALL) -> Iterator[pa.Table]:
        """Yields at most `most_rows` rows that satisfy `kept`, with the columns of these keys; none is
        dictionary-encoded. AccessError if this user may not read a file."""
        shown = pa.schema([pa.field(key, self.type_of(key)) for key in columns])
        asked = [path for key in columns for path in self._paths_of(key)]
        asked += kept.paths if kept is not None else ()
        asked += [path for each in self._exploded for path in self._paths_of(each.key)]
        left = most_rows
        try:
            for rows in self._exploded_rows(asked, kept, kept is not None or left == _ALL) if left else ():
                rows = rows if kept is None else rows.filter(pa.array(kept.holds_on(rows)))
                rows = rows.slice(0, left)
                left -= rows.num_rows
                yield pa.Table.from_arrays([self._values(rows, key) for key in columns], names=shown.names).cast(shown)
                if not left:
                    return
        except (OSError, pa.ArrowException, UnreadableFileError) as error:
            if reason := why_denied(error):
                raise AccessError(f"The table {self.name.name} cannot be read: {reason}.") from error
            raise NeedsSparkError(str(error)) from error

    def _stored_rows(self, asked: Sequence[Path], kept: Condition | None, needs_all: bool) -> Iterator[pa.Table]:
        """Yields the table's rows with the columns that are asked for; rows that do not satisfy `kept` may be left out.

        needs_all: whether all rows will be read.
        """
        wanted = {self.column(path[0]) for path in asked if not self._is_new(path[0])}
        # a batch without columns would not know its number of rows
        read = [name for name in self.stored_schema.names if name in wanted] or [self.plainest_column]
        for name in read:
            if is_opaque(self.schema.field(name).type):
                raise NeedsSparkError(f"only Spark reads the column {name}")
        for batch in read_batches(self._files(kept, needs_all), self.stored_schema, read, with_version=False):
            yield pa.Table.from_batches([batch])

    def _exploded_rows(self, asked: Sequence[Path], kept: Condition | None, needs_all: bool) -> Iterator[pa.Table]:
        """Like `_stored_rows`, with the columns that LATERAL VIEW adds."""
        for stored in self._stored_rows(asked, kept, needs_all):
            counts = [lengths(each.lists(self._values(stored, each.key))) for each in self._exploded]
            for rows in pieces(stored, counts) if counts else (stored,):
                for each in self._exploded:
                    rows = each.rows(rows, self._values(rows, each.key))
                yield rows

    def _is_new(self, name: str) -> bool:
        """Whether a column comes from an exploded one."""
        return any(_is_among(name, [field.name for field in each.fields]) for each in self._exploded)

    def _paths_of(self, key: str) -> list[Path]:
        """The columns, or fields of columns, from which the value of a key is made."""
        return self._computed[key].paths if key in self._computed else [self._fields.get(key, (key,))]

    def _values(self, rows: pa.Table, key: str) -> pa.ChunkedArray | pa.Array:
        if key in self._computed:
            return self._computed[key].values(rows)
        name, *fields = self._fields.get(key, (key,))
        return field_in(rows.column(name), tuple(fields))

    def bytes_of(self, kept: Condition | None) -> float:
        """About the bytes of the files, or row groups of files, that may have rows which satisfy `kept`."""
        return bytes_to_read(self.log, self._adds(kept), self.stored_schema, _pruning(kept))

    def _adds(self, kept: Condition | None) -> list[dict[str, Any]]:
        adds, pruning = self.log.files(self.snapshot), _pruning(kept)
        return adds if pruning is None else [add for add in adds if may_match(add, [pruning.widened])]

    def _files(self, kept: Condition | None, needs_all: bool) -> list[SourceFile]:
        most = MOST_BYTES if needs_all else _ALL
        return files_to_read(self.log, self._adds(kept), self.stored_schema, _pruning(kept), most)


def _pruning(kept: Condition | None) -> Condition | None:
    """The condition by which files and row groups may be skipped; none if Spark must report what it raises."""
    return None if kept is None or kept.may_raise else kept


def _is_among(name: str, names: Iterable[str]) -> bool:
    return column_key(name) in map(column_key, names)


def _place(workspace: Workspace, name: TableName) -> str:
    if name.is_path:
        return name.name
    known = known_name(workspace, name)
    return source_of(workspace.configuration, known) or workspace.lake.uri(known)


def known_name(workspace: Workspace, name: TableName) -> str:
    """A table's name as the configuration spells it. StatementError if there is none; NeedsSparkError if Spark might
    find one."""
    names = table_names(workspace.configuration)
    known = next((each for each in names if each.lower() == name.name.lower()), None)
    if known is None and _has_no_catalog(workspace):
        hint = did_you_mean(name.name, names)
        raise StatementError(f"There is no table {name.name}{hint} Tables that have a name are: {', '.join(names)}.")
    if known is None:
        raise NeedsSparkError("there is no such table")
    return known


def _has_no_catalog(workspace: Workspace) -> bool:
    """Whether a session of Spark would know the same names: no setting adds a catalog, or columns to tables."""
    return not workspace.configuration.spark and not any(map(os.environ.get, _SPARK_SETTINGS))


def why_missing(workspace: Workspace, name: str) -> str:
    """A sentence about a table that has a name but does not exist: where it should be, or what makes it."""
    stream = workspace.configuration.streams.get(name)
    if stream is not None:
        return no_source(name, stream.source, None)
    if name in workspace.configuration.lists:
        return f"The list {name} has no table yet: there is none at {workspace.configuration.lists[name].source}."
    for join in workspace.configuration.joins:
        if name in scope_tables(join, is_join=True):
            return f"There is no table {name} yet. It is made by the first run of: deltatag join {join}"
    try:
        workspace.lake.delta(name)
    except MissingTableError as error:
        return str(error)
    return f"There is no table {name}."
