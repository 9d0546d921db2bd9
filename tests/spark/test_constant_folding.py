"""Calls and operations on constants have the value here that Spark gives them, and need no Spark."""

from __future__ import annotations

import os
import random
import re
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
from tests.spark_oracle import Oracle

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
