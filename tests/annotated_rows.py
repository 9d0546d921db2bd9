"""A lake whose tagged rows have annotations, and brute force over `rules` and `_matches` by SQLite."""

from __future__ import annotations

import json
import sqlite3
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.join import join_streams
from pipelines.lake.lake import arrow_schema
from pipelines.table_definitions import RULES
from pipelines.workspace import Workspace

STREAM = {"source": "lake/source", "key": ["seq"], "annotations": ["first_rule_id", "labels", "severity"]}
SEVERITIES = ("informational", "low", "medium", "high", "critical")
_POWER = "power(n, 1) % 2 = 0"
RULES_OF_S = (
    {
        "rule_id": "b",
        "expression": "n > 3",
        "priority": 2,
        "labels": {"team": "fraud", "kind": None},
        "severity": "low",
    },
    {"rule_id": "a", "expression": "n > 5", "priority": 2, "labels": {"team": "fraud", "level": "high"}},
    {"rule_id": "c", "expression": f"{_POWER} AND n < 9", "priority": None, "labels": {"severity": "critical"}},
    {"rule_id": "é", "expression": "w = 'x'", "priority": -5, "labels": {"é": "\U0001f600,x"}},
    {"rule_id": "d", "expression": "n IS NULL", "priority": 7},
)
"""One with a power, which only Spark evaluates: see `local`."""
EDITED = [
    rule
    | ({"priority": 9, "severity": "medium"} if rule["rule_id"] == "é" else {})
    | ({"labels": {"team": "risk"}} if rule["rule_id"] == "b" else {})
    for rule in RULES_OF_S
]


def local(rules: Any) -> list[dict[str, Any]]:
    """The rules as a process without Spark evaluates them."""
    return [rule | {"expression": rule["expression"].replace(_POWER, "n IN (0, 2, 4, 6, 8)")} for rule in rules]


def rows(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    return pa.table(
        {
            "seq": pa.array(numbers, pa.int64()),
            "n": pa.array([None if n % 7 == 3 else n % 12 for n in numbers], pa.int32()),
            "w": pa.array([("x", "y", None)[n % 3] for n in numbers]),
        }
    )


def joined_lake(new_workspace: Any, **options: Any) -> tuple[Workspace, list[dict[str, Any]]]:
    """A lake whose join `j` has been tagged, and the rules of `j`."""
    streams = {"s": {"source": "lake/source", "event_time": "t"}, "o": {"source": "lake/other", "event_time": "t"}}
    join = {"streams": ["s", "o"], "on": ["seq"], "window": "1 hour", "annotations": STREAM["annotations"]}
    made = new_workspace(streams, **options, joins={"j": join})
    times = pa.array([datetime(2024, 1, 1)] * 50, pa.timestamp("us", "UTC"))
    for stream in ("s", "o"):
        write_deltalake(made.configuration.streams[stream].source, rows(0, 50).append_column("t", times))
    qualified = [
        rule | {"expression": rule["expression"].replace("n ", "s.n ").replace("w ", "o.w ")}
        for rule in local(RULES_OF_S)
    ]
    write_rules(made, qualified, "j")
    compile_scopes(made)
    join_streams(made, "j")
    return made, qualified


def append(workspace: Workspace, start: int, stop: int) -> None:
    for first in range(start, stop, 40):
        write_deltalake(workspace.configuration.streams["s"].source, rows(first, min(first + 40, stop)), mode="append")


def write_rules(workspace: Workspace, rules: Any, scope: str = "s") -> None:
    """The table of rules with these, and a column for severity."""
    schema = arrow_schema(RULES, workspace.lake.rule_id_type()).append(pa.field("severity", pa.string()))
    made = [rule | {"scope": scope, "labels": list((rule.get("labels") or {}).items())} for rule in rules]
    table = pa.Table.from_pylist(made, schema=schema)
    write_deltalake(workspace.lake.uri("rules"), table, mode="overwrite", schema_mode="overwrite")


def tagged(workspace: Workspace, name: str = "s") -> dict[int, tuple[Any, ...]]:
    """Ids and annotations of each row, by its number."""
    table = DeltaTable(workspace.lake.uri(f"{name}_tagged")).to_pyarrow_table().to_pylist()
    found = {r["seq"]: (r["rule_ids"], r["first_rule_id"], r["labels"], r["severity"]) for r in table}
    assert len(found) == len(table)
    return found


def by_sql(workspace: Workspace, name: str = "s") -> dict[int, tuple[Any, ...]]:
    """The same of each row that matches, by SQLite over `rules` and the matches."""
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE rules (rule_id, priority, severity)")
    base.execute("CREATE TABLE labels (rule_id, label)")
    base.execute("CREATE TABLE matches (rule_id, seq)")
    for rule in DeltaTable(workspace.lake.uri("rules")).to_pyarrow_table().to_pylist():
        labels = dict(rule["labels"] or ())
        said = rule["severity"] or labels.get("severity") or labels.get("level")
        level = SEVERITIES.index(said) if said else None
        base.execute("INSERT INTO rules VALUES (?, ?, ?)", (rule["rule_id"], rule["priority"], level))
        texts = [key if value is None else f"{key}={value}" for key, value in labels.items()]
        base.executemany("INSERT INTO labels VALUES (?, ?)", [(rule["rule_id"], text) for text in texts])
    pairs = DeltaTable(workspace.lake.uri(f"{name}_matches")).to_pyarrow_table(columns=["rule_id", "seq"]).to_pylist()
    base.executemany("INSERT INTO matches VALUES (?, ?)", [(pair["rule_id"], pair["seq"]) for pair in pairs])
    found = {}
    for (seq,) in base.execute("SELECT DISTINCT seq FROM matches").fetchall():
        mine = "FROM matches JOIN rules USING (rule_id) WHERE seq = ?"
        ids = [i for (i,) in base.execute(f"SELECT rule_id {mine} ORDER BY rule_id", (seq,))]
        first = base.execute(f"SELECT rule_id {mine} ORDER BY priority NULLS LAST, rule_id LIMIT 1", (seq,)).fetchone()[
            0
        ]
        text = f"SELECT DISTINCT label FROM labels WHERE rule_id IN (SELECT rule_id {mine}) ORDER BY label"
        labels = [label for (label,) in base.execute(text, (seq,))]
        (worst,) = base.execute(f"SELECT max(severity) {mine}", (seq,)).fetchone()
        found[seq] = (ids, first, labels, None if worst is None else SEVERITIES[worst])
    return found


def assert_annotated(workspace: Workspace, name: str = "s") -> None:
    """Each row has what SQLite says; one without rules has nothing."""
    found = tagged(workspace, name)
    assert {seq: row for seq, row in found.items() if row[0]} == by_sql(workspace, name)
    assert all(row == ([], None, [], None) for row in found.values() if not row[0])


def check_bounds(workspace: Workspace, name: str = "s") -> None:
    """What the log says of each file's least and largest values is true of it."""
    table = DeltaTable(workspace.lake.uri(f"{name}_tagged"))
    for add in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        rows_of_file = pa.parquet.read_table(f"{workspace.lake.uri(f'{name}_tagged')}/{add['path']}").to_pylist()
        for column in ("first_rule_id", "severity"):
            values = [row[column] for row in rows_of_file if row[column] is not None]
            if add.get(f"min.{column}") is not None:
                assert (add[f"min.{column}"], add[f"max.{column}"]) == (min(values), max(values)), json.dumps(str(add))
