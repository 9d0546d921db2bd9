"""The quality gates as asset checks: one check for each expectation, and one step for all checks of a gate."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.failures import ReportedError
from assets.names import RESOURCE, RULES, SPARK_POOL, source_key, table_key
from assets.page_links import page_link
from assets.tables import BATCHES
from pipelines.pages import DATA_DOCS
from pipelines.settings.model import Configuration, Join, Stream
from pipelines.table_definitions import tagged_table
from quality import joined, rules, sources, tagged
from quality.findings import ERROR, Expectation, GateResult, markdown_table
from quality.gates import Pages, joined_gate, rules_gate, source_gate, tagged_gate

if TYPE_CHECKING:
    from pipelines.workspace import Workspace

_SEVERITIES = {True: dg.AssetCheckSeverity.ERROR, False: dg.AssetCheckSeverity.WARN}
_Gate = Callable[[dg.AssetCheckExecutionContext], GateResult]


def rules_checks(configuration: Configuration) -> dg.AssetChecksDefinition:
    """The checks of the rules table; if one fails as an error, nothing is compiled."""

    def gate(context: dg.AssetCheckExecutionContext) -> GateResult:
        return rules_gate(_workspace(context), Pages.CHANGED)

    return _checks("judge_rules", RULES, rules.expectations(configuration), gate)


def source_checks(stream: Stream, is_joined: bool = False) -> dg.AssetChecksDefinition:
    """The checks of a stream's source; if one fails as an error, the stream is neither tagged nor joined.

    is_joined: whether a join reads the stream. Then checks of what only the stream needs do not block: the join goes
    on, and the stream's own steps fail.
    """

    def gate(context: dg.AssetCheckExecutionContext) -> GateResult:
        return source_gate(_workspace(context), stream.name, Pages.CHANGED)

    return _checks(
        f"judge_{stream.name}",
        source_key(stream.name),
        sources.expectations(stream),
        gate,
        sources.OF_STREAM if is_joined else (),
    )


def tagged_checks(stream: Stream) -> dg.AssetChecksDefinition:
    """The checks of the rows that the preceding step tagged; if one fails as an error, nothing downstream runs."""
    key = table_key(tagged_table(stream))

    def gate(context: dg.AssetCheckExecutionContext) -> GateResult:
        return tagged_gate(_workspace(context), stream.name, max(_written(context, key), 1), Pages.CHANGED)

    return _checks(f"judge_{tagged_table(stream)}", key, tagged.expectations(stream), gate)


def joined_checks(configuration: Configuration, join: Join) -> dg.AssetChecksDefinition:
    """The checks of the rows that the preceding step joined."""
    key = table_key(tagged_table(join.name))

    def gate(context: dg.AssetCheckExecutionContext) -> GateResult:
        return joined_gate(_workspace(context), join.name, max(_written(context, key), 1), Pages.CHANGED)

    return _checks(f"judge_{tagged_table(join.name)}", key, joined.expectations(configuration, join), gate)


def _workspace(context: dg.AssetCheckExecutionContext) -> "Workspace":
    workspace: Workspace = context.resources.lake.workspace()
    return workspace


def _written(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> int:
    """How many micro-batches the newest materialization of the asset wrote; 0 if it was of another lake's table."""
    event = context.instance.get_latest_materialization_event(key)
    written = event.asset_materialization if event else None
    found = {name: each.value for name, each in written.metadata.items()} if written else {}
    # only a table that was written is certain to have an address
    if BATCHES not in found or found.get("dagster/uri") != _workspace(context).lake.uri(key.path[-1]):
        return 0
    value = found[BATCHES]
    return value if isinstance(value, int) else 0


def _checks(
    name: str, key: dg.AssetKey, expectations: Sequence[Expectation], gate: _Gate, not_blocking: Sequence[str] = ()
) -> dg.AssetChecksDefinition:
    """A step that evaluates a gate, with a check for each expectation; those in `not_blocking` stop no other step."""
    # only a result with severity ERROR blocks, so checks that only warn can be declared as blocking, too
    specs = [
        dg.AssetCheckSpec(e.name, asset=key, description=e.description, blocking=e.name not in not_blocking)
        for e in expectations
    ]

    @dg.multi_asset_check(name=name, specs=specs, required_resource_keys={RESOURCE}, pool=SPARK_POOL)
    def judge(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        """Evaluates all expectations of the quality gate."""
        result = gate(context)
        if result.reason is not None:
            context.log.error(result.reason)
        for number, finding in enumerate(result.findings):
            metadata = {"observed": _metadata_value(finding.observed)} if finding.observed is not None else {}
            if number == 0:
                metadata |= gate_metadata(_workspace(context).configuration, result)
            yield dg.AssetCheckResult(
                check_name=finding.expectation,
                asset_key=key,
                passed=finding.success,
                severity=_SEVERITIES[finding.severity == ERROR],
                description=finding.message,
                metadata=metadata,
            )
        if any(finding.expectation not in not_blocking for finding in result.failures):
            raise ReportedError(str(result.reason))  # otherwise Dagster only names the checks

    return judge


def gate_metadata(configuration: Configuration, result: GateResult) -> dict[str, Any]:
    """Counts, rates and tables of a gate, which are attached to its first check."""
    metadata = {name: _metadata_value(value) for name, value in result.measures.items()}
    metadata["findings"] = dg.MetadataValue.md(result.table())
    if result.report is not None:
        metadata["data_docs"] = page_link(configuration, DATA_DOCS, result.report)
    if result.counts:
        from assets.plots import matches_per_rule

        top = result.counts[:20]
        metadata["rules_with_most_matches"] = dg.MetadataValue.md(markdown_table(("rule", "matches"), top))
        metadata["matches_per_rule"] = dg.MetadataValue.md(matches_per_rule(result.gate, result.counts))
    return metadata


def _metadata_value(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else str(value)
