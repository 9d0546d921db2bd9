"""Asks Spark whether it understands the parts of rules that only Spark can evaluate; no row is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from pipelines.lake.schema import arrow_schema_of
from pipelines.spark.session import know_internals
from pipelines.spark.sql_text import spark_message
from rules_index.errors import RuleError, unforeseen
from rules_index.language.typed import Leaf, authors_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from pipelines.scopes import Scope

_AT_ONCE = 64


def spark_analyser(scope: Scope) -> Callable[[Sequence[Leaf]], list[RuleError | None]]:
    """A function that gives, for each derived leaf over the scope's columns, None or why Spark refuses it.

    Spark is started when it is called, so rules that the index understands whole need no JVM.
    """

    def analyse(leaves: Sequence[Leaf]) -> list[RuleError | None]:
        answers: dict[Leaf, RuleError | None] = {}
        with scope.workspace.active_session() as spark:
            know_internals(spark)
            rows = scope.no_rows()
            for start in range(0, len(leaves), _AT_ONCE):
                answers |= _ask(spark, rows, list(leaves[start : start + _AT_ONCE]))
        return [answers[leaf] for leaf in leaves]

    return analyse


def _ask(spark: SparkSession, rows: DataFrame, leaves: list[Leaf]) -> dict[Leaf, RuleError | None]:
    """One question for many leaves; where it fails, one for each half, down to the one at fault.

    Spark is asked for the type of the bare text in a struct: a truth code, as the jobs have it, would cast it.
    """
    try:
        answer = _types(spark, rows, [leaf.text or "" for leaf in leaves])
        if not isinstance(answer, RuleError):
            return {leaf: _type_differs(leaf, found) for leaf, found in zip(leaves, answer, strict=True)}
        if len(leaves) == 1:
            return {leaves[0]: _no_condition(spark, rows, leaves[0]) or answer}
    except MemoryError:
        raise
    except Exception as error:  # whatever it is, it must not keep the other rules from being compiled
        if not _lives(spark):
            raise
        if len(leaves) == 1:
            return {leaves[0]: unforeseen(error)}
    middle = len(leaves) // 2
    return _ask(spark, rows, leaves[:middle]) | _ask(spark, rows, leaves[middle:])


def _lives(spark: SparkSession) -> bool:
    """False where the session's JVM has ended, which is no fault of the rule that was asked about."""
    from py4j.protocol import Py4JError

    jvm: Any = spark._jvm
    try:
        return bool(jvm.java.lang.System.nanoTime())
    except (Py4JError, OSError):
        return False


def _types(spark: SparkSession, rows: DataFrame, texts: Sequence[str]) -> list[DataType] | RuleError:
    """The types that Spark gives to the texts, or why it refuses one of them.

    The plan is optimised too: Spark computes some constants then, and an error there would end the whole job.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from pipelines.spark.catalyst import column_in_struct
    from pipelines.spark.delta_internals import java_message

    try:
        asked = rows.select(*(column_in_struct(spark, text).alias(str(i)) for i, text in enumerate(texts)))
        schema = asked.schema
        asked._jdf.queryExecution().optimizedPlan()
    except RuleError as error:
        return error
    except PySparkException as error:
        return RuleError("ANALYSIS", spark_message(error))
    except Py4JJavaError as error:
        return RuleError("ANALYSIS", java_message(error))
    return [cast("StructType", field.dataType)["value"].dataType for field in schema.fields]


def _type_differs(leaf: Leaf, found: DataType) -> RuleError | None:
    """Why a leaf of Spark's type `found` is not what the rules take it for; None where it is."""
    from pyspark.sql.types import StructField, StructType

    name = found.simpleString().upper()
    if pa.types.is_boolean(leaf.type):
        message = f"A rule must be a condition, and Spark says that this is {name}."
        return None if name == "BOOLEAN" else RuleError("NOT_BOOLEAN", message)
    if arrow_schema_of(StructType([StructField("value", found)]).json()).field(0).type == leaf.type:
        return None
    return RuleError("ANALYSIS", f"Spark gives {name} for {leaf.text}, where the rules expect {leaf.type}.")


def _no_condition(spark: SparkSession, rows: DataFrame, leaf: Leaf) -> RuleError | None:
    """The error of a part that Spark refuses for its type alone, since a condition is needed there."""
    text = authors_text(leaf)
    types = _types(spark, rows, [text]) if text != leaf.text else []
    if isinstance(types, RuleError) or not types:
        return None
    name = types[0].simpleString().upper()
    return RuleError("NOT_BOOLEAN", f"A condition is needed here, and Spark says that this is {name}.")
