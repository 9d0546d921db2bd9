"""Decides by a source's table features whether this process can read it, or only Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pipelines.error_texts import first_line
from pipelines.errors import NeedsSparkError, TableError
from pipelines.lake.table_cache import local_folder
from pipelines.lake.table_log import table_log
from pipelines.settings.configuration import is_catalog_name

if TYPE_CHECKING:
    from pipelines.lake.folder_snapshot import FolderSnapshot
    from pipelines.settings.model import Stream

READABLE = frozenset(
    {"appendOnly", "changeDataFeed", "checkConstraints", "clustering", "domainMetadata", "generatedColumns",
     "identityColumns", "invariants", "allowColumnDefaults", "timestampNtz", "vacuumProtocolCheck", "inCommitTimestamp",
     "rowTracking"}
)  # fmt: skip
"""Table features that a reader of a source's files can ignore."""
READABLE_HERE = READABLE | {"deletionVectors", "v2Checkpoint"}
"""Those that the readers of this process can do with. delta-rs reads its checkpoints, and `source_files` refuses a
file whose deletion vector is not known."""
_OF_VARIANTS = frozenset({"variantType", "variantType-preview", "variantShredding", "variantShredding-preview"})
"""Table features that a reader can ignore unless a column is a VARIANT. delta-rs adds `variantType` to a table when it
sets a property, if the table's protocol names its features."""


def foreign_features(snapshot: FolderSnapshot, known: frozenset[str] = READABLE) -> list[str]:
    """The table features besides those `known` for which only Spark can read a table."""
    has_variants = '"variant"' in json.dumps([field["type"] for field in snapshot.fields])
    return sorted(snapshot.features - known - (frozenset() if has_variants else _OF_VARIANTS))


def refuse_foreign(stream: str, snapshot: FolderSnapshot) -> None:
    """NeedsSparkError if only Spark can read this snapshot of a stream's source."""
    if foreign := foreign_features(snapshot, READABLE_HERE):
        raise NeedsSparkError(f"the source of {stream} has the table feature {foreign[0]}")


def why_spark_reads(stream: Stream, version: int | None = None) -> str | None:
    """Why only Spark can read a version of a stream's source, by default the newest, as a clause; None if not so."""
    if is_catalog_name(stream.source):
        return "its source is in a catalog"
    log = table_log(stream.source)
    try:
        snapshot = log.latest() if version is None else log.snapshot(version)
    except TableError as error:
        if local_folder(stream.source) is not None:
            raise
        # Spark has credentials of its own
        return f"delta-rs cannot read its source: {first_line(error.__cause__ or error)}"
    if snapshot.number < 0:
        return None  # opening it reports the error
    foreign = foreign_features(snapshot, READABLE_HERE)
    if not foreign:
        return None
    names = {"columnMapping": "column mapping", "typeWidening": "widened types"}
    return f"its source has {names.get(foreign[0], 'the table feature ' + foreign[0])}"
