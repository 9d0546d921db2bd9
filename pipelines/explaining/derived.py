"""Evaluates the derived columns of rules, by Spark, on a few rows in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipelines.error_texts import first_line
from pipelines.errors import SourceError
from rules_index.explaining.rule import rule_of
from rules_index.language.typed import Leaf
from rules_index.names import path_parts

if TYPE_CHECKING:
    import rules_index as ri
    from pipelines.scopes import Scope

_PLACE = "_deltatag_place"


class RaisedError(Exception):
    """Evaluating a part of a rule raised an error: for matching, that part is NULL."""


def needs_of(compiled: ri.CompiledRules, rules: Iterable[Any]) -> tuple[list[Leaf], set[str]]:
    """The leaves of some rules that Spark must evaluate, and the columns that those leaves read; both may be empty."""
    if not compiled.derived:
        return [], set()
    leaves: dict[str, Leaf] = {}
    columns: set[str] = set()
    for rule in rules:
        for part in rule_of(compiled, rule).predicates:
            derived = [leaf for leaf in part.leaves if leaf.text is not None]
            leaves |= {leaf.name: leaf for leaf in derived}
            columns |= {path_parts(leaf.name)[0] for leaf in part.columns} if derived else set()
    return list(leaves.values()), columns


def derived_values(scope: Scope, rows: pa.Table, leaves: Collection[Leaf], columns: set[str]) -> list[dict[str, Any]]:
    """For each row the values of `leaves` by name; a RaisedError instead of a value if evaluating it raised.

    rows: with at least `columns`, which the texts of the leaves read. SourceError if Spark refuses a leaf.
    """
    if not leaves or not rows.num_rows:
        return [{} for _ in range(rows.num_rows)]
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql.types import LongType, StructField, StructType

    from pipelines.spark.session import tested_column

    workspace = scope.workspace
    workspace.progress("evaluating with Spark what only it evaluates")
    try:
        with workspace.active_session() as spark:
            fields = [field for field in scope.no_rows().schema.fields if field.name in columns]
            schema = StructType([StructField(_PLACE, LongType()), *(_nullable(field) for field in fields)])
            given = [pa.array(np.arange(rows.num_rows)), *(rows.column(field.name) for field in fields)]
            frame = spark.createDataFrame(pa.table(given, [_PLACE, *(field.name for field in fields)]), schema)
            tried = [tested_column(spark, str(leaf.text), leaf.type).alias(f"c{i}") for i, leaf in enumerate(leaves)]
            # unlike toArrow(), this gets structs right, NULL ones included
            chosen: Any = frame.select(_PLACE, *tried)
            found = pa.Table.from_batches(chosen._collect_as_arrow())
    except (PySparkException, Py4JJavaError, pa.ArrowException, TypeError) as error:
        texts = ", ".join(str(leaf.text) for leaf in leaves)
        raise SourceError(
            f"Only Spark evaluates {texts}, and that failed on these rows: {first_line(error)}"
        ) from error
    found = found.sort_by(_PLACE)
    values = [_values(found.column(f"c{number}"), leaf) for number, leaf in enumerate(leaves)]
    names = [leaf.name for leaf in leaves]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _nullable(field: Any) -> Any:
    from pyspark.sql.types import StructField

    return StructField(field.name, field.dataType, True, field.metadata)


def _values(column: pa.ChunkedArray, leaf: Leaf) -> list[Any]:
    """The values of a derived column, decoded from the form that `catalyst.derived_column` gives."""
    listed = column.to_pylist(maps_as_pydicts="lossy")
    if pa.types.is_boolean(leaf.type):
        return [RaisedError() if code == 3 else (False, True, None)[code] for code in listed]
    return [RaisedError() if each is None else each["value"] for each in listed]
