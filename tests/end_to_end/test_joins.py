"""Joins of real tables: the numbers of pairs that are known, and fifty rules beside Spark's own join."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.sql import functions

from pipelines.compile import compile_scopes
from pipelines.join import join_streams

if TYPE_CHECKING:
    from pipelines.workspace import Workspace

pytestmark = [pytest.mark.data, pytest.mark.timeout(1800)]

TABLES = {
    "flights": "pnwflights14/flights",
    "weather": "pnwflights14/weather",
    "process_create": "sysmon/sysmon_01_process_create",
    "network_connect": "sysmon/sysmon_03_network_connect",
    "image_load": "sysmon/sysmon_07_image_load",
    "registry_set": "sysmon/sysmon_13_registry_set",
}
PROCESS = ["Hostname", "ProcessGuid"]
JOINS = [
    ("flights", "weather", ["origin"], ("0 s", "3 hours"), 484_478),
    ("process_create", "network_connect", PROCESS, ("60 s", "0 s"), 213),
    ("process_create", "image_load", PROCESS, ("60 s", "0 s"), 47_713),
    ("process_create", "registry_set", PROCESS, ("60 s", "0 s"), 11_895),
    ("image_load", "registry_set", PROCESS, ("10 s", "10 s"), 1_121_512),
]
SECONDS = {"0 s": 0, "10 s": 10, "60 s": 60, "3 hours": 10_800}
RULES = 50


def rules_over(tables: dict[str, pl.DataFrame], seed: int) -> list[str]:
    """Rules that name values of both tables, some of them frequent, some of them seen once."""
    draw = random.Random(seed)

    def predicate(name: str) -> str:
        table = tables[name]
        column = draw.choice([c for c in table.columns if c not in ("ts", "_src", "time_hour")])
        values = table[column].drop_nulls()
        value = values[draw.randrange(len(values))] if len(values) else 0
        if isinstance(value, str):
            text = value.replace("\\", "\\\\").replace("'", "\\'")
            return f"{name}.`{column}` = '{text}'"
        return f"{name}.`{column}` {draw.choice(('<', '>=', '='))} {value!r}"

    first, second = tables
    texts = [f"{predicate(first)} AND {predicate(second)}" for _ in range(RULES - 20)]
    texts += [f"{predicate(first)} AND {predicate(first)}" for _ in range(10)]
    return texts + [f"{predicate(first)} AND NOT ({predicate(second)} OR {predicate(second)})" for _ in range(10)]


@pytest.mark.parametrize(("first", "second", "keys", "windows", "known"), JOINS)
def test_joins_of_real_tables(
    new_workspace, add_rules, data_folder: Path, first: str, second: str, keys: list[str], windows: Any, known: int
) -> None:
    tables = {name: pl.read_parquet(data_folder / f"{TABLES[name]}.parquet") for name in (first, second)}
    streams = {name: {"source": f"lake/{name}", "event_time": "ts"} for name in tables}
    join = {"streams": [first, second], "on": keys, "window": dict(zip(tables, windows, strict=True))}
    workspace: Workspace = new_workspace(streams, joins={"every": join, "ruled": join})
    for name, table in tables.items():
        table.write_delta(workspace.configuration.streams[name].source)
    texts = {f"r{number:02}": text for number, text in enumerate(rules_over(tables, known))}
    add_rules(workspace, ("all", "every", "TRUE"), *((rule, "ruled", text) for rule, text in texts.items()))
    assert [result.rejects for result in compile_scopes(workspace, ["every", "ruled"])] == [0, 0]
    assert join_streams(workspace, "every").joined == known
    joined = join_streams(workspace, "ruled")
    expected = expected_rows(workspace, first, second, keys, windows, texts)
    found = workspace.spark.read.format("delta").load(workspace.lake.uri("ruled_tagged"))
    found = found.select(first, second, "rule_ids").cache()
    assert joined.joined == found.count() == expected.count()
    assert joined.matches == found.agg(functions.sum(functions.size("rule_ids"))).first()[0]
    assert found.exceptAll(expected).isEmpty() and expected.exceptAll(found).isEmpty()


def expected_rows(
    workspace: Workspace, first: str, second: str, keys: list[str], windows: tuple[str, str], texts: dict[str, str]
) -> Any:
    """The joined rows that some rule is true of, by Spark's own join and its own WHERE."""
    ids = ", ".join(f"IF({text}, '{rule}', NULL)" for rule, text in texts.items())
    sources = [f"delta.`{workspace.configuration.streams[name].source}` {name}" for name in (first, second)]
    equal = " AND ".join(f"{first}.{key} = {second}.{key}" for key in keys)
    latest = f"greatest({first}.ts, {second}.ts)"
    reach = " AND ".join(
        f"{name}.ts >= {latest} - INTERVAL {SECONDS[window]} SECONDS"
        for name, window in zip((first, second), windows, strict=True)
    )
    rows = workspace.spark.sql(
        f"SELECT struct({first}.*) AS {first}, struct({second}.*) AS {second}, array_compact(array({ids})) AS rule_ids "
        f"FROM {sources[0]} JOIN {sources[1]} ON {equal} AND {reach}"
    )
    return rows.filter(functions.size("rule_ids") > 0).cache()
