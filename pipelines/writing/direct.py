"""Tagged rows and matches written by the workers that match them, where their tables are as deltatag made them.

Spark's own writer takes every row apart twice more, which costs more than matching it. It stays the way for tables
that are elsewhere than in a folder, or that have column mapping, constraints, other columns and the like.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark.sql.types import StructType

from pipelines.errors import TableError
from pipelines.lake.schema import OPAQUE, arrow_schema_of, plain_schema, same_columns
from pipelines.spark.arrow_batches import map_batches
from pipelines.writing.table_order import STATISTICS, is_partition_type
from rules_index.workers.delta_files import Layout
from rules_index.workers.tagged_files import RESULT, Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipelines.lake.lake import Lake
    from pipelines.writing.matching import Matcher

_CODECS = {"snappy": "snappy", "zstd": "zstd", "gzip": "gzip", "uncompressed": "none", "none": "none"}
_CODEC = "spark.sql.parquet.compression.codec"
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
"""Features of a table that ask nothing of a file that is appended."""
_COLUMN = re.compile(r"[^,`]+")
_NEWEST_LEGACY_WRITER = 6
_SETTINGS = ("delta.constraints.", "delta.columnMapping.", "delta.enableIceberg", "delta.universalFormat.")
"""Table properties that ask more of a file than this module knows."""


@dataclass(frozen=True)
class FilesWritten:
    """What the workers did: `add` entries by the task's names of tables, and the micro-batch's figures."""

    entries: Mapping[str, list[str]]
    figures: dict[str, Any]


def codec(spark: SparkSession) -> str | None:
    """Arrow's name for the session's compression of Parquet; None for one that Arrow does not have."""
    return _CODECS.get(str(spark.conf.get(_CODEC, "snappy")).lower())


def folder_of(lake: Lake, name: str) -> str | None:
    """The folder of a table that workers reach as they reach any file; None for one in a store or a catalog."""
    if lake.settings.root is None:
        return None
    parsed = urlparse(lake.uri(name))
    if parsed.scheme not in ("", "file"):
        return None
    return unquote(parsed.path) if parsed.scheme else lake.uri(name)


def layout_of(lake: Lake, name: str, wanted: StructType) -> Layout | None:
    """How files of the table are laid out; None if it has not just the columns `wanted`, or asks more of its files than
    their rows."""
    if any(_is_opaque(field.type) for field in arrow_schema_of(wanted.json())):
        return None
    try:
        table = lake.delta(name)
        metadata, protocol = table.metadata(), table.protocol()
        held = StructType.fromJson(json.loads(table.schema().to_json()))
    except TableError:
        return None
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    known = (
        features <= _FEATURES
        and (bool(protocol.writer_features) or protocol.min_writer_version <= _NEWEST_LEGACY_WRITER)
        and not any(key.startswith(_SETTINGS) for key in metadata.configuration)
        and same_columns(held, wanted)
        and all(f.nullable and f.dataType == p.dataType for f, p in zip(held, plain_schema(held), strict=True))
        and all(is_partition_type(held[column].dataType) for column in metadata.partition_columns)
    )
    if not known:
        return None
    indexed = metadata.configuration.get(STATISTICS)
    return Layout(
        tuple(metadata.partition_columns),
        "rule_id" if name.endswith("_matches") else None,
        None if indexed is None else frozenset(_COLUMN.findall(indexed)),
    )


def _is_opaque(kind: pa.DataType) -> bool:
    if kind == OPAQUE:
        return True
    return pa.types.is_nested(kind) and any(_is_opaque(kind.field(i).type) for i in range(kind.num_fields))


def write_files(frame: DataFrame, matcher: Matcher, task: Task) -> FilesWritten:
    """Match the rows of `frame` and write them as files that no log knows yet."""
    return run_task(map_batches(matcher.with_inputs(frame), _writer(matcher.file, task), RESULT), task)


def run_task(made: DataFrame, task: Task) -> FilesWritten:
    """Have the workers do a task: `made` has the columns `RESULT`."""
    result = made.collect()
    entries: dict[str, list[str]] = {name: [] for name in task.folders}
    figures: dict[str, Any] = {"rows": 0, "matches": 0, "errors": {}}
    for row in result:
        if row["entry"]:
            entries[row["name"]].append(row["entry"])
            continue
        found = json.loads(row["figures"])
        figures["rows"] += found["rows"]
        figures["matches"] += found["matches"]
        for rule, rows in found["errors"]:
            figures["errors"][str(rule)] = figures["errors"].get(str(rule), 0) + rows
    for path in _paths(task, entries):
        if not path.is_file():
            raise TableError(
                f"A worker wrote {path}, and the driver cannot see it. The folder of [lake] root must be the same on "
                "all machines of the cluster."
            )
    return FilesWritten(entries, figures)


def discard(task: Task, entries: Mapping[str, list[str]]) -> None:
    """Remove files that no log will know."""
    for path in _paths(task, entries):
        with contextlib.suppress(OSError):
            os.unlink(path)


def _paths(task: Task, entries: Mapping[str, list[str]]) -> Iterator[Path]:
    for name, texts in entries.items():
        for text in texts:
            yield Path(task.folders[name]) / unquote(json.loads(text)["add"]["path"])


def _writer(file: Callable[[], str], task: Task) -> Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]:
    """The function that workers run; it travels by value, so that they need no module of the jobs."""

    def write(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        from rules_index.workers import spark_worker, tagged_files

        yield from tagged_files.write_files(spark_worker.open_index(file()), task, batches)

    return write
