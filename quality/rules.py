"""The suite of the rules table, checked before compiling; it is derived from the table's definition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines.errors import MissingTableError, TableError
from pipelines.lake.version_rows import rules_at
from pipelines.rule_set import SHOWN
from pipelines.table_definitions import ID_TYPES, RULES, Column
from quality.evaluation import MeasuredSuites, Suite
from quality.findings import ERROR, WARNING, Expectation
from quality.validation import between, listing, none_of, nothing, one_of

if TYPE_CHECKING:
    import polars as pl

    from pipelines.lake.lake import Lake
    from pipelines.settings.model import Configuration
    from pipelines.workspace import Workspace

NAME = "rules"
MISSING = "missing"
_READ_BY_COMPILE = ("rule_id", "scope", "expression", "enabled", "valid_from", "valid_to")
_REQUIRED = tuple(column.name for column in RULES.columns if column.required)
_SPARK_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def expectations(configuration: Configuration) -> tuple[Expectation, ...]:
    """The expectations about the table as a whole, and those about each enabled rule.

    A rule that violates one of the latter is rejected, so these expectations only warn. So does the one about the share
    of such rules: if it is too large in a scope, the compile of that scope fails, but not the others.
    """
    share = "Largest share of a scope's enabled rules that are refused for a NULL or a repeated id"
    limit = configuration.rules.max_reject_share
    nulls = [
        none_of(f"{name}_not_null", f"Every enabled rule has its {name}", f"null_{name}", WARNING) for name in _REQUIRED
    ]
    return (
        one_of("table", "The rules table is there and can be read", "table", ["readable"]),
        *(_type_expectation(column) for column in RULES.columns),
        between("reject_share", share, "reject_share", 0, limit, WARNING),
        *nulls,
        nothing("rule_id_unique", "No two enabled rules have the same rule_id", "repeated_ids", WARNING),
        nothing("scope_known", "Every scope is a configured stream or join", "unknown_scopes", WARNING),
    )


def suites(workspace: Workspace) -> MeasuredSuites:
    """The suite over the newest version of the table, and its measures."""
    configuration, lake = workspace.configuration, workspace.lake
    expected = expectations(configuration)
    measures: dict[str, Any] = {"table": "readable"}
    kinds: dict[str, str] = {}
    try:
        kinds = column_types(lake)
        measures["rules_version"] = lake.version(NAME)
    except (MissingTableError, TableError) as error:
        measures["table"] = str(error)
    measures |= {f"type_of_{column.name}": kinds.get(column.name, MISSING) for column in RULES.columns}
    structure = [e for e in expected if e.severity == ERROR and "value_set" in e.arguments]
    sound = all(measures[e.arguments["column"]] in e.arguments["value_set"] for e in structure)
    measures |= _row_measures(_enabled(lake) if sound else None, configuration)
    return MeasuredSuites([Suite(NAME, expected, measures)], measures)


def _row_measures(rules: pl.DataFrame | None, configuration: Configuration) -> dict[str, Any]:
    """Counts over the enabled rules; all are 0 for None, which stands for an unreadable table."""
    import polars as pl

    if rules is None:
        rules = pl.DataFrame(schema=dict.fromkeys(_REQUIRED, pl.String))
    is_null = pl.any_horizontal(pl.col(_REQUIRED).is_null())
    repeated = pl.col("rule_id").is_not_null() & pl.col("rule_id").is_duplicated()
    unknown = ~pl.col("scope").is_in([*configuration.streams, *configuration.joins])
    shares = rules.filter(~unknown).group_by("scope").agg(share=(is_null | repeated).mean())["share"]
    return {
        "rules": rules.height,
        "refused": rules.filter(is_null | repeated | unknown.fill_null(True)).height,
        "reject_share": max(shares, default=0.0),
        **{f"null_{name}": rules[name].null_count() for name in _REQUIRED},
        "repeated_ids": listing(_values(rules.filter(repeated)["rule_id"])),
        "unknown_scopes": listing(_values(rules.filter(unknown)["scope"])),
    }


def _values(column: pl.Series) -> list[str]:
    return [str(value)[:SHOWN] for value in column.unique().sort()]


def column_types(lake: Lake) -> dict[str, str]:
    """The table's columns in lower case, with their types in Spark SQL."""
    fields = json.loads(lake.delta(NAME).schema().to_json())["fields"]
    return {field["name"].lower(): _sql_type(field["type"]) for field in fields}


def _sql_type(kind: Any) -> str:
    if isinstance(kind, str):
        return _SPARK_NAMES.get(kind, kind)
    if kind["type"] == "map":
        return f"map<{_sql_type(kind['keyType'])},{_sql_type(kind['valueType'])}>"
    return str(kind["type"])


def _type_expectation(column: Column) -> Expectation:
    types: Sequence[str] = ID_TYPES if column.name == "rule_id" else (column.type,)
    if column.name in ("valid_from", "valid_to"):  # as Polars and pandas write times without a zone
        types = (*types, "timestamp_ntz")
    allowed = list(types) if column.required else [*types, MISSING]
    severity = ERROR if column.name in _READ_BY_COMPILE else WARNING
    text = (
        f"The column {column.name} is {' or '.join(types).upper()}{'' if column.required else ', where there is one'}"
    )
    return one_of(f"{column.name}_type", text, f"type_of_{column.name}", allowed, severity)


def enabled_rules(workspace: Workspace, scope: str, version: int) -> pl.DataFrame:
    """The enabled rules of a scope at a version of the rules table, with all columns, in lower case."""
    import polars as pl

    return _enabled(workspace.lake, version).filter(pl.col("scope") == scope)


def _enabled(lake: Lake, version: int | None = None) -> pl.DataFrame:
    """The enabled rules of all scopes, with all columns, in lower case."""
    import polars as pl

    rows = lake.arrow(NAME) if version is None else rules_at(lake, version)
    frame = pl.DataFrame(pl.from_arrow(rows))
    frame = frame.rename({name: name.lower() for name in frame.columns})
    return frame.filter(pl.col("enabled").fill_null(True)) if "enabled" in frame.columns else frame
