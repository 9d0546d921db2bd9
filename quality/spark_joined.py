"""Measures what micro-batches wrote to a join's tables, by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pipelines.table_definitions import tagged_table
from quality import spark_written
from quality.local_joined import has_fields
from quality.spark_sample import time_of, try_sample_again
from rules_index.names import back_quoted

if TYPE_CHECKING:
    from pipelines.settings.model import Join
    from quality.written import NewestBatch


def measures_of(written: NewestBatch, join: Join) -> tuple[dict[str, Any], pl.DataFrame]:
    """Counts over what the micro-batches wrote and a sample of it, and the matches by rule."""
    streams = written.workspace.configuration.streams
    times = {name: _column(name, str(streams[name].event_time)) for name in join.streams}
    tagged = spark_written.frame(written, tagged_table(join))
    further = {"unequal_keys": _unequal_keys(join), "outside_window": _outside_window(join, times)}
    measures = spark_written.measured_rows(written, tagged, further)
    measures["repeated_rows"] = _repeated(written, join, tagged)
    quarantined = written.total("quarantined")
    measures["quarantined_rows"] = spark_written.quarantined_rows(written, join.name) if quarantined else 0
    pairs = spark_written.by_rule(spark_written.exploded(tagged))
    time = time_of(list(times.values()))
    sample = try_sample_again(written.workspace, join.name, time, written.batches[-1], tagged, pairs)
    return measures | sample.measures(), pairs


def _repeated(written: NewestBatch, join: Join, tagged: DataFrame) -> int:
    """How many joined rows repeat the keys of another one; 0 if a stream has no key, or its source lacks it."""
    configuration = written.workspace.configuration
    keys = {name: configuration.stream(name).key for name in join.streams}
    fields = {name: tagged.select(f"{back_quoted(name)}.*").columns for name in join.streams}
    if not all(keys.values()) or not has_fields(fields, keys):
        return 0
    columns = [f.col(_column(name, key)) for name, named in keys.items() for key in named]
    # a key with NULL does not identify a row
    named = tagged.select(*(column.alias(str(number)) for number, column in enumerate(columns))).dropna()
    row = named.select(f.xxhash64("*").alias("row")).agg(f.count("row"), f.count_distinct("row")).first()
    assert row is not None
    return int(row[0]) - int(row[1])


def _column(stream: str, column: str) -> str:
    """The name of a stream's column in a joined row, in Spark SQL."""
    return f"{back_quoted(stream)}.{back_quoted(column)}"


def _unequal_keys(join: Join) -> Column:
    """TRUE for joined rows whose keys are NULL, or not equal in all streams."""
    first, *others = join.streams
    equal_keys = f.lit(True)
    for other in others:
        for one, two in zip(join.on[first], join.on[other], strict=True):
            equal_keys = equal_keys & (f.col(_column(first, one)) == f.col(_column(other, two)))
    return ~f.coalesce(equal_keys, f.lit(False))


def _outside_window(join: Join, times: dict[str, str]) -> Column:
    """TRUE for joined rows with an event time that is NULL, or before the latest one by more than its window."""
    latest = time_of(list(times.values()))
    assert latest is not None
    inside = f.lit(True)
    for stream, time in times.items():
        behind = f.unix_micros(latest) - f.unix_micros(f.col(time).cast("timestamp"))
        inside = inside & (behind <= join.window[stream])
    return ~f.coalesce(inside, f.lit(False))
