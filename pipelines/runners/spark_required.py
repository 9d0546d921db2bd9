"""Decides what only Spark can read or evaluate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pipelines.errors import PipelineError, TableError
from pipelines.lake.index_store import load_planned, newest_index
from pipelines.lake.lake import first_line
from pipelines.lake.table_cache import local_folder
from pipelines.lake.table_log import table_log
from pipelines.recovery.attempts import rules_that_read
from pipelines.settings.configuration import is_catalog_name
from rules_index.errors import RulesIndexError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import rules_index as ri
    from pipelines.lake.folder_snapshot import FolderSnapshot
    from pipelines.lake.lake import Lake
    from pipelines.settings.model import Stream
    from pipelines.workspace import Workspace
    from rules_index.language.typed import Leaf

READABLE = frozenset(
    {"appendOnly", "changeDataFeed", "checkConstraints", "clustering", "domainMetadata", "generatedColumns",
     "identityColumns", "invariants", "allowColumnDefaults", "timestampNtz", "vacuumProtocolCheck", "inCommitTimestamp",
     "rowTracking"}
)  # fmt: skip
"""Table features of a source that require nothing of a reader of its files."""
_MOST_NAMED = 10
"""The most parts of rules that a message names."""
_OF_VARIANTS = frozenset({"variantType", "variantType-preview", "variantShredding", "variantShredding-preview"})
"""Table features that require something only where a column is a VARIANT. delta-rs adds the first to any table with
named features whose properties it sets."""


def foreign_features(snapshot: FolderSnapshot) -> list[str]:
    """The table features for which only Spark can read a source."""
    has_variants = '"variant"' in json.dumps([field["type"] for field in snapshot.fields])
    return sorted(snapshot.features - READABLE - (frozenset() if has_variants else _OF_VARIANTS))


def why_spark_reads(workspace: Workspace, stream: Stream, version: int | None = None) -> str | None:
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
    foreign = foreign_features(snapshot)
    if not foreign:
        return None
    names = {"deletionVectors": "deletion vectors", "columnMapping": "column mapping", "typeWidening": "widened types"}
    return f"its source has {names.get(foreign[0], 'the table feature ' + foreign[0])}"


def why_spark_writes(lake: Lake, names: Sequence[str]) -> str | None:
    """Why only Spark writes some tables of an object store, as a clause; None if delta-rs writes those that exist."""
    for name in filter(lake.exists, names if lake.is_in_store else ()):
        log = table_log(lake.uri(name))
        if reason := log.why_spark_commits(log.latest()):
            return f"the table {name} {reason}"
    return None


def of_derived(compiled: ri.CompiledRules) -> str | None:
    """The parts of an index's rules that only Spark evaluates, as a clause; None if there are none."""
    if not compiled.derived:
        return None
    named = [_part(compiled, leaf) for leaf in compiled.derived[:_MOST_NAMED]]
    others = len(compiled.derived) - len(named)
    return f"only Spark evaluates {'; '.join(named)}" + (f"; and {_counted(others, 'other part')}" if others else "")


def _part(compiled: ri.CompiledRules, leaf: Leaf) -> str:
    rules = rules_that_read(compiled, leaf.name)
    more = f" (and {_counted(len(rules) - 1, 'more rule')})" if len(rules) > 1 else ""
    return f"{leaf.text}, of the rule {rules[0] if rules else '?'}{more}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def of_newest_index(lake: Lake, scope: str) -> str | None:
    """A rule of a scope's newest index that needs Spark, as a clause; None if there is none, or no readable index."""
    try:
        stored = newest_index(lake, scope)
        if stored is None:
            return None
        known = stored.statistics.get("needs_spark")
        if known is not None:
            return str(known) or None
        # an index of an earlier version, whose statistics lack this entry
        return of_derived(load_planned(lake, scope, stored.fingerprint, "deltatag compile")[1])
    except (PipelineError, RulesIndexError):
        return None  # using the index reports the error
