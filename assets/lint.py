"""The findings of `deltatag lint` as a check that follows each compile and never blocks."""

import time
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.names import RESOURCE, SPARK_POOL, index_key
from assets.table_metadata import rounded

if TYPE_CHECKING:
    from pipelines.workspace import Workspace

NAME = "nothing_odd"
_SHOWN = 50
_SHARE = 0.01
"""Maximum share of the time that goes into looking at the same rules again."""
_RECORDS = 20
"""How many records of the check are searched for its last result; runs that were killed leave some without one."""
_LINTED, _SECONDS, _AT = "linted", "seconds", "looked_at"


def lint_check(scope: str) -> dg.AssetChecksDefinition:
    """The check `nothing_odd` of a scope's index: it warns, with the findings by rule.

    While the rules, the accepted findings and the index stay the same, its last result stays for a hundred times as
    long as it took, so that runs with new rows alone do not wait for it.
    """

    @dg.asset_check(
        name=NAME,
        asset=index_key(scope),
        description="No rule contradicts itself, repeats another, cannot match or has raised errors (docs/lint.md).",
        required_resource_keys={RESOURCE},
        pool=SPARK_POOL,
    )
    def look(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        """The result of the check."""
        workspace: Workspace = context.resources.lake.workspace()
        linted = _linted(workspace, scope)
        return _last_result(context.instance, scope, linted) or _result(workspace, scope, linted)

    return look


def _linted(workspace: "Workspace", scope: str) -> str:
    """What a result depends on, for the most part: the versions of the rules and of the accepted findings, and the
    scope's index, which is another one with another time zone or other columns."""
    from pipelines.lake.index_store import newest_index
    from pipelines.table_definitions import LINT_ACCEPTED

    lake, accepted = workspace.lake, LINT_ACCEPTED.name
    parts = [f"version {lake.version('rules')} of {lake.uri('rules')}"]
    parts += [f"version {lake.version(accepted)} of {accepted}"] if lake.exists(accepted) else []
    stored = newest_index(lake, scope)
    parts += [f"index {stored.fingerprint}"] if stored is not None else []
    return ", ".join(parts)


def _last_result(instance: dg.DagsterInstance, scope: str, linted: str) -> dg.AssetCheckResult | None:
    """The result of the last look at the same tables; None if it is time for another one."""
    key = dg.AssetCheckKey(index_key(scope), NAME)
    for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=_RECORDS):
        last = record.event.asset_check_evaluation if record.event else None
        if last is None:
            continue
        told = {name: each.value for name, each in last.metadata.items()}
        seconds, at = told.get(_SECONDS), told.get(_AT)
        if told.get(_LINTED) != linted or not isinstance(seconds, float) or not isinstance(at, float):
            return None
        if time.time() - at > seconds / _SHARE:
            return None
        return dg.AssetCheckResult(
            passed=last.passed, severity=last.severity, description=last.description, metadata=last.metadata
        )
    return None


def _result(workspace: "Workspace", scope: str, linted: str) -> dg.AssetCheckResult:
    from pipelines.lint import lint_scopes
    from pipelines.lint_kinds import IMPLIED_BY_STREAM
    from quality.findings import markdown_table

    (result,) = lint_scopes(workspace, [scope])
    rows = [
        (str(each.rule_id), each.kind, each.message, each.expression or "", each.owner or "")
        for each in result.findings
    ]
    kinds = list(dict.fromkeys(row[1] for row in rows))
    counts: dict[str, Any] = {kind: sum(row[1] == kind for row in rows) for kind in kinds}
    count = "1 finding" if len(rows) == 1 else f"{len(rows):,} findings"
    text = result.error or (f"{count}: {', '.join(kinds)}" if rows else "no findings")
    table = markdown_table(("rule", "kind", "what to do", "expression", "owner"), rows[:_SHOWN])
    return dg.AssetCheckResult(
        passed=result.error is None and set(kinds) <= {IMPLIED_BY_STREAM},
        severity=dg.AssetCheckSeverity.WARN,
        description=text,
        metadata={
            **counts,
            "accepted": len(result.accepted),
            "findings": dg.MetadataValue.md(table),
            _LINTED: linted,
            _AT: dg.MetadataValue.timestamp(time.time()),
            _SECONDS: rounded(result.seconds),
        },
    )
