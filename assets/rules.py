"""The rules table as an observable source asset, and the assets compiled from it: indexes and rejects."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.failures import ReportedError, reporting_failures
from assets.names import RESOURCE, RULES, SPARK_POOL, index_key, list_key, rejects_key
from assets.owner_statistics import owners_metadata
from assets.table_metadata import rounded
from pipelines.settings.model import Configuration
from pipelines.table_definitions import RULES as RULES_TABLE

if TYPE_CHECKING:
    from pipelines.compiling.results import ScopeResult

MISSING = "missing"
DELTA = {"dagster/kind/deltalake": ""}
"""The tag by which Dagster shows that an asset is a Delta table."""
_REJECTS_SHOWN = 20


def rules_asset(configuration: Configuration) -> Any:
    """`rules`: its data version is the table's Delta version."""
    columns = [dg.TableColumn(c.name, c.type, c.comment) for c in RULES_TABLE.columns]

    @dg.observable_source_asset(
        key=RULES,
        group_name="rules",
        description="The rules. Edit this table to add or change rules; the next run compiles and applies them.",
        metadata={
            "dagster/column_schema": dg.TableSchema(columns=columns),
            "configuration": dg.MetadataValue.path(str(configuration.path.absolute())),
        },
        tags=DELTA,
        required_resource_keys={RESOURCE},
    )
    def look_at_rules(context: dg.AssetExecutionContext) -> dg.DataVersion:
        """The version of the rules table; the table's checks say why it cannot be opened."""
        from pipelines.errors import MissingTableError, TableError

        try:
            version = str(context.resources.lake.workspace().lake.version(RULES_TABLE.name))
        except (MissingTableError, TableError):
            version = MISSING
        return dg.DataVersion(version)

    return look_at_rules


def index_assets(
    scope: str, owners: Sequence[str] = (), origin: str | None = None, lists: Collection[str] = ()
) -> dg.AssetsDefinition:
    """A scope's parts of `rule_index` and `rule_rejects`; the index's data version is its fingerprint.

    owners: who answers for the scope's tables; origin: the stream whose tagged rows the scope reads, and whose rules
    must imply the scope's; lists: the names of all value lists, since a rule may name any of them.
    """
    implying = [] if origin is None else [index_key(origin)]
    implying += [list_key(name) for name in lists]
    specs = [
        dg.AssetSpec(
            rejects_key(scope),
            deps=[RULES, *implying],
            group_name="rules",
            description=f"Rules of {scope} that did not compile, each with the reason and its position.",
            kinds={"deltalake"},
            owners=owners,
        ),
        dg.AssetSpec(
            index_key(scope),
            deps=[RULES, *implying],
            group_name="rules",
            description=(
                f"The rules of {scope}, compiled. They change only when something that decides a match has changed."
            ),
            kinds={"deltalake"},
            owners=owners,
        ),
    ]

    @dg.multi_asset(name=f"compile_{scope}", specs=specs, required_resource_keys={RESOURCE}, pool=SPARK_POOL)
    def compile_scope(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        """Compiles the rules of the scope."""
        from pipelines.compile import compile_scopes

        workspace = context.resources.lake.workspace()
        with reporting_failures():
            result = compile_scopes(workspace, [scope])[0]
        for notice in result.notices:
            context.log.warning(notice)
        yield _rejects(workspace, result)
        if result.error is not None or result.fingerprint is None:
            raise ReportedError(result.error or _held(result))
        yield dg.MaterializeResult(
            asset_key=index_key(scope),
            data_version=dg.DataVersion(result.fingerprint),
            metadata={
                "state": result.state,
                "rules": result.rules,
                "rejected": result.rejects,
                "reject_rate": rounded(result.rejects / result.rules) if result.rules else 0.0,
                "rules_version": result.rules_version,
                "engine": result.engine or "",
                "bytes": result.bytes,
                "seconds": rounded(result.seconds),
                **owners_metadata(workspace, scope),
            },
        )

    return compile_scope


def _held(result: "ScopeResult") -> str:
    return (
        f"{result.rejects:,} of the {result.rules:,} rules of {result.scope} were rejected, "
        'on_reject is "hold", and there is no earlier index to keep. Correct the rules that rule_rejects lists.'
    )


def _rejects(workspace: Any, result: "ScopeResult") -> dg.MaterializeResult[Any]:
    from pipelines.table_definitions import RULE_REJECTS
    from quality.findings import markdown_table

    lake = workspace.lake
    columns = ["rule_id", "error", "position", "message"]
    rows = lake.arrow(RULE_REJECTS.name, columns, [("scope", result.scope)]).slice(0, _REJECTS_SHOWN)
    table = markdown_table(columns, [[row[name] for name in columns] for row in rows.to_pylist()])
    return dg.MaterializeResult(
        asset_key=rejects_key(result.scope),
        data_version=dg.DataVersion(str(lake.version(RULE_REJECTS.name))),
        metadata={
            "dagster/row_count": result.rejects,
            "rules_version": result.rules_version,
            "rejects": dg.MetadataValue.md(table),
        },
    )
