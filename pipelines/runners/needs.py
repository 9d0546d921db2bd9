"""What only Spark reads or evaluates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.errors import PipelineError
from pipelines.lake.folder_log import FolderLog, local_folder
from pipelines.lake.index_store import load_planned, newest_index
from pipelines.recovery.attempts import rules_that_read
from pipelines.settings.configuration import is_catalog_name
from rules_index.errors import RulesIndexError

if TYPE_CHECKING:
    import rules_index as ri
    from pipelines.lake.lake import Lake
    from pipelines.settings.model import Stream
    from pipelines.workspace import Workspace

READABLE = frozenset(
    {"appendOnly", "changeDataFeed", "checkConstraints", "clustering", "domainMetadata", "generatedColumns",
     "identityColumns", "invariants", "allowColumnDefaults", "timestampNtz", "vacuumProtocolCheck", "inCommitTimestamp",
     "rowTracking"}
)  # fmt: skip
"""Features of a source that ask nothing of whoever reads its files."""


def why_spark_reads(workspace: Workspace, stream: Stream, version: int | None = None) -> str | None:
    """Why Spark reads a version of a stream's source, by default the newest one; None where this process does."""
    if is_catalog_name(stream.source):
        return "its source is in a catalog"
    if local_folder(stream.source) is None:
        return "its source is in an object store"
    log = FolderLog(stream.source)
    snapshot = log.latest() if version is None else log.snapshot(version)
    if snapshot.number < 0:
        return None  # whoever opens it says what is missing
    foreign = sorted(snapshot.features - READABLE)
    if not foreign:
        return None
    told = {"deletionVectors": "deletion vectors", "columnMapping": "column mapping", "typeWidening": "widened types"}
    return f"its source has {told.get(foreign[0], 'the table feature ' + foreign[0])}"


def of_derived(compiled: ri.CompiledRules) -> str | None:
    """The rule of an index that has a part which only Spark evaluates, for the middle of a sentence; None: none has."""
    if not compiled.derived:
        return None
    leaf = compiled.derived[0]
    rules = rules_that_read(compiled, leaf.name)
    more = f" (and {len(rules) - 1:,} more rules)" if len(rules) > 1 else ""
    others = f", as {len(compiled.derived) - 1:,} other parts of rules" if len(compiled.derived) > 1 else ""
    return f"only Spark evaluates {leaf.text}, of the rule {rules[0] if rules else '?'}{more}{others}"


def of_newest_index(lake: Lake, scope: str) -> str | None:
    """The rule that asks for Spark, of a scope's newest index; what an older plan's index asks for the runner finds."""
    try:
        stored = newest_index(lake, scope)
        if stored is None:
            return None
        known = stored.statistics.get("needs_spark")
        if known is not None:
            return str(known) or None
        # compiled before this was noted
        return of_derived(load_planned(lake, scope, stored.fingerprint, "deltatag compile")[1])
    except (PipelineError, RulesIndexError):
        return None  # whoever asks for the index says what is wrong with it
