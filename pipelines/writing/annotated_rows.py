"""Annotation columns for Spark's writer: an `arrow_udf` over the rule ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions

from rules_index.index.annotations import Annotations

_TYPES = {"first_rule_id": None, "labels": "array<string>", "severity": "string"}


def with_annotations(frame: DataFrame, annotations: Annotations | None) -> DataFrame:
    """The DataFrame with annotation columns appended, by its column `rule_ids`."""
    if annotations is None:
        return frame
    return frame.withColumns(dict(annotation_columns_of(annotations, functions.col("rule_ids"))))


def annotation_columns_of(annotations: Annotations | None, ids: Column) -> list[tuple[str, Column]]:
    """The annotation columns, with their names, for a column of rule ids."""
    if annotations is None:
        return []
    arrow_udf: Any = functions.__dict__["arrow_udf"]  # the stubs of pyspark do not know it
    element = "bigint" if pa.types.is_integer(annotations.ids.type) else "string"
    found = []
    for name in annotations.types():
        alone = annotations.chosen([name])
        assert alone is not None
        function = arrow_udf(_annotator(alone, name), _TYPES[name] or element)
        found.append((name, function(ids)))
    return found


def _annotator(annotations: Annotations, name: str) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    """The function that workers run. It is pickled by value, so that they need no module of `pipelines`."""

    def annotate(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """The annotation of each list of rule ids."""
        from rules_index.index.annotations import plain

        for lists in batches:
            yield plain(annotations.of_ids(lists))[name]

    annotate.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    return annotate
