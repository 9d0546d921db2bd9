"""Which runner takes a stream: this process, where that is exact and the rows are not too many, else Spark."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pipelines.errors import NeedsSparkError
from pipelines.lake.folder_log import local_folder
from pipelines.runners.needs import of_newest_index, why_spark_reads
from pipelines.settings.model import LOCAL, SPARK, Stream

if TYPE_CHECKING:
    from pipelines.runners.runner import Runner
    from pipelines.workspace import Workspace


def runner_of(workspace: Workspace, stream: Stream) -> Runner:
    """The runner of a stream. NeedsSparkError where the configuration asks for the local one, and it cannot serve."""
    from pipelines.runners.local_runner import LocalRunner

    reason = why_spark(workspace, stream)
    if reason is None:
        return LocalRunner(workspace, stream)
    return going_on_with_spark(workspace, stream, NeedsSparkError(reason))


def going_on_with_spark(workspace: Workspace, stream: Stream, reason: NeedsSparkError) -> Runner:
    """The runner that goes on where the local one cannot; it says why."""
    if workspace.configuration.lake.runner == LOCAL:
        raise NeedsSparkError(
            f'{stream.name} needs Spark because {reason}; and [lake] runner is "local" in '
            f'{workspace.configuration.path}. Take runner = "auto".'
        )
    from pipelines.runners.spark_runner import SparkRunner

    if workspace.configuration.lake.runner != SPARK and not is_given_session(workspace):
        workspace.progress(f"{stream.name} goes through Spark because {reason}")
    return SparkRunner(workspace, stream)


def is_given_session(workspace: Workspace) -> bool:
    """True where a Spark session runs that deltatag was given, or that this process has."""
    if workspace.is_given:
        return True
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def why_spark(workspace: Workspace, stream: Stream) -> str | None:
    """Why Spark takes a stream, for the middle of a sentence; None where this process does."""
    return (
        why_spark_works(workspace) or why_spark_reads(workspace, stream) or of_newest_index(workspace.lake, stream.name)
    )


def why_spark_works(workspace: Workspace) -> str | None:
    """Why Spark takes all there is, by the configuration and what runs already; None where it need not."""
    lake = workspace.configuration.lake
    if lake.runner == SPARK:
        return '[lake] runner is "spark"'
    if lake.runner != LOCAL:
        if is_given_session(workspace):
            return "a Spark session runs already"
        if not workspace.configuration.spark.get("spark.master", "local").startswith("local"):
            return "[spark] names a cluster"
    if lake.root is None:
        return "the lake is in a catalog"
    return "the lake is in an object store" if local_folder(lake.root) is None else None
