"""Asks Spark whether it understands the parts of rules that only Spark can evaluate; no row is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.lake import first_line
from pipelines.schema import arrow_schema_of
from pipelines.session import tested_column

if TYPE_CHECKING:
    from pipelines.scopes import Scope
    from rules_index.expressions.tree import Leaf

_AT_ONCE = 64


def spark_analyser(scope: Scope) -> Callable[[Sequence[Leaf]], list[str | None]]:
    """A function that gives, for each derived leaf over the scope's columns, None or why Spark refuses it.

    Spark is started when it is called, so rules that the index understands whole need no JVM.
    """

    def analyse(leaves: Sequence[Leaf]) -> list[str | None]:
        rows = scope.no_rows()
        answers: dict[Leaf, str | None] = {}
        for start in range(0, len(leaves), _AT_ONCE):
            answers |= _ask(scope.workspace.spark, rows, list(leaves[start : start + _AT_ONCE]))
        return [answers[leaf] for leaf in leaves]

    return analyse


def _ask(spark: Any, rows: Any, leaves: list[Leaf]) -> dict[Leaf, str | None]:
    """One question for many leaves; where it fails, one for each half, down to the one at fault."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from pipelines.delta_internals import java_message
    from rules_index import RuleError

    try:
        columns = [tested_column(spark, leaf.text or "", leaf.type).alias(leaf.name) for leaf in leaves]
        schema = arrow_schema_of(rows.select(*columns).schema.json())
    except RuleError as error:
        if len(leaves) == 1:
            return {leaves[0]: error.message}
    except PySparkException as error:
        if len(leaves) == 1:
            return {leaves[0]: spark_message(error)}
    except Py4JJavaError as error:
        if len(leaves) == 1:
            return {leaves[0]: java_message(error)}
    else:
        return {leaf: _type_differs(leaf, schema.field(leaf.name).type) for leaf in leaves}
    middle = len(leaves) // 2
    return _ask(spark, rows, leaves[:middle]) | _ask(spark, rows, leaves[middle:])


def _type_differs(leaf: Leaf, found: pa.DataType) -> str | None:
    """A derived Boolean arrives as a truth code, any other value inside a struct that is NULL where it raised."""
    if pa.types.is_boolean(leaf.type):
        return None if pa.types.is_int8(found) else f"Spark gives {found} for {leaf.text}, not a truth value."
    inner = found.field(0).type if pa.types.is_struct(found) else found
    return None if inner == leaf.type else f"Spark gives {inner} for {leaf.text}, where the rules expect {leaf.type}."


def spark_message(error: Exception) -> str:
    """The first line of a Spark error without its class and SQL state, for the author of a rule."""
    text = first_line(error)
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text)
    return re.sub(r"\s*SQLSTATE: [0-9A-Z]{5}.*$", "", text)
