"""What is expected of the rules table before it is compiled, from the table's own definition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines.errors import MissingTableError, TableError
from pipelines.tables import ID_TYPES, RULES, Column
from quality.findings import ERROR, WARNING, Expectation
from quality.validation import Suite, between, measured, one_of

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from pipelines.config import Configuration, Stream
    from pipelines.lake import Lake
    from pipelines.workspace import Workspace

NAME = "rules"
MISSING = "missing"
_READ_BY_COMPILE = ("rule_id", "scope", "expression", "enabled", "valid_from", "valid_to")
_REQUIRED = tuple(column.name for column in RULES.columns if column.required)
_SPARK_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def structure_expectations(configuration: Configuration) -> tuple[Expectation, ...]:
    """What holds for the table as a whole: its columns, and the share of rules that are refused for their row."""
    limit = configuration.rules.max_reject_share
    return (
        one_of("table", "The rules table is there and can be read", "table", ["readable"]),
        *(_type_expectation(column) for column in RULES.columns),
        between(
            "reject_share",
            "Share of enabled rules that are refused for a NULL, a repeated id or an unknown scope",
            "reject_share",
            0,
            limit,
        ),
    )


def row_expectations(configuration: Configuration) -> tuple[Expectation, ...]:
    """What should hold for each enabled rule; one that breaks it is rejected alone."""
    scopes = [*configuration.streams, *configuration.joins]
    return (
        *(
            Expectation(
                f"{name}_not_null",
                WARNING,
                f"Every enabled rule has its {name}",
                "ExpectColumnValuesToNotBeNull",
                {"column": name},
            )
            for name in _REQUIRED
        ),
        Expectation(
            "rule_id_unique",
            WARNING,
            "No two enabled rules have the same rule_id",
            "ExpectColumnValuesToBeUnique",
            {"column": "rule_id"},
        ),
        one_of("scope_known", "Every scope is a configured stream or join", "scope", scopes, WARNING),
    )


def suites(workspace: Workspace) -> tuple[list[Suite], dict[str, Any]]:
    """The suites over the newest version of the table, and the measures behind them."""
    configuration = workspace.configuration
    measures: dict[str, Any] = {"table": "readable"}
    kinds: dict[str, str] = {}
    try:
        kinds = column_types(workspace.lake)
        measures["rules_version"] = workspace.lake.version(NAME)
    except (MissingTableError, TableError) as error:
        measures["table"] = str(error)
    measures |= {f"type_of_{column.name}": kinds.get(column.name, MISSING) for column in RULES.columns}
    structure = structure_expectations(configuration)
    sound = all(measures[e.arguments["column"]] in e.arguments["value_set"] for e in structure if _stops(e))
    rows = _judged_rules(workspace.lake) if sound else _no_rules()
    refused = _refused(workspace) if sound else 0
    measures |= {"rules": len(rows), "refused": refused, "reject_share": refused / len(rows) if len(rows) else 0.0}
    judged = [Suite("rules_structure", structure, measured(measures))]
    judged.append(Suite(NAME, row_expectations(configuration), rows))
    return judged, measures


def column_types(lake: Lake) -> dict[str, str]:
    """The table's columns, in lower case, with their types as Spark SQL spells them."""
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
    allowed = list(types) if column.required else [*types, MISSING]
    severity = ERROR if column.name in _READ_BY_COMPILE else WARNING
    text = (
        f"The column {column.name} is {' or '.join(types).upper()}{'' if column.required else ', where there is one'}"
    )
    return one_of(f"{column.name}_type", text, f"type_of_{column.name}", allowed, severity)


def _stops(expectation: Expectation) -> bool:
    return expectation.severity == ERROR and "value_set" in expectation.arguments


def enabled_rules(workspace: Workspace, stream: Stream, version: int) -> pl.DataFrame:
    """The enabled rules of a stream at a version of the rules table, all columns, their names in lower case."""
    import polars as pl

    return _enabled(workspace.lake, version).filter(pl.col("scope") == stream.name)


def _enabled(lake: Lake, version: int | None = None) -> pl.DataFrame:
    import polars as pl

    frame = pl.DataFrame(pl.from_arrow(lake.arrow(NAME, version=version)))
    frame = frame.rename({name: name.lower() for name in frame.columns})
    return frame.filter(pl.col("enabled").fill_null(True)) if "enabled" in frame.columns else frame


def _judged_rules(lake: Lake) -> pd.DataFrame:
    """rule_id (as text), scope and expression of the enabled rules."""
    import polars as pl

    return _enabled(lake).select(pl.col(_REQUIRED).cast(pl.String)).to_pandas().astype(object)


def _no_rules() -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({name: pd.Series(dtype=object) for name in _REQUIRED})


def _refused(workspace: Workspace) -> int:
    """How many enabled rules the compiler refuses without looking at their expressions."""
    from pipelines.compile import read_rules

    configuration = workspace.configuration
    return read_rules(workspace.lake, [*configuration.streams, *configuration.joins]).rejects.height
