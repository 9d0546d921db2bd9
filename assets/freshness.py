"""The check `fresh` of a tagged table: whether rows of the source have been waiting longer than the stream allows.

A run evaluates it after tagging. A sensor evaluates it between runs, so that it also warns if no run has started.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.names import RESOURCE, table_key
from pipelines.settings.model import Stream
from pipelines.table_definitions import tagged_table

if TYPE_CHECKING:
    from pipelines.workspace import Workspace

FRESH = "fresh"
FRESHNESS_SECONDS = 60


@dataclass(frozen=True)
class Verdict:
    """Whether a stream is fresh, with a sentence and figures for the check."""

    passed: bool
    sentence: str
    metadata: dict[str, Any]


def freshness_check(stream: Stream) -> dg.AssetChecksDefinition:
    """The check of one stream; it only warns."""

    @dg.asset_check(
        name=FRESH,
        asset=table_key(tagged_table(stream)),
        description="No row of the source has been waiting to be tagged for longer than `freshness` allows.",
        required_resource_keys={RESOURCE},
    )
    def look(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        """The result of the check."""
        verdict = judge(context.resources.lake.workspace(), stream.name)
        return dg.AssetCheckResult(
            passed=verdict.passed,
            severity=dg.AssetCheckSeverity.WARN,
            description=verdict.sentence,
            metadata=verdict.metadata,
        )

    return look


def freshness_sensor(streams: Sequence[Stream]) -> dg.SensorDefinition:
    """A sensor that evaluates these streams' checks every minute, and reports changed results; it starts no run."""

    @dg.sensor(
        name="freshness",
        minimum_interval_seconds=FRESHNESS_SECONDS,
        required_resource_keys={RESOURCE},
        description=(
            "Warns of rows that have waited to be tagged for longer than `freshness` allows, and "
            "says when there are none."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """The evaluations of checks whose result has changed."""
        workspace = context.resources.lake.workspace()
        before: dict[str, bool] = json.loads(context.cursor) if context.cursor else {}
        served = workspace.configuration.streams
        verdicts = {stream.name: judge(workspace, stream.name) for stream in streams if stream.name in served}
        now = {name: verdict.passed for name, verdict in verdicts.items()}
        events = [
            dg.AssetCheckEvaluation(
                asset_key=table_key(tagged_table(name)),
                check_name=FRESH,
                passed=verdict.passed,
                severity=dg.AssetCheckSeverity.WARN,
                description=verdict.sentence,
                metadata=verdict.metadata,
            )
            for name, verdict in verdicts.items()
            if before.get(name) != verdict.passed
        ]
        unchanged = None if events else "No verdict has changed: " + " ".join(v.sentence for v in verdicts.values())
        return dg.SensorResult(skip_reason=unchanged, asset_events=events, cursor=json.dumps(now, sort_keys=True))

    return sensor


def judge(workspace: "Workspace", name: str) -> Verdict:
    """Whether rows of the stream's source have been waiting too long, by the current configuration."""
    from pipelines.errors import PipelineError
    from pipelines.freshness import waiting_rows

    stream = workspace.configuration.stream(name)
    try:
        waiting = waiting_rows(workspace, stream)
    except PipelineError as error:
        return Verdict(False, str(error), {})
    if not waiting.known:
        return Verdict(True, "How long rows have been waiting in a catalog is not known without Spark.", {})
    if waiting.since is None:
        return Verdict(True, "No row is waiting to be tagged.", {"waiting_commits": 0})
    now = datetime.now(UTC)
    seconds = round((now - waiting.since).total_seconds(), 1)
    late = stream.freshness is not None and waiting.longer_than(stream.freshness, now)
    allowed = f", longer than freshness = {stream.freshness / 1e6:,.0f} s allows" if late and stream.freshness else ""
    return Verdict(
        not late,
        f"Rows of {name} have been waiting to be tagged since {waiting.since:%Y-%m-%d %H:%M:%S} UTC{allowed}.",
        {"waiting_commits": waiting.commits, "waiting_seconds": seconds},
    )
