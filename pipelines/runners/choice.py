"""Chooses the runner of a stream: this process if it is exact and the tables are in no catalog, else Spark."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

import rules_index as ri
from pipelines.errors import NeedsSparkError, PipelineError, SparkNotStartedError, SparkRuledOutError
from pipelines.lake.index_store import fetch_index, newest_index
from pipelines.recovery.attempts import rules_that_read
from pipelines.runners.spark_required import why_spark_evaluates_newest, why_spark_writes
from pipelines.scopes import scopes_of
from pipelines.settings.model import LOCAL, SPARK, Stream
from pipelines.sources.readable_features import why_spark_reads
from pipelines.table_definitions import scope_tables

if TYPE_CHECKING:
    from pipelines.runners.runner import Runner
    from pipelines.workspace import Workspace


def runner_of(workspace: Workspace, stream: Stream) -> Runner:
    """The runner of a stream; SparkRuledOutError if the configuration demands the local one and it cannot serve."""
    from pipelines.runners.local_runner import LocalRunner

    reason = why_spark(workspace, stream)
    if reason is None:
        return LocalRunner(workspace, stream)
    return going_on_with_spark(workspace, stream, NeedsSparkError(reason))


def going_on_with_spark(workspace: Workspace, stream: Stream, reason: NeedsSparkError) -> Runner:
    """The runner on Spark, after reporting why the local one cannot serve; SparkRuledOutError if that is ruled out."""
    turn_to_spark(workspace, stream.name, reason)
    from pipelines.runners.spark_runner import SparkRunner

    return SparkRunner(workspace, stream)


def turn_to_spark(workspace: Workspace, what: str, reason: NeedsSparkError) -> None:
    """Report that `what` goes through Spark, and why; SparkRuledOutError if the configuration rules that out."""
    if workspace.configuration.lake.runner == LOCAL:
        raise spark_ruled_out(workspace, what, reason)
    report_spark(workspace, what, reason)


def report_spark(workspace: Workspace, what: str, reason: NeedsSparkError) -> None:
    """Report that `what` goes through Spark, and why, unless the configuration or a given session demands Spark."""
    if workspace.configuration.lake.runner != SPARK and not is_given_session(workspace):
        workspace.progress(f"{what} goes through Spark because {reason}")


def spark_ruled_out(workspace: Workspace, what: str, reason: NeedsSparkError) -> SparkRuledOutError:
    """The error of something that needs Spark while the configuration rules it out."""
    return SparkRuledOutError(
        f'{what} needs Spark because {reason}; and [lake] runner is "local" in {workspace.configuration.path}. Set '
        'runner = "auto".'
    )


def is_given_session(workspace: Workspace) -> bool:
    """True if deltatag was given a Spark session, or this process already has one."""
    if workspace.is_given:
        return True
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def why_spark(workspace: Workspace, stream: Stream) -> str | None:
    """Why a stream needs Spark, as a clause; None if this process can run it."""
    return (
        why_spark_works(workspace)
        or why_spark_reads(stream)
        or why_spark_writes(workspace.lake, scope_tables(stream.name))
        or why_spark_evaluates_newest(workspace.lake, stream.name)
    )


def why_spark_rules_are_refused(
    workspace: Workspace, scope: str, failure: SparkNotStartedError | None = None
) -> str | None:
    """Why a scope's rules that only Spark evaluates are refused, as the end of a sentence; None if they are not.

    They are if the configuration rules Spark out, or if Spark cannot be started on this machine and no rule in force
    needs it. If one does and has not been removed, what fails is the compile: to refuse that rule would lose its
    matches. failure: that of a start that was tried.
    """
    runner, lake = workspace.configuration.lake.runner, workspace.lake
    if runner == LOCAL:
        return 'which [lake] runner = "local" in deltatag.toml rules out; runner = "auto" allows it.'
    if runner == SPARK or is_given_session(workspace) or workspace.configuration.lake.root is None:
        return None
    from pipelines.spark.runtime import missing_runtime

    missing = failure or missing_runtime()
    if missing is None or (why_spark_evaluates_newest(lake, scope) and _rules_in_force_need_spark(workspace, scope)):
        return None
    return f"and Spark cannot be started here. {missing}"


def _rules_in_force_need_spark(workspace: Workspace, scope: str) -> bool:
    """Whether a rule of the scope's newest index that has a part which only Spark evaluates is still in `rules`.

    True also if that cannot be found out.
    """
    from pipelines.rule_set import read_rules

    lake = workspace.lake
    try:
        stored = newest_index(lake, scope)
        if stored is None:
            return False
        compiled = ri.load(fetch_index(lake, stored))
        ids = {rule for leaf in compiled.derived for rule in rules_that_read(compiled, leaf.name)}
        asked = compiled.ids.filter(pc.is_in(compiled.ids.cast(pa.string()), pa.array(ids, pa.string())))
        found = read_rules(lake, scopes_of(workspace), ids=asked)
    except (PipelineError, ri.RulesIndexError):
        return True
    return bool(found.enabled(scope))


def why_spark_works(workspace: Workspace) -> str | None:
    """Why everything runs on Spark, by the configuration or a running session, as a clause; None if it need not."""
    lake = workspace.configuration.lake
    if lake.runner == SPARK:
        return '[lake] runner is "spark"'
    if lake.runner != LOCAL:
        if is_given_session(workspace):
            return "a Spark session runs already"
        if not workspace.configuration.spark.get("spark.master", "local").startswith("local"):
            return "[spark] names a cluster"
    return "the lake is in a catalog" if lake.root is None else None
