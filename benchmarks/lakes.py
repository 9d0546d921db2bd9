"""A session and lakes for benchmarks of the verbs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.compiling.results import ScopeResult
    from pipelines.workspace import Workspace


def session(folder: Path, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Spark on two cores, with its files below a folder."""
    from pipelines.settings.configuration import parse_configuration
    from pipelines.spark.session import open_session

    spark = {"spark.master": "local[2]", "spark.local.dir": str(folder / "local"), **(settings or {})}
    document = {"lake": {"root": "lake"}, "spark": spark}
    return open_session(parse_configuration(document, folder / "deltatag.toml"), quiet=True)


def lake(
    root: Path,
    spark: SparkSession | None,
    scope: str,
    rules: Sequence[str],
    id_type: str = "string",
    **tables: Mapping[str, Any],
) -> Workspace:
    """A lake with compiled rules of one scope; `tables` are those of the configuration beside `[lake]`."""
    workspace = uncompiled(root, spark, scope, rules, id_type, **tables)
    compile_rules(workspace, scope)
    return workspace


def compile_rules(workspace: Workspace, scope: str) -> ScopeResult:
    """Compiles the rules of a scope, all of which must be sound."""
    from pipelines.compile import compile_scopes

    (result,) = compile_scopes(workspace, [scope])
    if result.error or result.rejects:
        raise SystemExit(f"The rules did not compile: {result}")
    return result


def uncompiled(
    root: Path,
    spark: SparkSession | None,
    scope: str,
    rules: Sequence[str],
    id_type: str = "string",
    **tables: Mapping[str, Any],
) -> Workspace:
    """A lake with rules of one scope that no one has compiled yet."""
    from pipelines.lake.lake import arrow_schema
    from pipelines.table_definitions import LAKE_TABLES, RULES

    workspace = opened(root, spark, **tables)
    for name in LAKE_TABLES:
        workspace.lake.create(name, id_type)
    ids = [f"rule_{n:06d}" if id_type == "string" else n for n in range(len(rules))]
    rows = [{"rule_id": i, "scope": scope, "expression": text} for i, text in zip(ids, rules, strict=True)]
    table = pa.Table.from_pylist(rows, schema=arrow_schema(RULES, id_type))
    write_deltalake(workspace.lake.uri("rules"), table, mode="append")
    return workspace


def opened(root: Path, spark: SparkSession | None, **tables: Mapping[str, Any]) -> Workspace:
    """The workspace of a lake, which need not be there yet."""
    from pipelines.settings.configuration import parse_configuration
    from pipelines.workspace import Workspace

    configuration = parse_configuration({"lake": {"root": str(root)}, **tables}, root.parent / "deltatag.toml")
    return Workspace(configuration, spark)
