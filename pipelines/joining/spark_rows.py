"""The rows of a join's micro-batch in Spark: new rows, earlier rows that they may join, and rows that come too late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, functions

from pipelines.joining.shuffle import key_types, side_rows, union_by_name, with_keys_of
from pipelines.joining.sides import SideFiles, has_few_new
from pipelines.joining.watermark import late_reason, watermark
from pipelines.settings.model import Join
from pipelines.sources.positions import Add
from pipelines.sources.slices import rows_of
from pipelines.spark.delta_internals import COMMIT_VERSION, TableLog
from rules_index.join.worker import NEW, TIME


def new_rows(side: SideFiles) -> DataFrame:
    """The new rows of a side, with the source's columns."""
    return _frame(side, side.new.files if side.new is not None else ())


def earlier_rows(side: SideFiles) -> DataFrame:
    """The earlier rows of a side that are read, with the source's columns."""
    return _frame(side, side.earlier, side.tracked)


def _frame(side: SideFiles, files: Sequence[Add], tracked: int | None = None) -> DataFrame:
    log = side.source.log
    assert isinstance(log, TableLog)
    # version 0 for all files, since the commit version is dropped
    rows = log.frame(log.snapshot(side.schema_version), [(0, add) for _, add in files]).drop(COMMIT_VERSION)
    if tracked is None:
        return rows
    return rows.filter(functions.col("_metadata.row_commit_version") <= tracked)


class JoinRows:
    """The rows that a micro-batch reads."""

    def __init__(self, join: Join, sides: list[SideFiles], plan: Mapping[str, Any]) -> None:
        self.join, self.sides = join, sides
        self.types = key_types(join, sides)
        self._lateness, self._least = plan["lateness"], watermark(plan)

    def new_count(self) -> int:
        """How many new rows there are, those for quarantine included."""
        total = 0
        for side in self.sides:
            files = side.new.files if side.new is not None else ()
            known = rows_of(files)
            total += new_rows(side).count() if known is None else known
        return total

    def parts(self) -> list[tuple[SideFiles, DataFrame]]:
        """The new rows of each side, then the earlier rows of those that have any; the column `#new` marks new rows."""
        new = [self._new(number) for number in range(len(self.sides))]
        found = [(side, rows.withColumn(NEW, functions.lit(True))) for side, rows in zip(self.sides, new, strict=True)]
        for number, side in enumerate(self.sides):
            if not side.earlier:
                continue
            others = [rows for other, rows in enumerate(new) if other != number and self.sides[other].new]
            earlier = side_rows(earlier_rows(side), number, self.join, side, self.types)
            if has_few_new(side, self.sides):
                earlier = with_keys_of(earlier, others, len(self.types))
            found.append((side, earlier.withColumn(NEW, functions.lit(False))))
        return found

    def _new(self, number: int) -> DataFrame:
        rows = self._timed(number)
        if self._least is not None:
            rows = rows.filter(functions.col(f"`{TIME}`") >= self._least)
        return rows

    def _timed(self, number: int) -> DataFrame:
        side = self.sides[number]
        return side_rows(new_rows(side), number, self.join, side, self.types)

    def latest_and_late(self) -> tuple[int | None, int]:
        """The latest event time (microseconds) among new rows with time and key, and how many of them come too late."""
        time_column = functions.col(f"`{TIME}`")
        late = functions.lit(False) if self._least is None else time_column < self._least
        times = [self._timed(number).select(time_column, late.alias("late")) for number in range(len(self.sides))]
        every = times[0]
        for other in times[1:]:
            every = every.union(other)
        row = every.agg(functions.max(time_column), functions.count_if("late")).first()
        assert row is not None
        return row[0], int(row[1])

    def late_rows(self, batch: int) -> DataFrame:
        """The rows that come too late, with the columns of the quarantine."""
        frames = []
        for number, side in enumerate(self.sides):
            late = self._timed(number).filter(functions.col(f"`{TIME}`") < functions.lit(self._least))
            frames.append(late.select(functions.col(f"`{side.stream.name}`")))
        rows = union_by_name(frames, self.join.streams)
        text = late_reason(self._lateness)
        return rows.select("*", functions.lit(text).alias("reason"), functions.lit(batch).cast("bigint").alias("batch"))
