"""Chooses the runner of joins: this process if it is exact and the tables are in no catalog, else Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipelines.errors import NeedsSparkError
from pipelines.runners.choice import turn_to_spark, why_spark_works
from pipelines.runners.spark_required import why_spark_evaluates_newest, why_spark_writes
from pipelines.sources.readable_features import why_spark_reads
from pipelines.table_definitions import scope_tables

if TYPE_CHECKING:
    from pipelines.joining.runner import JoinRunner
    from pipelines.settings.model import Join
    from pipelines.workspace import Workspace


def joins_runner(workspace: Workspace, joins: Sequence[Join]) -> JoinRunner:
    """The runner of joins over the same streams and keys.

    SparkRuledOutError if the configuration demands the local runner and it cannot serve.
    """
    reason = why_spark(workspace, joins)
    if reason is None:
        from pipelines.joining.local_joins import LocalJoins

        return LocalJoins(workspace)
    return going_on_with_spark(workspace, [join.name for join in joins], NeedsSparkError(reason))


def going_on_with_spark(workspace: Workspace, names: Sequence[str], reason: NeedsSparkError) -> JoinRunner:
    """The runner on Spark, after reporting why the local one cannot serve; SparkRuledOutError if that is ruled out."""
    turn_to_spark(workspace, ", ".join(names), reason)
    from pipelines.joining.spark_joins import SparkJoins

    return SparkJoins(workspace)


def why_spark(workspace: Workspace, joins: Sequence[Join]) -> str | None:
    """Why joins over the same streams need Spark, as a clause; None if this process can run them."""
    if (reason := why_spark_works(workspace)) is not None:
        return reason
    for name in joins[0].streams:
        if (reason := why_spark_reads(workspace.configuration.stream(name))) is not None:
            return f"of the stream {name}: {reason}"
    names = [name for join in joins for name in scope_tables(join.name, is_join=True)]
    if (reason := why_spark_writes(workspace.lake, names)) is not None:
        return reason
    found = (why_spark_evaluates_newest(workspace.lake, join.name) for join in joins)
    return next((reason for reason in found if reason is not None), None)
