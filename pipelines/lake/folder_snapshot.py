"""A snapshot of a Delta table that delta-rs has opened, and the definition of a table that is to be created."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pipelines.errors import TableError
from pipelines.lake.table_cache import table_to_write

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a new table: its columns in the log's form, its partitioning or clustering, its properties."""

    fields: Sequence[Mapping[str, Any]]
    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    def actions(self, table_id: str, features: frozenset[str]) -> list[dict[str, Any]]:
        """The `protocol`, `metaData` and `domainMetadata` actions; table features in `features` are kept."""
        reader = sorted({"timestampNtz"} & {*features, *(["timestampNtz"] if has_ntz(self.fields) else [])})
        clustered = ["clustering", "domainMetadata"] if self.cluster_by else []
        writer = sorted({*features, "appendOnly", "invariants", *clustered, *reader})
        protocol: dict[str, Any] = {"minReaderVersion": 3 if reader else 1, "minWriterVersion": 7}
        protocol |= {"readerFeatures": reader} if reader else {}
        metadata = {
            "id": table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": [dict(each) for each in self.fields]}),
            "partitionColumns": list(self.partition_by),
            "configuration": dict(self.properties),
            "createdTime": int(time.time() * 1000),
        }
        found: list[dict[str, Any]] = [{"protocol": {**protocol, "writerFeatures": writer}}, {"metaData": metadata}]
        if self.cluster_by:
            domain = {"clusteringColumns": [[name] for name in self.cluster_by], "domainName": "delta.clustering"}
            kept = {"domain": "delta.clustering", "configuration": json.dumps(domain), "removed": False}
            found.append({"domainMetadata": kept})
        return found

    def operation_parameters(self) -> dict[str, str]:
        """The operation parameters that the table's history shows for its creation."""
        return {"partitionBy": json.dumps(list(self.partition_by)), "clusterBy": json.dumps(list(self.cluster_by))}


class FolderSnapshot:
    """One version of a table."""

    def __init__(self, uri: str, table: DeltaTable | None) -> None:
        """table: None if there is no table at `uri`."""
        self.uri, self._table = uri, table

    @property
    def table(self) -> DeltaTable:
        """The table as delta-rs opened it, to read; TableError if there is none."""
        if self._table is None:
            raise TableError(f"There is no Delta table at {self.uri}.")
        return self._table

    def writable(self) -> DeltaTable:
        """The table as delta-rs opens it, to write on top of this version; TableError if this user may not."""
        return table_to_write(self.uri, version=self.number)

    @cached_property
    def number(self) -> int:
        """The version; -1 if there is no table."""
        return -1 if self._table is None else int(self._table.version())

    @property
    def table_id(self) -> str:
        """The table's id, which differs from that of a table created later at the same place."""
        return str(self.table.metadata().id)

    @cached_property
    def fields(self) -> list[dict[str, Any]]:
        """The columns, in the form of the log's `schemaString`."""
        found: list[dict[str, Any]] = json.loads(self.table.schema().to_json())["fields"]
        return found

    def with_fields(self, fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The `metaData` action that gives the table these columns, in the log's form, in place of its own."""
        held = self.table.metadata()
        named = {"name": held.name, "description": held.description, "createdTime": held.created_time}
        return {
            "metaData": {
                "id": str(held.id),
                **{key: value for key, value in named.items() if value is not None},
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": [*map(dict, fields)]}),
                "partitionColumns": self.partition_columns,
                "configuration": dict(self.properties),
            }
        }

    @property
    def partition_columns(self) -> list[str]:
        """The columns by which the table is partitioned."""
        return list(self.table.metadata().partition_columns)

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return dict(self.table.metadata().configuration)

    @property
    def features(self) -> frozenset[str]:
        """The names of the table features that readers and writers must support."""
        protocol = self.table.protocol()
        named = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        # older protocols name no features: column mapping is only a property there
        mapped = self.properties.get("delta.columnMapping.mode", "none") != "none"
        return frozenset(named | ({"columnMapping"} if mapped else set()))

    @property
    def reader_features(self) -> frozenset[str]:
        """The names of the table features that readers must support."""
        # Spark names column mapping as a feature of writers alone, beside an older protocol for readers
        return frozenset(self.table.protocol().reader_features or ()) | (self.features & {"columnMapping"})


def has_ntz(fields: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a column is, or holds, a TIMESTAMP_NTZ, which is a table feature."""
    return "timestamp_ntz" in json.dumps([field["type"] for field in fields])
