"""Quarantine in Spark: rows with NULL in the key, or a check that is not TRUE, are not tagged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions

from pipelines.error_texts import spark_message
from pipelines.errors import CheckError
from pipelines.lake.column_types import arrow_schema_of
from pipelines.settings.model import Stream
from pipelines.sources.columns import check_condition
from pipelines.spark.session import tested_column
from pipelines.writing.refused_rows import RefusedRows
from rules_index.names import back_quoted


def reason(spark: SparkSession, key: Sequence[str], checks: Mapping[str, str]) -> Column:
    """Why a row goes to quarantine: reasons joined by "; ", or an empty text for a row that is accepted."""
    reasons = [
        functions.when(functions.col(back_quoted(name)).isNull(), functions.lit(f"the key {name} is NULL"))
        for name in key
    ]
    for name, condition in checks.items():
        code = _truth(spark, condition)
        reasons.append(
            functions.when(code == 3, functions.lit(f"the check {name} raised an error"))
            .when(code == 2, functions.lit(f"the check {name} is NULL"))
            .when(code == 0, functions.lit(f"the check {name} is FALSE"))
        )
    return functions.concat_ws("; ", *reasons)


def is_accepted(spark: SparkSession, key: Sequence[str], checks: Mapping[str, str]) -> Column:
    """TRUE for a row that is tagged, FALSE for one that goes to quarantine; never NULL."""
    conditions = [functions.col(back_quoted(name)).isNotNull() for name in key]
    conditions += [_truth(spark, condition) == 1 for condition in checks.values()]
    kept = functions.lit(True)
    for condition in conditions:
        kept = kept & condition
    return kept


def count_refused(spark: SparkSession, frame: DataFrame, key: Sequence[str], checks: Mapping[str, str]) -> RefusedRows:
    """How many rows there are, and how many go to quarantine, by reason; reads only the columns that this needs."""
    flags = {"refused": ~is_accepted(spark, key, checks)}
    flags |= {f"key {number}": functions.col(back_quoted(name)).isNull() for number, name in enumerate(key)}
    for number, (name, condition) in enumerate(checks.items()):
        flags[f"check {number}"] = ~is_accepted(spark, (), {name: condition})
    # Spark treats guarded checks as nondeterministic, which aggregates do not allow: so flags first, then counts
    flagged = frame.select(*(flag.alias(name) for name, flag in flags.items()))
    counts = [functions.count_if(functions.col(back_quoted(name))).alias(name) for name in flags]
    row = flagged.agg(functions.count(functions.lit(1)).alias("rows"), *counts).first()
    assert row is not None
    nulls = tuple(int(row[f"key {number}"]) for number in range(len(key)))
    failed = tuple(int(row[f"check {number}"]) for number in range(len(checks)))
    return RefusedRows(int(row["rows"]), int(row["refused"]), nulls, failed)


def check_conditions(spark: SparkSession, stream: Stream, frame: DataFrame) -> None:
    """Raise CheckError for a check that is not a repeatable Boolean expression over the source's columns.

    Checks are restricted in the same way as rules: what is not repeatable, or reaches beyond the row, is refused.
    """
    columns = arrow_schema_of(frame.drop("source_version").schema.jsonValue()["fields"])
    for name, condition in stream.checks.items():
        check_condition(stream.name, name, condition, columns)
        try:
            frame.select(_truth(spark, condition))
        except PySparkException as error:
            message = f"The check {name} of the stream {stream.name} cannot be used: {spark_message(error)}"
            raise CheckError(message) from error


def _truth(spark: SparkSession, condition: str) -> Column:
    """The truth code of a condition: 0 FALSE, 1 TRUE, 2 NULL, 3 raised an error."""
    return tested_column(spark, condition, pa.bool_())
