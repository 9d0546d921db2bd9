"""Makes the tables of a lake for tests, and writes its rules."""

from __future__ import annotations

import functools
import json
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from deltalake import write_deltalake

from pipelines.lake.lake import Lake, arrow_schema
from pipelines.lake.table_cache import local_folder
from pipelines.settings.model import LakeSettings
from pipelines.table_definitions import LAKE_TABLES, RULES
from pipelines.workspace import Workspace

_NAMES = ("rule_id", "scope", "expression", "owner")


def make_tables(workspace: Workspace, id_type: str = "string") -> None:
    """The lake's own tables, empty. Those in a folder are copied, which takes a fifth of the time."""
    for name in LAKE_TABLES:
        root = workspace.configuration.lake.root
        folder = None if root is None else local_folder(workspace.lake.uri(name))
        if folder is None or Path(folder).exists():
            workspace.lake.create(name, id_type)
            continue
        log = Path(folder) / "_delta_log"
        log.mkdir(parents=True)
        text, table_id = _first_commit(name, id_type)
        (log / f"{0:020}.json").write_text(text.replace(table_id, str(uuid.uuid4())))


@functools.cache
def _first_commit(name: str, id_type: str) -> tuple[str, str]:
    """The text of the commit that creates a table, and the id of the table in it."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(LakeSettings(folder, None), _no_spark)
        lake.create(name, id_type)
        text = next(Path(lake.uri(name), "_delta_log").glob("*.json")).read_text()
    (table_id,) = (json.loads(line)["metaData"]["id"] for line in text.splitlines() if "metaData" in line[:12])
    return text, table_id


def _no_spark() -> Any:
    raise AssertionError("a table in a folder is created without Spark")


def rules_table(rules: Iterable[Any], id_type: str = "string") -> pa.Table:
    """Rows of the table of rules, from mappings of columns or tuples of id, scope, expression and, if given, owner."""
    rows = [rule if isinstance(rule, Mapping) else dict(zip(_NAMES, rule, strict=False)) for rule in rules]
    return pa.Table.from_pylist(rows, schema=arrow_schema(RULES, id_type))


def write_rules(workspace: Workspace, rules: Iterable[Any], mode: Literal["append", "overwrite"] = "append") -> None:
    """Add such rules to the table; with "overwrite" they replace all others."""
    table = rules_table(rules, workspace.lake.rule_id_type())
    write_deltalake(workspace.lake.uri("rules"), table, mode=mode)
