"""The rows of a micro-batch, shuffled to the partitions in which they join, for all joins that read the same rows.

Before the shuffle, rows that cannot satisfy any rule are filtered out: those on which no conjunction's part about their
stream holds. If several joins read the same rows, these are read, filtered and shuffled once, and kept until all joins
have matched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions
from pyspark.storagelevel import StorageLevel

from pipelines.joining.hot_keys import hot_keys
from pipelines.joining.partitioning import MAX_PASSING_SHARE
from pipelines.joining.shuffle import flat, partitions, shuffled, union_by_name
from pipelines.lake.column_types import arrow_schema_of
from pipelines.sources.sample import source_sample
from pipelines.writing.matching import bound_batches
from rules_index.join.worker import KEY, NEW, STREAM, TIME, own_column
from rules_index.names import back_quoted, back_quoted_path, path_parts

if TYPE_CHECKING:
    from pipelines.joining.sides import SideFiles
    from pipelines.joining.spark_rows import JoinRows
    from pipelines.settings.model import Join
    from pipelines.workspace import Workspace
    from pipelines.writing.matching import Matcher
    from rules_index.join.index import JoinIndex
    from rules_index.language.typed import Leaf


class ShuffledRows:
    """The shuffled rows; they are read on first use."""

    def __init__(
        self, workspace: Workspace, join: Join, rows: JoinRows, indexes: Sequence[tuple[JoinIndex, Matcher]]
    ) -> None:
        """join: the streams, keys and longest windows of all joins; indexes: those of all joins."""
        self.workspace, self.join, self.rows, self.indexes = workspace, join, rows, indexes

    @cached_property
    def rows_and_keys(self) -> tuple[DataFrame, int]:
        """The rows, sorted by time within each partition, and how many columns their key has."""
        rows, parts = self.rows, self.rows.parts()
        files = [add for side in rows.sides for add in (*(side.new.files if side.new else ()), *side.earlier)]
        bound_batches(self.workspace, tuple(files))
        known = [side.rows for side in rows.sides]
        total = None if None in known else sum(count or 0 for count in known)
        count = partitions(self.workspace.spark, total)
        hot, filters = [], {}
        if count > 1:
            self.workspace.progress(f"{self.join.name}: counting the rows of each key")
            hot = hot_keys([frame for _, frame in parts], self.join, len(rows.types), count, total)
            filters = {side.stream.name: self._filter(side) for side in rows.sides}
        frames = [self._frame(side, frame, filters.get(side.stream.name)) for side, frame in parts]
        partitioned, keys = shuffled(union_by_name(frames, self._columns()), self.join, len(rows.types), count, hot)
        if len(self.indexes) > 1:
            partitioned = partitioned.persist(StorageLevel.MEMORY_AND_DISK)
        return partitioned, keys

    def release(self) -> None:
        """Free the rows."""
        if "rows_and_keys" in self.__dict__ and len(self.indexes) > 1:
            self.rows_and_keys[0].unpersist()

    def _frame(self, side: SideFiles, rows: DataFrame, wanted: Column | None) -> DataFrame:
        """The filtered rows of one side, in the form that workers take."""
        rows = rows.select("*", *self._derived(side.stream.name).values())
        return flat(rows if wanted is None else rows.filter(wanted), side)

    def _columns(self) -> list[str]:
        """The columns that are shuffled."""
        keys = [f"{KEY}{place}" for place in range(len(self.rows.types))]
        sides = self.rows.sides
        own = [own_column(side.stream.name, field.name) for side in sides for field in side.schema.fields]
        return [STREAM, TIME, NEW, *keys, *own, *(name for side in sides for name in self._derived(side.stream.name))]

    def _derived(self, stream: str) -> dict[str, Column]:
        """The derived columns over one stream's columns, by name."""
        return {
            leaf.name: matcher.column(leaf).alias(leaf.name)
            for index, matcher in self.indexes
            for leaf in index.inputs(stream)
            if leaf.text is not None
        }

    def _filter(self, side: SideFiles) -> Column | None:
        """Whether a row of a stream may satisfy a rule; None if a filter does not pay, since too many rows pass."""
        name = side.stream.name
        if not all(index.can_filter(name) for index, _ in self.indexes) or self._share(side) > MAX_PASSING_SHARE:
            return None
        conditions = [_useful(index, matcher, name) for index, matcher in self.indexes]
        return reduce(lambda one, other: one | other, conditions)

    def _share(self, side: SideFiles) -> float:
        """The share of rows in a sample of a stream that may satisfy a rule; 0 if that needs Spark."""
        name = side.stream.name
        leaves = [leaf for index, _ in self.indexes for leaf in index.inputs(name)]
        if any(leaf.text is not None for leaf in leaves):
            return 0.0
        schema = arrow_schema_of(side.schema.jsonValue()["fields"])
        names = {part for leaf in leaves for part in path_parts(leaf.name)[1:2] or schema.names}
        rows = source_sample(side.stream, schema)([column for column in schema.names if column in names])
        if rows is None or not rows.num_rows:
            return 0.0
        useful = reduce(np.logical_or, (index.useful(name, rows) for index, _ in self.indexes))
        return float(useful.mean())


def _useful(index: JoinIndex, matcher: Matcher, stream: str) -> Column:
    """Whether a row of a stream can be part of a joined row that satisfies a rule of an index."""
    leaves = index.inputs(stream)
    names = tuple(leaf.name for leaf in leaves)
    arrow_udf: Any = functions.__dict__["arrow_udf"]  # the stubs of pyspark do not know it
    function = arrow_udf(_filterer(matcher.file, index.owners.streams, stream, names), "boolean")
    # Spark would evaluate a deterministic function before the semi-join that reduces earlier rows
    filtering: Column = function.asNondeterministic()(*(_column(leaf) for leaf in leaves))
    return filtering


def _column(leaf: Leaf) -> Column:
    return functions.col(back_quoted(leaf.name) if leaf.text is not None else back_quoted_path(leaf.name))


def _filterer(
    file: Callable[[], str], streams: tuple[str, ...], stream: str, names: tuple[str, ...]
) -> Callable[[Iterator[Any]], Iterator[pa.Array]]:
    """The function that workers run. It is pickled by value, so that they need no module of `pipelines`."""

    def wanted(batches: Iterator[Any]) -> Iterator[pa.Array]:
        """Whether each row may satisfy a rule."""
        import pyarrow as pa

        from rules_index.join import worker

        index = worker.open_join(file(), streams)
        for batch in batches:
            columns = (batch,) if len(names) == 1 else batch
            yield pa.array(index.useful(stream, pa.table(list(columns), list(names))))

    kinds = Iterator[pa.Array] if len(names) == 1 else Iterator[tuple[pa.Array, ...]]
    wanted.__annotations__ = {"batches": kinds, "return": Iterator[pa.Array]}
    return wanted
