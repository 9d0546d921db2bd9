"""The rows that a join's micro-batch reads: new ones, earlier ones that they can join, and those that come too late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, functions

from pipelines.joining.shuffle import key_types, side_rows, united, with_keys_of
from pipelines.joining.sides import SideFiles
from pipelines.settings.model import Join
from pipelines.sources.slices import rows_of
from rules_index.join.worker import NEW, TIME

FEW_NEW, MANY_EARLIER = 100_000, 10
"""Up to so many new rows, and where earlier rows are so many times more, these are first reduced to those with a key of
a new one."""


def least_time(plan: Mapping[str, Any]) -> int | None:
    """The event time, in microseconds, before which new rows come too late by a micro-batch's plan."""
    lateness, latest = plan["lateness"], plan["latest"]
    return None if lateness is None or latest is None else int(latest) - int(lateness)


class JoinRows:
    """The rows that a micro-batch reads."""

    def __init__(self, join: Join, sides: list[SideFiles], plan: Mapping[str, Any]) -> None:
        self.join, self.sides = join, sides
        self.types = key_types(join, sides)
        self._lateness, self._least = plan["lateness"], least_time(plan)

    def new_count(self) -> int:
        """New rows, those in quarantine included."""
        total = 0
        for side in self.sides:
            files = side.new.files if side.new is not None else ()
            known = rows_of(files)
            total += side.new_rows().count() if known is None else known
        return total

    def parts(self) -> list[tuple[SideFiles, DataFrame]]:
        """Of every side its new rows, and where there are any its earlier ones; `#new` tells them apart."""
        new = [self._new(number) for number in range(len(self.sides))]
        found = [(side, rows.withColumn(NEW, functions.lit(True))) for side, rows in zip(self.sides, new, strict=True)]
        for number, side in enumerate(self.sides):
            if not side.earlier:
                continue
            others = [rows for other, rows in enumerate(new) if other != number and self.sides[other].new]
            earlier = side_rows(side.earlier_rows(), number, self.join, side, self.types)
            if self._few_new(side):
                earlier = with_keys_of(earlier, others, len(self.types))
            found.append((side, earlier.withColumn(NEW, functions.lit(False))))
        return found

    def _few_new(self, side: SideFiles) -> bool:
        """True if the new rows of the other sides are few beside a side's earlier ones."""
        news = [rows_of(other.new.files) for other in self.sides if other is not side and other.new is not None]
        earlier = rows_of(side.earlier)
        if earlier is None or None in news:
            return False
        total = sum(count or 0 for count in news)
        return total <= FEW_NEW and total * MANY_EARLIER <= earlier

    def _new(self, number: int) -> DataFrame:
        rows = self._timed(number)
        if self._least is not None:
            rows = rows.filter(functions.col(f"`{TIME}`") >= self._least)
        return rows

    def _timed(self, number: int) -> DataFrame:
        side = self.sides[number]
        return side_rows(side.new_rows(), number, self.join, side, self.types)

    def latest_and_late(self) -> tuple[int | None, int]:
        """The latest event time of the new rows that can join, and how many of them come too late."""
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
        """The rows that come too late, as the quarantine has them."""
        frames = []
        for number, side in enumerate(self.sides):
            late = self._timed(number).filter(functions.col(f"`{TIME}`") < functions.lit(self._least))
            frames.append(late.select(functions.col(f"`{side.stream.name}`")))
        rows = united(frames, self.join.streams)
        text = f"the row came later than the lateness of {self._lateness / 1e6:g} s allows"
        return rows.select("*", functions.lit(text).alias("reason"), functions.lit(batch).cast("bigint").alias("batch"))
