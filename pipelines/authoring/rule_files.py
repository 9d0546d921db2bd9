"""Reads and writes rules in files: CSV, YAML and JSON lines, as one DataFrame with the columns of `rules`.

In CSV an empty cell is NULL, labels are JSON, and a record without values is no rule. In YAML and JSON lines a rule is
a mapping. Timestamps are ISO 8601; one without an offset is in the configured time zone.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import yaml

from pipelines.authoring.csv_faults import fault_of, is_blank, line_of, repeated_name, separated_otherwise
from pipelines.authoring.versions import WHOLE_RULES
from pipelines.errors import PipelineError
from pipelines.lake.lake import arrow_schema
from pipelines.table_definitions import OPTIONAL_OF_RULES, RULES
from rules_index.names import did_you_mean

MOST_BYTES = 1 << 30
ALWAYS_THERE = tuple(column.name for column in RULES.columns)
"""The columns that every table of rules can have."""
_MOST_DEEP = 100
"""Maximum depth to which lists and mappings of YAML may be nested."""
_HEADER = "rule_id,scope,expression"
_TRUTHS = {"true": True, "false": False}


class RuleFileError(PipelineError):
    """A file of rules cannot be read; nothing was written."""


def read_rules_file(path: Path, id_type: str, zone: ZoneInfo, columns: Sequence[str] = ALWAYS_THERE) -> pl.DataFrame:
    """The rules of a file, with the columns of `rules` that it has. RuleFileError names the rule at fault.

    id_type: "string" or "bigint"; zone: of timestamps without an offset; columns: those that the table can have.
    """
    reader = _by_suffix(path, {".csv": _from_csv, ".yaml": _from_yaml, ".yml": _from_yaml, ".jsonl": _from_lines})
    text = read_text(path)
    rows = reader(path, text)
    schema = arrow_schema(WHOLE_RULES, id_type)
    present: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        for name in row:
            if name not in present:
                present[name] = _column(path, number, name, columns)
    names = list(dict.fromkeys(present.values()))
    if len(names) < len(present) and any(len({present[n] for n in row}) < len(row) for row in rows):
        raise RuleFileError(f"{path} gives a column twice: {', '.join(present)}.")
    typed = [
        {
            present[name]: _typed(path, text, number, schema.field(present[name]), value, zone)
            for name, value in row.items()
        }
        for number, row in enumerate(rows, 1)
    ]
    table = pa.Table.from_pylist(typed, pa.schema([schema.field(name) for name in names]))
    frame = pl.DataFrame(pl.from_arrow(table))
    for name in ("rule_id", "expression") if rows else ():
        if name not in frame.columns:
            raise RuleFileError(f"{path} has no column {name}, which every rule needs.")
        check_present(path, frame[name])
    return frame


def check_present(path: Path, column: pl.Series) -> None:
    """Raise RuleFileError if a rule has no value in a column."""
    place = column.is_null().arg_max() if column.null_count() else None
    if place is not None:
        raise RuleFileError(f"{path}, rule {place + 1}: it has no {column.name}, which every rule needs.")


def read_text(path: Path) -> str:
    """A file's text; RuleFileError if it cannot be read, is not UTF-8, or exceeds `MOST_BYTES`.

    Line breaks are kept, since quoted texts may contain some. Only if the first line has a carriage return, as in files
    written on Windows, do all line breaks become line feeds.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise RuleFileError(f"{path} has more than {MOST_BYTES >> 20:,} MiB; split it.")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise RuleFileError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise RuleFileError(f"{path} is not text in UTF-8; save it as UTF-8.") from None
    first_line = text.partition("\n")[0]
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in first_line else text


def write_rules_file(path: Path, rules: pa.Table) -> None:
    """Write rules with all their columns, in the given order; RuleFileError if the file cannot be written."""
    writer = _by_suffix(path, {".csv": _to_csv, ".yaml": _to_yaml, ".yml": _to_yaml, ".jsonl": _to_lines})
    rows = [{name: _plain(value) for name, value in row.items()} for row in rules.to_pylist()]
    written = path.with_name(f".{path.name}.part")
    try:
        written.write_text(writer(rows, rules.column_names), encoding="utf-8")
        written.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            written.unlink(missing_ok=True)
        raise RuleFileError(f"{path} cannot be written: {error.strerror}.") from None


def _by_suffix(path: Path, known: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    try:
        return known[path.suffix.lower()]
    except KeyError:
        raise RuleFileError(f"{path}: the name of a file of rules ends with .csv, .yaml, .yml or .jsonl.") from None


def _column(path: Path, number: int, name: object, columns: Sequence[str]) -> str:
    found = str(name).strip().lower()
    if found in columns:
        return found
    optional = next((column for column in OPTIONAL_OF_RULES if column.name == found), None)
    if optional is not None:
        raise RuleFileError(
            f"{path} has the column {found}, and the table rules has none; add it first: deltatag sql "
            f'"ALTER TABLE rules ADD COLUMN {found} {optional.type.upper()}"'
        )
    hint = did_you_mean(found, columns, f"; there are {', '.join(columns)}.")
    raise RuleFileError(f"{path}, rule {number}: there is no column {name!s:.60}{hint}")


def _typed(path: Path, text: str, number: int, column: pa.Field, value: Any, zone: ZoneInfo) -> Any:
    """A rule's value in the type of its column, whether the file has it as text or typed; RuleFileError if it has none.

    text: of the whole file, to name the line in the message.
    """
    name, kind = column.name, column.type
    try:
        if value is None:
            return None
        if pa.types.is_string(kind):
            return _text(value)
        if pa.types.is_boolean(kind):
            return value if isinstance(value, bool) else _TRUTHS[str(value).strip().lower()]
        if pa.types.is_integer(kind):
            whole = int(str(value).strip()) if not isinstance(value, (bool, float)) else _refuse()
            return whole if -(1 << kind.bit_width - 1) <= whole < 1 << kind.bit_width - 1 else _refuse()
        if pa.types.is_timestamp(kind):
            return _instant(datetime.fromisoformat(str(value).strip()), zone)
        labels = json.loads(value, object_pairs_hook=_unique) if isinstance(value, str) else value
        return [(_text(key), None if each is None else _text(each)) for key, each in labels.items()]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        line = line_of(text, number) if path.suffix.lower() == ".csv" else None
        place = f"rule {number}" if line is None else f"line {line}, rule {number}"
        raise RuleFileError(f"{path}, {place}: {name} is {value!r:.80}, and must be {_wanted(column)}.") from None


def _instant(time: datetime, zone: ZoneInfo) -> datetime:
    """A bound in UTC; the nearest one that Python has, if it is beyond the years 1 to 9999 there."""
    try:
        return (time if time.tzinfo else time.replace(tzinfo=zone)).astimezone(UTC)
    except OverflowError:
        return (datetime.max if time.year > 1 else datetime.min).replace(tzinfo=UTC)


def _wanted(column: pa.Field) -> str:
    """What a column holds, for people."""
    if pa.types.is_timestamp(column.type):
        return "a date or a time such as 2026-08-15 or 2026-08-15T00:00:00Z"
    if pa.types.is_integer(column.type):
        return f"a whole number of {column.type.bit_width} bits"
    if pa.types.is_boolean(column.type):
        return "true or false"
    return "a text" if pa.types.is_string(column.type) else 'a mapping of texts such as {"team": "fraud"}'


def _refuse() -> int:
    """Raise, within an expression, the error that `_typed` reports."""
    raise ValueError


def _text(value: Any) -> str:
    """A value as text; TypeError for one that is no scalar, UnicodeError for one that UTF-8 cannot encode."""
    if isinstance(value, (dict, list, set, bytes)):  # YAML has the last two
        raise TypeError
    text = json.dumps(value, allow_nan=False) if isinstance(value, (bool, float)) else str(value)
    text.encode()
    return text


def _plain(value: Any) -> Any:
    """A value as it is written to files."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return dict(value) if isinstance(value, list) else value


def _from_csv(path: Path, text: str) -> list[dict[str, Any]]:
    if not text.strip():
        return []
    if (separator := separated_otherwise(text)) is not None:
        raise RuleFileError(f"{path}: its columns are separated by {separator}, use commas.")
    if (name := repeated_name(text)) is not None:
        raise RuleFileError(f"{path}: its header line has the column {name} twice.")
    try:
        frame = pl.read_csv(io.StringIO(text), infer_schema=False, truncate_ragged_lines=False)
    except (pl.exceptions.PolarsError, ValueError) as error:
        fault = fault_of(text)
        if fault is not None:
            raise RuleFileError(f"{path}, {fault}") from None
        raise RuleFileError(
            f"{path} is not a CSV file with commas and a header line: {str(error).splitlines()[0]}"
        ) from None
    rows = [row for row in frame.to_dicts() if not is_blank(row.values())]
    if not rows and "rule_id" not in (name.strip().lower() for name in frame.columns):
        raise RuleFileError(f"{path}: its first line has no rule_id; begin with a header such as {_HEADER}.")
    return rows


def _to_csv(rows: list[dict[str, Any]], names: Sequence[str]) -> str:
    flat = [row | {"labels": None if row["labels"] is None else json.dumps(row["labels"])} for row in rows]
    texts = [{k: v if v is None or isinstance(v, str) else json.dumps(v) for k, v in row.items()} for row in flat]
    frame = pl.DataFrame(texts, schema=dict.fromkeys(names, pl.String), orient="row")
    return frame.write_csv(quote_style="non_numeric")


def _from_lines(path: Path, text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append(_mapping(path, len(rows) + 1, json.loads(line, object_pairs_hook=_unique)))
        except (ValueError, RecursionError) as error:
            reason = "it is nested too deep" if isinstance(error, RecursionError) else error
            raise RuleFileError(f"{path}, line {number} is not JSON: {reason}.") from None
    return rows


def _to_lines(rows: list[dict[str, Any]], _: Sequence[str]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml's takes a fifth of the time
    """Reads every scalar but null as text, so that `no`, 012 and 2026-01-01 stay as written."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in found if tag == "tag:yaml.org,2002:null"]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_scalar(self, node: Any) -> Any:
        """As in the base class, but a text that UTF-8 has no bytes for is an error."""
        value = super().construct_scalar(node)
        value.encode()
        return value

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """As in the base class, but a name that is given twice is an error."""
        names = [each.value for each, _ in node.value]
        if len(set(map(str, names))) < len(names):
            raise yaml.YAMLError(f"a name is given twice, line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)


def read_yaml_documents(path: Path, text: str) -> list[Any]:
    """The non-empty documents of a YAML text; all scalars but null are text. RuleFileError names the line at fault."""
    try:
        _check_events(text)
        return [each for each in yaml.load_all(text, _Loader) if each is not None]
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}," if mark is not None else ""
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        if isinstance(error, RecursionError):
            reason = "it is nested too deep"
        if mark is not None and "\t" in "".join(text.split("\n")[mark.line : mark.line + 1]):
            reason += " (the line has a tab; YAML is indented with blanks)"
        raise RuleFileError(f"{path}{where} is not a YAML file of rules: {reason}.") from None


def _check_events(text: str) -> None:
    """Raise YAMLError for aliases, a few lines of which can expand beyond all memory, and for a nesting on which
    libyaml would end the process."""
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MOST_DEEP:
            raise yaml.YAMLError("it is nested too deep")


def read_yaml(path: Path, text: str) -> Any:
    """The only document of a YAML text; None if there is none, RuleFileError if there are several."""
    found = read_yaml_documents(path, text)
    if len(found) > 1:
        raise RuleFileError(f"{path} has {len(found)} YAML documents; one is expected.")
    return found[0] if found else None


def _from_yaml(path: Path, text: str) -> list[dict[str, Any]]:
    found = read_yaml(path, text)
    if isinstance(found, dict) and set(found) == {"rules"}:
        found = found["rules"]
    if found is None:
        return []
    if not isinstance(found, list):
        raise RuleFileError(f"{path}: a file of rules is a list of mappings, or one under the name `rules`.")
    return [_mapping(path, number, each) for number, each in enumerate(found, 1)]


def _to_yaml(rows: list[dict[str, Any]], _: Sequence[str]) -> str:
    listed = [{name: _quoted(value) for name, value in row.items() if value is not None} for row in rows]
    text: str = yaml.dump(listed, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=120)
    return text


class _Quoted(str):
    """A text that is written in quotes."""


class _Dumper(yaml.SafeDumper):
    """Writes texts in double quotes, so that no reader takes them for another type."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always True: reading refuses aliases."""
        return True


_Dumper.add_representer(
    _Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"')
)


def _quoted(value: Any) -> Any:
    if isinstance(value, dict):
        return {_quoted(key): _quoted(each) for key, each in value.items()}
    return _Quoted(value) if isinstance(value, str) else value


def _mapping(path: Path, number: int, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RuleFileError(f"{path}, rule {number}: a rule is a mapping of columns to values, not {value!r:.60}.")
    return value
