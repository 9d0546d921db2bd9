"""Joins of real tables: the numbers of pairs that are known, and fifty rules beside Spark's own join."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.sql import functions

from pipelines.compile import compile_scopes
from pipelines.join import join_streams
from tests.java import AS_IN_PRODUCTION

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
    ("process_create", "network_connect", PROCESS, ("60 s", "0 s"), 213),
    ("process_create", "image_load", PROCESS, ("60 s", "0 s"), 47_713),
    ("process_create", "registry_set", PROCESS, ("60 s", "0 s"), 11_895),
]
LARGE = [
    ("flights", "weather", ["origin"], ("0 s", "3 hours"), 484_478),
    ("image_load", "registry_set", PROCESS, ("10 s", "10 s"), 1_121_512),
]
"""Minutes each: only where DELTATAG_JOINS is `all`."""
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


@pytest.fixture
def spark_settings() -> dict[str, str]:
    """Code is compiled, as it is in production: these rows are many."""
    return AS_IN_PRODUCTION


@pytest.mark.parametrize(
    ("first", "second", "keys", "windows", "known"),
    [JOINS[0], *(pytest.param(*join, marks=pytest.mark.soak) for join in JOINS[1:])]
    + LARGE * (os.environ.get("DELTATAG_JOINS") == "all"),
)
def test_joins_of_real_tables(
    new_workspace, add_rules, data_folder: Path, first: str, second: str, keys: list[str], windows: Any, known: int
) -> None:
    tables = {name: pl.read_parquet(data_folder / f"{TABLES[name]}.parquet") for name in (first, second)}
    streams = {name: {"source": f"lake/{name}", "event_time": "ts"} for name in tables}
    join = {"streams": [first, second], "on": keys, "window": dict(zip(tables, windows, strict=True))}
    workspace: Workspace = new_workspace(streams, joins={"j": join})
    for name, table in tables.items():
        table.write_delta(workspace.configuration.streams[name].source)
    texts = {"every": "TRUE", **{f"r{number:02}": text for number, text in enumerate(rules_over(tables, known))}}
    add_rules(workspace, *((rule, "j", text) for rule, text in texts.items()))
    assert [result.rejects for result in compile_scopes(workspace, ["j"])] == [0]
    joined = join_streams(workspace, "j")
    found = workspace.spark.read.format("delta").load(workspace.lake.uri("j_tagged"))
    expected = expected_rows(workspace, first, second, keys, windows, texts)
    assert joined.joined == known
    assert summed(found, first, second) == summed(expected, first, second)
    assert joined.matches == found.agg(functions.sum(functions.size("rule_ids"))).first()[0] > known


def summed(rows: Any, first: str, second: str) -> tuple[int, ...]:
    """The number of rows, and what is the same of two frames only if they have the same rows."""
    number = functions.xxhash64(first, second, "rule_ids")
    sums = functions.count("*"), functions.sum(number.cast("decimal(20, 0)")), functions.bit_xor(number)
    return tuple(rows.agg(*sums).first())


def expected_rows(
    workspace: Workspace, first: str, second: str, keys: list[str], windows: tuple[str, str], texts: dict[str, str]
) -> Any:
    """The joined rows with the rules that are true of them, by Spark's own join and its own WHERE.

    A bucket of time is part of the join's key, since Spark would try all pairs of equal keys.
    """
    sources = [f"delta.`{workspace.configuration.streams[name].source}`" for name in (first, second)]
    bucket = f"unix_micros(CAST(ts AS TIMESTAMP)) div {max(SECONDS[window] for window in windows)}000000"
    near = f"explode(array({bucket} - 1, {bucket}, {bucket} + 1))"
    ids = ", ".join(f"IF({text}, '{rule}', NULL)" for rule, text in texts.items())
    equal = " AND ".join(f"{first}.{key} = {second}.{key}" for key in keys)
    latest = f"greatest({first}.ts, {second}.ts)"
    reach = " AND ".join(
        f"{name}.ts >= {latest} - INTERVAL {SECONDS[window]} SECONDS"
        for name, window in zip((first, second), windows, strict=True)
    )
    return workspace.spark.sql(
        f"SELECT {first}, {second}, array_compact(array({ids})) AS rule_ids "
        f"FROM (SELECT struct(*) AS {first}, {bucket} AS at FROM {sources[0]}) one "
        f"JOIN (SELECT struct(*) AS {second}, {near} AS at FROM {sources[1]}) other "
        f"ON one.at = other.at AND {equal} AND {reach}"
    )
