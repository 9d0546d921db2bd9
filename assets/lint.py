"""The findings of `deltatag lint` as a check that follows each compile and never blocks."""

from typing import Any

import dagster as dg

from assets.names import RESOURCE, SPARK_POOL, index_key

_SHOWN = 50


def lint_check(scope: str) -> dg.AssetChecksDefinition:
    """The check `nothing_odd` of a scope's index: it warns, with the findings by rule."""

    @dg.asset_check(
        name="nothing_odd",
        asset=index_key(scope),
        description="No rule contradicts itself, repeats another, cannot match or has raised errors (docs/lint.md).",
        required_resource_keys={RESOURCE},
        pool=SPARK_POOL,
    )
    def look(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        """The result of the check."""
        from pipelines.lint import lint_scopes
        from pipelines.lint_kinds import IMPLIED_BY_STREAM
        from quality.findings import markdown_table

        (result,) = lint_scopes(context.resources.lake.workspace(), [scope])
        rows = [
            (str(each.rule_id), each.kind, each.message, each.expression or "", each.owner or "")
            for each in result.findings
        ]
        kinds = list(dict.fromkeys(row[1] for row in rows))
        counts: dict[str, Any] = {kind: sum(row[1] == kind for row in rows) for kind in kinds}
        text = result.error or (f"{len(rows)} findings: {', '.join(kinds)}" if rows else "no findings")
        table = markdown_table(("rule", "kind", "what to do", "expression", "owner"), rows[:_SHOWN])
        return dg.AssetCheckResult(
            passed=result.error is None and set(kinds) <= {IMPLIED_BY_STREAM},
            severity=dg.AssetCheckSeverity.WARN,
            description=text,
            metadata={
                **counts,
                "accepted": len(result.accepted),
                "findings": dg.MetadataValue.md(table),
                "seconds": result.seconds,
            },
        )

    return look
