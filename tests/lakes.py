"""Makes the tables of a lake for tests, and writes its rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import pyarrow as pa
from deltalake import write_deltalake

from pipelines.lake.lake import arrow_schema
from pipelines.table_definitions import LAKE_TABLES, RULES
from pipelines.workspace import Workspace

_NAMES = ("rule_id", "scope", "expression", "owner")


def make_tables(workspace: Workspace, id_type: str = "string") -> None:
    """The lake's own tables, empty."""
    for name in LAKE_TABLES:
        workspace.lake.create(name, id_type)


def rules_table(rules: Iterable[Any], id_type: str = "string") -> pa.Table:
    """Rows of the table of rules, from mappings of columns or tuples of id, scope, expression and, if given, owner."""
    rows = [rule if isinstance(rule, Mapping) else dict(zip(_NAMES, rule, strict=False)) for rule in rules]
    return pa.Table.from_pylist(rows, schema=arrow_schema(RULES, id_type))


def write_rules(workspace: Workspace, rules: Iterable[Any], mode: Literal["append", "overwrite"] = "append") -> None:
    """Add such rules to the table; with "overwrite" they replace all others."""
    table = rules_table(rules, workspace.lake.rule_id_type())
    write_deltalake(workspace.lake.uri("rules"), table, mode=mode)
