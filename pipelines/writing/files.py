"""The files of a micro-batch's tables: their layout, and the results of the workers that write them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from pipelines.errors import TableError
from pipelines.lake.column_types import (
    ARROW_ID_TYPES,
    CHAR_TYPE,
    arrow_schema_of,
    common_fields,
    is_opaque,
    nullable,
    plain_fields,
    same_fields,
)
from pipelines.lake.table_cache import local_folder
from pipelines.table_definitions import is_matches, matches_keys, matches_table, tagged_table
from pipelines.writing.table_order import STATISTICS, is_partition_type
from rules_index.workers.delta_file_writer import Layout, remove_files

if TYPE_CHECKING:
    from pipelines.lake.index_store import StoredIndex
    from pipelines.lake.lake import Lake
    from pipelines.lake.runs import MicroBatch
    from rules_index.workers.task import Task

_FEATURES = {
    "appendOnly",
    "changeDataFeed",
    "clustering",
    "deletionVectors",
    "domainMetadata",
    "inCommitTimestamp",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
"""Table features that require nothing of appended files."""
_NAME = itemgetter("name")
_COLUMN = re.compile(r"[^,`]+")
_NEWEST_LEGACY_WRITER = 6
_SETTINGS = ("delta.constraints.", "delta.columnMapping.", "delta.enableIceberg", "delta.universalFormat.")
"""Prefixes of table properties that require more of files than this module supports."""


@dataclass(frozen=True)
class FilesWritten:
    """The results of the workers: `add` actions (JSON) by the task's names of tables, and the micro-batch's figures."""

    entries: Mapping[str, list[str]]
    figures: dict[str, Any]


def folder_of(lake: Lake, name: str) -> str | None:
    """The folder of a table in a file system; None for one in an object store or a catalog."""
    return None if lake.settings.root is None else local_folder(lake.uri(name))


def layout_of(lake: Lake, name: str, wanted: Sequence[Mapping[str, Any]]) -> Layout | None:
    """The layout of the table's files with the `wanted` columns; None if the table lacks one of them, or requires more
    of its files than rows.

    The order of columns may differ: one that the source was given later comes after deltatag's own. Files leave out
    what else the table has, so that it is NULL: annotations that were configured once, or what the source had.
    """
    if any(is_opaque(field.type) for field in arrow_schema_of(wanted)):
        return None
    found = _plain_table(lake, name)
    if found is None:
        return None
    held, metadata = found
    written = common_fields(held, wanted)
    names = tuple(map(_NAME, written))
    known = (
        same_fields(sorted(written, key=_NAME), sorted(wanted, key=_NAME))
        and all(f["nullable"] and f["type"] == p["type"] for f, p in zip(held, plain_fields(held), strict=True))
        and all(_may_be_left_out(field) for field in held if field["name"] not in names)
        and all(is_partition_type(each["type"]) for each in written if each["name"] in metadata.partition_columns)
        and set(metadata.partition_columns) <= set(names)
        and not (is_matches(name) and metadata.partition_columns)
    )
    if not known:
        return None
    return Layout(
        tuple(metadata.partition_columns),
        "rule_id" if is_matches(name) else None,
        _indexed(metadata),
        () if names == tuple(map(_NAME, wanted)) else names,
    )


def joined_layout_of(lake: Lake, name: str, wanted: Sequence[Mapping[str, Any]]) -> Layout | None:
    """Like `layout_of`, for a join's table, whose nested fields may have comments."""
    found = _plain_table(lake, name)
    if found is None or found[1].partition_columns:
        return None
    held, written, asked = (arrow_schema_of(fields) for fields in (found[0], common_fields(found[0], wanted), wanted))
    known = (
        held == nullable(held)
        and written == nullable(asked)
        and not any(is_opaque(field.type) for field in held)
        and all(_may_be_left_out(field) for field in found[0] if field["name"] not in written.names)
    )
    return Layout(indexed=_indexed(found[1])) if known else None


def _may_be_left_out(field: Mapping[str, Any]) -> bool:
    """Whether Delta allows files without a column that may be NULL: one with a default or an expression has a value."""
    return set(field.get("metadata") or {}) <= {"comment", CHAR_TYPE}


def _plain_table(lake: Lake, name: str) -> tuple[list[dict[str, Any]], Any] | None:
    """A table's columns and metadata; None if it requires more of its files than rows, or cannot be read."""
    try:
        table = lake.delta(name)
        metadata, protocol = table.metadata(), table.protocol()
        held = json.loads(table.schema().to_json())["fields"]
    except TableError:
        return None
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    known = (
        features <= _FEATURES
        and (bool(protocol.writer_features) or protocol.min_writer_version <= _NEWEST_LEGACY_WRITER)
        and not any(key.startswith(_SETTINGS) for key in metadata.configuration)
    )
    return (held, metadata) if known else None


def _indexed(metadata: Any) -> frozenset[str] | None:
    """The columns whose minimum and maximum the log is to hold; None if the table does not say."""
    indexed = metadata.configuration.get(STATISTICS)
    return None if indexed is None else frozenset(_COLUMN.findall(indexed))


def task_of(
    batch: MicroBatch,
    index: StoredIndex,
    columns: Sequence[str],
    folders: Mapping[str, str],
    layouts: Mapping[str, Layout],
    codec: str,
    footer: Mapping[str, str],
) -> Task:
    """The task of writing the rows of a planned micro-batch.

    columns: the source's; folders: those of tables that do not hold the micro-batch yet, by `tagged` and `matches`.
    """
    from rules_index.workers.task import Task

    spelled = {name.lower(): name for name in columns}
    return Task(
        id_type=ARROW_ID_TYPES[batch.plan["id_type"]],
        columns=tuple(columns),
        keys=tuple(spelled[key.lower()] for key in matches_keys(batch.plan["key"], batch.plan["event_time"])),
        stamps={
            "rules_version": pa.scalar(index.rules_version, pa.int64()),
            "index_fingerprint": pa.scalar(index.fingerprint),
            "tagged_at": pa.scalar(batch.started_at, pa.timestamp("us", "UTC")),
        },
        only_matched=batch.plan["output"] == "matched",
        codec=codec,
        footer=footer,
        folders=folders,
        layouts={kind: layouts[kind] for kind in folders},
    )


def tables_of(scope: str, plan: Mapping[str, Any]) -> dict[str, str]:
    """The names of a stream's tables of tagged rows and matches that a plan keeps, by `matches` and `tagged`."""
    matches = {"matches": matches_table(scope)} if plan["matches"] else {}
    return {**matches, "tagged": tagged_table(scope)}


def combined_results(results: Iterable[Mapping[str, str]], task: Task) -> FilesWritten:
    """The combined results of a micro-batch's pieces, from the rows that `tagged_files.write_files` gives; TableError
    if a file that a worker wrote is not visible here."""
    entries: dict[str, list[str]] = {name: [] for name in task.folders}
    figures: dict[str, Any] = {"rows": 0, "matches": 0, "errors": {}}
    for row in results:
        if row["entry"]:
            entries[row["name"]].append(row["entry"])
            continue
        found = json.loads(row["figures"])
        figures["rows"] += found["rows"]
        figures["matches"] += found["matches"]
        for rule, rows in found["errors"]:
            figures["errors"][str(rule)] = figures["errors"].get(str(rule), 0) + rows
    for name, texts in entries.items():
        for text in texts:
            path = Path(task.folders[name]) / unquote(json.loads(text)["add"]["path"])
            if not path.is_file():
                raise TableError(
                    f"A worker wrote {path}, and the driver cannot see it. The folder of [lake] root must be the same "
                    "on all machines of the cluster."
                )
    return FilesWritten(entries, figures)


def discard(task: Task, entries: Mapping[str, list[str]]) -> None:
    """Delete written files that will not be committed."""
    for name, texts in entries.items():
        remove_files(task.folders[name], (json.loads(text)["add"] for text in texts))
