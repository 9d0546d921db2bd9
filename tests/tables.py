"""Reads tables in tests without Spark, which takes a second for what takes delta-rs milliseconds."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from pipelines.workspace import Workspace


def rows_of(workspace: Workspace, name: str) -> list[dict[str, Any]]:
    """Rows of a table of the lake, each by the names of its columns; moments in UTC."""
    found: list[dict[str, Any]] = workspace.lake.arrow(name).to_pylist()
    return found


def columns_of(workspace: Workspace, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Rows of a table of the lake, as tuples of the named columns; `a.b` is the field b of a column a, or NULL."""
    table = workspace.lake.arrow(name, list(dict.fromkeys(column.split(".")[0] for column in columns)))
    return [tuple(_part(row, column.split(".")) for column in columns) for row in table.to_pylist()]


def _part(value: Any, path: list[str]) -> Any:
    for name in path:
        value = None if value is None else value[name]
    return value


def spark_columns(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    """The columns of a DataFrame, as tuples, by one job; moments in UTC."""
    table: pa.Table = frame.select(*columns).toArrow()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def delete_rows(folder: Path, version: int, rows: list[int]) -> None:
    """Gives the files that a commit adds a deletion vector of these rows, as if they were added so. A vector holds up
    to 4,096 rows, each below 65,536."""
    log = folder / "_delta_log"
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    for number in {0, version}:
        commit = log / f"{number:020d}.json"
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "protocol" in action:
                action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
            if "add" in action and number == version:
                action["add"]["deletionVector"] = _deletions(rows)
        commit.write_text("\n".join(map(json.dumps, actions)))


def _deletions(rows: list[int]) -> dict[str, Any]:
    """A deletion vector of these rows within the log: Delta protocol, "Deletion Vector Format"."""
    container = struct.pack(f"<{len(rows)}H", *rows)
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + container
    data = struct.pack("<iqI", 1681511377, 1, 0) + bitmap
    size = len(data)
    data += b"\0" * (-size % 4)
    text = ""
    for (word,) in struct.iter_unpack(">I", data):
        text += "".join(_Z85[word // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": size, "cardinality": len(rows)}


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def map_columns(folder: str) -> None:
    """Gives a table of delta-rs column mapping by name, as if it were created so: its files have other names.

    The table has no columns within columns, and no checkpoint.
    """
    for commit in sorted(Path(folder, "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "protocol" in action:
                action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
            if "metaData" in action:
                schema = json.loads(action["metaData"]["schemaString"])
                for number, field in enumerate(schema["fields"], 1):
                    mapped = {"id": number, "physicalName": f"col-{field['name']}"}
                    field["metadata"] |= {f"delta.columnMapping.{key}": value for key, value in mapped.items()}
                action["metaData"]["schemaString"] = json.dumps(schema)
                mapping = {"mode": "name", "maxColumnId": str(len(schema["fields"]))}
                of_table = {f"delta.columnMapping.{key}": value for key, value in mapping.items()}
                action["metaData"]["configuration"] |= of_table
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    rewrite_files(folder, lambda rows: rows.rename_columns([f"col-{name}" for name in rows.column_names]))


def rewrite_files(folder: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Writes each file of a table of delta-rs anew, changed, without bounds of its columns in the log."""
    for commit in sorted(Path(folder, "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                path = Path(folder, action["add"]["path"])
                rows = change(pq.read_table(path, partitioning=None))
                pq.write_table(rows, path)
                action["add"] |= {"size": path.stat().st_size, "stats": json.dumps({"numRecords": rows.num_rows})}
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))


def alter(
    folder: str,
    fields: list[dict[str, Any]] | None = None,
    properties: dict[str, str] | None = None,
    **features: list[str],
) -> None:
    """Commits a change of a table's columns, in the log's form, of its properties and of its protocol.

    features: names of table features that are added, as `reader_features` and `writer_features`.
    """
    table = DeltaTable(folder)
    metadata, protocol = table.metadata(), table.protocol()
    columns = {"type": "struct", "fields": fields or json.loads(table.schema().to_json())["fields"]}
    named = {
        "id": str(metadata.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(columns),
        "partitionColumns": metadata.partition_columns,
        "configuration": {**metadata.configuration, **(properties or {})},
    }
    readers = [*(protocol.reader_features or ()), *features.get("reader_features", ())]
    writers = [*(protocol.writer_features or ()), *readers, *features.get("writer_features", ())]
    versions: dict[str, Any] = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7}
    versions |= {"writerFeatures": sorted({*writers})} | ({"readerFeatures": sorted({*readers})} if readers else {})
    actions: list[dict[str, Any]] = [{"metaData": named}, *([{"protocol": versions}] if features else [])]
    commit = Path(folder, "_delta_log", f"{table.version() + 1:020d}.json")
    commit.write_text("\n".join(map(json.dumps, actions)))


def widen(folder: str, column: str, kind: str, rows: pa.Table) -> None:
    """Gives a column of a table a wider type (`long` for `integer`), as ALTER TABLE ... ALTER COLUMN ... TYPE does, and
    appends rows in one file, whose partition columns are NULL."""
    fields = json.loads(DeltaTable(folder).schema().to_json())["fields"]
    for field in fields:
        if field["name"] == column:
            field["metadata"]["delta.typeChanges"] = [{"fromType": field["type"], "toType": kind}]
            field["type"] = kind
    alter(folder, fields, reader_features=["typeWidening"])
    table = DeltaTable(folder)
    path = Path(folder, "widened.parquet")
    pq.write_table(rows, path)
    partition = dict.fromkeys(table.metadata().partition_columns)
    add: dict[str, Any] = {"path": path.name, "partitionValues": partition, "size": path.stat().st_size}
    add |= {"modificationTime": 0, "dataChange": True, "stats": json.dumps({"numRecords": rows.num_rows})}
    Path(folder, "_delta_log", f"{table.version() + 1:020d}.json").write_text(json.dumps({"add": add}))
