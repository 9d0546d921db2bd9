"""The column of rule ids: an `arrow_udf` over only the columns that an index reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from pipelines.lake.column_types import ARROW_ID_TYPES
from pipelines.sources.positions import Add
from pipelines.sources.slices import rows_of
from pipelines.spark.session import BATCH_BYTES, NO_BYTE_LIMIT, tested_column
from rules_index.names import back_quoted_path
from rules_index.workers.spark_worker import Figures

if TYPE_CHECKING:
    import rules_index as ri
    from pipelines.workspace import Workspace
    from rules_index.language.typed import Leaf


RAISED = 3
"""The truth code of a derived Boolean on a row where evaluating it raised an error."""
_NARROW_ROW = 512
"""Average bytes of a row in its file above which batches are limited in bytes."""
_MOST_BATCH_BYTES = 64 << 20


class Matcher:
    """Applies one index to DataFrames of a stream."""

    def __init__(
        self,
        spark: SparkSession,
        compiled: ri.CompiledRules,
        path: Path,
        id_type: str,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        """path: the local file of the index `compiled`, named by its content; left_out: names of inputs that Spark does
        not evaluate, whose values are as if evaluating them raised an error."""
        self._spark = spark
        self._left_out = left_out
        self.compiled = compiled
        self._path = path
        self._id_type = id_type
        context = spark.sparkContext
        if not re.fullmatch(r"local(\[.*\])?", str(context.master)):
            # Spark ships each name once per session; a newer index has another name, since that is its content's hash
            context.addFile(str(path))
            for name in compiled.shared_files:
                if path.name != name and path.with_name(name).is_file():
                    context.addFile(str(path.with_name(name)))

    @property
    def constant(self) -> list[Any] | None:
        """The rule ids of every row if the index reads no column; else None."""
        if self.compiled.inputs:
            return None
        ids: list[Any] = self.compiled.match(pa.table({"_": pa.nulls(1)})).to_pylist()[0]
        return ids

    def column(self, leaf: Leaf) -> Column:
        """An input of the index as a column; a derived one has no name yet."""
        if leaf.name in self._left_out:
            return raised_column(leaf.type)
        if leaf.text is not None:
            return tested_column(self._spark, leaf.text, leaf.type)
        return functions.col(back_quoted_path(leaf.name))

    def with_inputs(self, frame: DataFrame) -> DataFrame:
        """The DataFrame with the index's derived columns appended, under the names that the index has."""
        derived = [self.column(leaf).alias(leaf.name) for leaf in self.compiled.inputs if leaf.text is not None]
        return frame.select("*", *derived) if derived else frame

    @property
    def file(self) -> Callable[[], str]:
        """A function by which workers find the index file; it is pickled by value."""
        name, path = self._path.name, str(self._path)

        def find() -> str:
            """The local path of the index file."""
            import os

            from pyspark import SparkFiles

            return path if os.path.isfile(path) else SparkFiles.get(name)

        return find

    def rule_ids(self, figures: Any = None) -> Column:
        """The rule ids of each row of a DataFrame `with_inputs`; figures: an accumulator that counts matches, or None.

        Derived inputs must already be columns of their own. If they are expressions among the function's arguments,
        with lambdas over long arrays and a NULL for a left-out input, Spark may not evaluate the function at all.
        """
        element = {"string": "string", "bigint": "bigint"}[self._id_type]
        constant = self.constant
        if constant is not None:
            return functions.array(*(functions.lit(i) for i in constant)).cast(f"array<{element}>")
        names = tuple(leaf.name for leaf in self.compiled.inputs)
        arrow_udf: Any = functions.__dict__["arrow_udf"]  # the stubs of pyspark do not know it
        function = arrow_udf(_tagger(self.file, names, self._id_type, figures), f"array<{element}>")
        read = [
            self.column(leaf) if leaf.text is None else functions.col(f"`{leaf.name}`") for leaf in self.compiled.inputs
        ]
        # Spark may evaluate a deterministic function twice: once for a filter on its result, once for the result
        return function.asNondeterministic()(*read)


def raised_column(data_type: pa.DataType) -> Column:
    """The value that `catalyst.derived_column` has if evaluation raises an error."""
    if pa.types.is_boolean(data_type):
        return functions.lit(RAISED).cast("tinyint")
    value = StructField("value", from_arrow_type(data_type))
    return functions.lit(None).cast(StructType([value]))


def bound_batches(workspace: Workspace, files: tuple[Add, ...]) -> None:
    """Limit the bytes of each Arrow batch that Spark hands to Python, if the rows of these files are long."""
    rows = rows_of(files)
    if BATCH_BYTES not in workspace.configuration.spark:
        narrow = rows is not None and sum(int(add["size"]) for _, add in files) <= rows * _NARROW_ROW
        workspace.spark.conf.set(BATCH_BYTES, NO_BYTE_LIMIT if narrow else str(_MOST_BATCH_BYTES))


def _tagger(
    file: Callable[[], str], names: tuple[str, ...], id_type: str, figures: Any
) -> Callable[[Iterator[Any]], Iterator[pa.Array]]:
    """The function that workers run. It is pickled by value, so that they need no module of `pipelines`."""

    def tag(batches: Iterator[Any]) -> Iterator[pa.Array]:
        """The rule ids of each row."""

        from rules_index.workers import spark_worker

        ids = ARROW_ID_TYPES[id_type]
        compiled = spark_worker.open_index(file())
        for batch in batches:
            columns = (batch,) if len(names) == 1 else batch
            matched, errors = spark_worker.match(compiled, names, columns, ids)
            if figures is not None:
                counts: Figures = {"rows": len(matched), "matches": len(matched.flatten())}
                counts.update({("error", rule): rows for rule, rows in errors.items() if rows})
                figures.add(counts)
            yield matched

    kinds = Iterator[pa.Array] if len(names) == 1 else Iterator[tuple[pa.Array, ...]]
    tag.__annotations__ = {"batches": kinds, "return": Iterator[pa.Array]}
    return tag
