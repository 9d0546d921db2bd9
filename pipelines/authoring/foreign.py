"""Rules in other languages: the columns that their fields stand for, and the rules that are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa

from pipelines.authoring.rule_files import RuleFileError, read_text, read_yaml
from pipelines.lake.lake import arrow_schema
from pipelines.table_definitions import RULES
from rules_index.language.scope import path_of
from rules_index.names import back_quoted_path, column_key, field_key

FOREIGN_COLUMNS = ("rule_id", "scope", "expression", "priority", "labels", "owner", "description")
"""The columns of `rules` that rules of other languages have."""
UNREADABLE = "UNREADABLE"
"""The code of a file, or a part of it, whose rules cannot be read."""
_Content = TypeVar("_Content")


class RefusedError(Exception):
    """A part of a rule has no counterpart here: a code, and a sentence for people.

    position: the 0-based offset of the part at fault in the rule's text; None if it is unknown.
    """

    def __init__(self, error: str, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.error, self.message, self.position = error, message, position


@dataclass(slots=True)
class ForeignRules:
    """The rules of files in another language.

    rows: rows of `rules`; rejected: refused rules and files, and why; left_out: how many rules have another logsource
    than the mapping file's; origins: the file and the title of each row, by the rule's id.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    rejected: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0
    origins: dict[str, dict[str, str | None]] = field(default_factory=dict)

    @property
    def is_partial(self) -> bool:
        """Whether some file cannot be read, so that its rules are unknown."""
        return any(each["error"] == UNREADABLE for each in self.rejected)

    def frame(self, columns: tuple[str, ...]) -> pl.DataFrame:
        """The rows in these columns of `rules`."""
        schema = arrow_schema(RULES)
        kept = pa.schema([schema.field(name) for name in columns])
        return pl.DataFrame(pl.from_arrow(pa.Table.from_pylist(self.rows, kept)))

    def add(self, row: dict[str, Any], file: Path, title: str | None = None) -> None:
        """Add a rule of a file; one whose id is already there is refused."""
        rule_id = row["rule_id"]
        if rule_id in self.origins:
            message = f"A rule of {self.origins[rule_id]['file']} has the id {rule_id} too; every rule needs its own."
            self.refuse(rule_id, RefusedError("DUPLICATE_ID", message), file, title)
        else:
            self.rows.append(row)
            self.origins[rule_id] = {"file": str(file), "title": title}

    def refuse(self, rule_id: str, error: RefusedError, file: Path, title: str | None = None) -> None:
        """Record a refused rule of a file."""
        reject = {"rule_id": rule_id, "error": error.error, "message": error.message, "position": error.position}
        self.rejected.append(reject | {"file": str(file), "title": title})

    def contents(
        self, path: Path, suffixes: tuple[str, ...], read: Callable[[Path], _Content]
    ) -> Iterator[tuple[Path, _Content]]:
        """The file at `path`, or each file with one of the suffixes below that folder, with the result of `read`.

        A file of a folder that cannot be read is refused, and the others follow. RuleFileError if `path` itself cannot
        be read, or is a folder without such a file.
        """
        for file in files_in(path, suffixes):
            try:
                content = read(file)
            except RuleFileError as error:
                if file == path:
                    raise
                self.refuse(str(file), RefusedError(UNREADABLE, str(error)), file)
            else:
                yield file, content


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a field stands for: its name in SQL, and its type."""

    sql: str
    type: pa.DataType


class FieldMapping:
    """A mapping file: a YAML mapping with `fields`, the column of each field, and `logsource`, which selects rules.

    A field that the file does not name maps to the column of the same name, if there is one. RuleFileError for an
    unusable file.
    """

    def __init__(self, schema: pa.Schema, path: Path | None = None) -> None:
        document = read_yaml(path, read_text(path)) if path is not None else {}
        known = {"fields", "logsource"}
        if not isinstance(document, dict) or not set(document) <= known:
            raise RuleFileError(f"{path}: a mapping file has `fields`, and may have `logsource`, and nothing else.")
        fields, logsource = document.get("fields") or {}, document.get("logsource") or {}
        if not all(isinstance(each, dict) for each in (fields, logsource)):
            raise RuleFileError(f"{path}: `fields` and `logsource` are mappings of names to names.")
        self.schema, self.path = schema, path
        self.logsource = {str(key): str(value) for key, value in logsource.items()}
        self._columns = {str(name): self._column(str(name), value) for name, value in fields.items()}

    def column(self, name: str) -> Column:
        """The column of a field; RefusedError if there is none."""
        if name in self._columns:
            return self._columns[name]
        found = _find(self.schema, name)
        if found is None:
            where = f"the file {self.path}" if self.path is not None else "a file given with --mapping"
            message = f"The field {name} is not a column of the scope; name its column in {where}, under `fields`."
            raise RefusedError("UNMAPPED_FIELD", message)
        return found

    def has(self, name: str) -> bool:
        """Whether a field has a column."""
        return name in self._columns or _find(self.schema, name) is not None

    def _column(self, name: str, value: Any) -> Column:
        found = _find(self.schema, str(value)) if isinstance(value, str) else None
        if found is None:
            raise RuleFileError(
                f"{self.path}: the field {name} is mapped to {value!r}, and the scope has no such column."
            )
        return found


def _find(schema: pa.Schema, name: str) -> Column | None:
    """A column by its name, or a field of a struct by its path; None if there is none, or several."""
    whole = [each for each in schema if column_key(each.name) == column_key(name)]
    if len(whole) == 1:
        return Column(back_quoted_path(path_of([whole[0].name])), whole[0].type)
    first, *rest = name.split(".")
    found = [each for each in schema if column_key(each.name) == column_key(first)]
    path = [found[0].name] if len(found) == 1 else []
    for part in rest:
        struct = found[0].type if len(found) == 1 else None
        if struct is None or not pa.types.is_struct(struct):
            return None
        found = [each for each in struct if field_key(each.name) == field_key(part)]
        path += [each.name for each in found]
    if len(found) != 1:
        return None
    return Column(back_quoted_path(path_of(path)), found[0].type)


def files_in(path: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """A file, or the files below a folder with one of the suffixes, sorted; RuleFileError if there is none.

    They include broken links: reading one fails, so that the rules of the missing file do not count as removed.
    """
    if not path.is_dir():
        yield path
        return
    named = (each for each in path.rglob("*") if each.suffix.lower() in suffixes)
    found = sorted(each for each in named if each.is_file() or (each.is_symlink() and not each.exists()))
    if not found:
        raise RuleFileError(f"{path} has no file whose name ends with {' or '.join(suffixes)}.")
    yield from found


def shortened(values: Mapping[str, Any]) -> dict[str, str]:
    """Labels as texts; those without a value are left out."""
    return {key: str(value) for key, value in values.items() if value not in (None, "", [], {})}
