"""Calls and operations on constants have the value here that Spark gives them, and need no Spark."""

from __future__ import annotations

import os
import random
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.spark.session import in_time_zone
from rules_index.errors import RuleError
from rules_index.language.analyser import Analyser
from rules_index.language.evaluation.decimals import to_unscaled
from rules_index.language.parser import parse
from rules_index.language.scope import Scope
from rules_index.language.typed import Constant
from rules_index.names import quoted_text
from tests.random_expressions import Grammar
from tests.random_rows import rows as random_rows
from tests.spark.local_function_cases import CASES, rows
from tests.spark.test_local_functions import WITHOUT_TRY, plain
from tests.spark.test_random_expressions import assert_no_difference
from tests.spark_oracle import Oracle, Tally, compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = int(os.environ.get("DELTATAG_EXPRESSIONS", "120"))
DRAWN = 1 if COUNT == 120 else 10
"""Rows whose values stand in each call."""
NAME = re.compile(r"'(?:\\.|[^'\\])*'|\b[a-z]+[0-9]?\b(?! ?\()")
AT_ONCE = 200

pytestmark = pytest.mark.timeout(120 + COUNT)


def spelled(value: pa.Scalar) -> str | None:
    """A value as a constant expression; None for arrays and maps."""
    kind = value.type
    if pa.types.is_nested(kind):
        return None
    if not value.is_valid:
        name = {pa.string(): "STRING", pa.date32(): "DATE", pa.bool_(): "BOOLEAN"}.get(kind, "INT")
        return f"CAST(NULL AS {name})" if not (pa.types.is_timestamp(kind) or pa.types.is_floating(kind)) else None
    if pa.types.is_string(kind):
        return quoted_text(value.as_py())
    if pa.types.is_date(kind):
        return f"DATE'{value.as_py().isoformat()}'"
    if pa.types.is_timestamp(kind):
        word = "TIMESTAMP_NTZ" if kind.tz is None else "TIMESTAMP"
        return f"{word}'{value.as_py().replace(tzinfo=None).isoformat(' ')}{'' if kind.tz is None else 'Z'}'"
    if pa.types.is_floating(kind):
        return f"CAST('{value.as_py()!r}' AS {'FLOAT' if kind == pa.float32() else 'DOUBLE'})"
    if pa.types.is_decimal(kind):
        return f"CAST('{value.as_py():f}' AS DECIMAL({kind.precision},{kind.scale}))"
    if pa.types.is_boolean(kind):
        return str(value.as_py()).upper()
    name = {64: "BIGINT", 32: "INT", 16: "SMALLINT", 8: "TINYINT"}[kind.bit_width]
    return f"CAST('{value.as_py()}' AS {name})"


def of_constants(text: str, row: dict[str, pa.Scalar]) -> str | None:
    """A call with the values of a row in place of its columns; None if one is an array or a map."""
    values = {name: spelled(row[name]) for name in NAME.findall(text) if name in row}
    if not values or None in values.values():
        return None
    return NAME.sub(lambda found: values.get(found[0]) or found[0], text)


def folded(text: str, zone: str) -> Constant | None:
    """The value of a constant expression; None if it has none here, or if a value stands in place of a word."""
    try:
        node, tokens = parse(text, zone)
        tree = Analyser(tokens, Scope(pa.schema([]), zone)).value(node).local
    except RuleError:
        return None
    return tree if isinstance(tree, Constant) else None


@pytest.mark.parametrize("zone", ["America/St_Johns"])
def test_calls_of_constants_have_the_value_that_spark_gives_them(spark: SparkSession, zone: str) -> None:
    table, chance = rows(), random.Random(11)
    asked: dict[str, Constant] = {}
    calls = 0
    for text in (text for cases in CASES.values() for text in cases if not text.startswith(WITHOUT_TRY)):
        for _ in range(DRAWN):
            place = chance.randrange(table.num_rows)
            call = of_constants(text, {name: table[name][place] for name in table.column_names})
            constant = None if call is None else folded(call, zone)
            calls += call is not None
            if constant is not None:
                asked[call] = constant
    assert len(asked) > 0.75 * calls > 100 * DRAWN
    texts, faults = list(asked), []
    with in_time_zone(spark, zone):
        for start in range(0, len(texts), AT_ONCE):
            part = texts[start : start + AT_ONCE]
            found = spark.range(1).selectExpr(*(f"{each} AS c{number}" for number, each in enumerate(part))).toArrow()
            for text, column in zip(part, found.columns, strict=True):
                theirs = plain(column.combine_chunks())[0]
                mine = asked[text].value
                if pa.types.is_decimal(column.type) and theirs is not None:
                    theirs = to_unscaled(theirs, column.type.scale)
                if asked[text].type != column.type or (theirs != mine and repr(theirs) != repr(mine)):
                    faults.append(f"{text}: Spark {theirs!r} {column.type}, here {mine!r} {asked[text].type}")
    assert not faults, "\n".join(faults)


def test_rules_with_constant_parts_match_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = random_rows(40, 7)
    pq.write_table(table, tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    memory = Oracle(spark, spark.createDataFrame(table, schema=frame.schema))
    assert_no_difference(memory, table, Grammar(2027, 0.5, 0.5), COUNT, "auto", Oracle(spark, frame))


MOMENTS = [
    "to_date('2024-03-31')",
    "to_timestamp('2024-03-31 03:30:00')",
    "to_timestamp('2024-10-27 02:30:00')",
    "to_timestamp_ntz('2024-10-27 02:30:00')",
    "to_date('31.03.2024', 'dd.MM.yyyy')",
    "to_timestamp('31.03.2024 02', 'dd.MM.yyyy HH')",
    "DATE'2024-03-31' + 1",
    "DATE'2024-04-01' - INTERVAL 1 DAY",
    "TIMESTAMP'2024-03-31 00:00:00' + INTERVAL 150 MINUTES",
    "TIMESTAMP_NTZ'2024-03-31 00:00:00' + INTERVAL 150 MINUTES",
    "date_trunc('MONTH', TIMESTAMP'2024-03-31 02:30:00')",
    "date_trunc('DAY', DATE'2024-03-31')",
    "last_day(TIMESTAMP'2024-03-30 23:30:00')",
    "date_add(TIMESTAMP'2024-03-30 23:30:00', 1)",
    "CAST(to_timestamp('2024-03-31 03:30:00') AS DATE)",
    "CAST(to_date('2024-03-31') AS TIMESTAMP)",
    "CAST(date_add('2024-03-30', 1) AS TIMESTAMP_NTZ)",
    "timestampadd(DAY, 1, TIMESTAMP'2024-03-30 02:30:00')",
    "timestamp_seconds(1711848600)",
    "from_utc_timestamp(TIMESTAMP'2024-03-31 00:30:00', 'America/New_York')",
    "add_months(DATE'2024-01-31', 2)",
    "concat('2024-03-', '31')",
    "substring('x2024-03-31 02:30:00', 2)",
    "make_date(2024, 3, 31)",
]
FORMS = ["{c} {o} {m}", "{m} {o} {c}", "CAST({c} AS {k}) {o} {m}", "{c} IN ({m}, {l})", "{c} BETWEEN {m} AND {l}"]


@pytest.mark.parametrize("zone", ["Europe/Berlin"])
def test_times_compared_with_computed_ones_match_as_in_spark(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    """Spark's optimiser moves casts to constants, whether they are written or computed."""
    moments = [datetime(2024, 3, 30, 23) + timedelta(minutes=30 * each) for each in range(60)]
    table = pa.table(
        {
            "pk": pa.array(range(60), pa.int64()),
            "t": pa.array(moments, pa.timestamp("us", "UTC")),
            "n": pa.array(moments, pa.timestamp("us")),
            "d": pa.array([each.date() for each in moments], pa.date32()),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    chance = random.Random(4)
    texts = [
        chance.choice(FORMS).format(
            c=column,
            m=moment,
            o=chance.choice(["=", "<", ">=", "<>", "<=>"]),
            k=chance.choice(["DATE", "TIMESTAMP", "TIMESTAMP_NTZ"]),
            l=chance.choice([*MOMENTS, "TIMESTAMP'2024-04-02 00:00:00'", "DATE'2024-04-01'"]),
        )
        for column in ("t", "n", "d")
        for moment in MOMENTS
        for _ in range(DRAWN)
    ]
    tally = Tally()
    with in_time_zone(spark, zone):
        oracle = Oracle(spark, spark.read.parquet(str(tmp_path / "rows.parquet")))
        compare(oracle, table, texts, tally, time_zone=zone)
    print(tally)
    assert not tally.differences, "\n".join(map(str, tally.differences))
    assert tally.compared > 0.9 * len(texts)
