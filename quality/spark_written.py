"""Measures what micro-batches wrote to a stream's tables, by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pipelines.spark.delta_internals import TableLog
from pipelines.table_definitions import matches_keys, matches_table, quarantine_table, tagged_table
from quality.spark_sample import time_of, try_sample_again
from rules_index.names import back_quoted

if TYPE_CHECKING:
    from pipelines.settings.model import Stream
    from quality.sample import SampleResult
    from quality.written import NewestBatch

_CHECKSUM = "decimal(38,0)"


def frame(written: NewestBatch, table: str) -> DataFrame:
    """The rows that the micro-batches wrote to a table."""
    lake = written.workspace.lake
    lake.version(table)  # its error says how to create a missing table
    log = TableLog(written.workspace.spark, lake.uri(table))
    adds = written.adds(log, table)
    return log.frame(log.latest(), adds).drop("_change_type", "_commit_version", "_commit_timestamp")


def row_measures(written: NewestBatch, stream: Stream) -> tuple[dict[str, int], pl.DataFrame]:
    """Counts over the tagged rows, and one row per rule: `rules_version`, `rule_id`, `matches`, and a `checksum` of
    the keys of matching rows."""
    tagged = frame(written, tagged_table(stream))
    return measured_rows(written, tagged, {}), _by_rule(stream, exploded(tagged))


def measured_rows(written: NewestBatch, tagged: DataFrame, further: dict[str, Column]) -> dict[str, int]:
    """Counts over tagged rows, in one aggregation; further: additional conditions whose rows are counted."""
    planned = {(batch.rules_version, batch.fingerprint) for batch in written.batches if batch.fingerprint is not None}
    right = f.lit(False)
    for version, fingerprint in planned:
        right = right | ((f.col("rules_version") == version) & (f.col("index_fingerprint") == fingerprint))
    ids = f.col("rule_ids")
    conditions = {
        "null_rule_ids": ids.isNull() | f.exists(ids, lambda i: i.isNull()),
        "unordered_rule_ids": ids != f.array_sort(f.array_distinct(ids)),
        "wrong_versions": ~f.coalesce(right, f.lit(False)),
        "matched_rows": f.size(ids) > 0,
        **further,
    }
    counts = [f.count_if(condition).alias(name) for name, condition in conditions.items()]
    row = tagged.agg(f.count(f.lit(1)).alias("tagged_rows"), *counts).first()
    assert row is not None
    return {name: int(count) for name, count in row.asDict().items()}


def matches_by_rule(written: NewestBatch, stream: Stream) -> pl.DataFrame:
    """One row per rule like the second result of `row_measures`, but from `<stream>_matches`."""
    return _by_rule(stream, frame(written, matches_table(stream)))


def quarantined_rows(written: NewestBatch, scope: Stream | str) -> int:
    """How many rows of a stream, or of a join given by name, the micro-batches put into quarantine."""
    return frame(written, quarantine_table(scope)).count()


def sample_result(written: NewestBatch, stream: Stream, pairs: pl.DataFrame) -> SampleResult:
    """The rules whose evaluation by Spark contradicts the tags of sampled rows, and the size of the sample."""
    time = None if stream.event_time is None else time_of([back_quoted(stream.event_time)])
    tagged = frame(written, tagged_table(stream))
    return try_sample_again(written.workspace, stream.name, time, written.batches[-1], tagged, pairs)


def _by_rule(stream: Stream, pairs: DataFrame) -> pl.DataFrame:
    """One row per rule: rules_version, rule_id, matches and a checksum of the keys of matching rows."""
    keys = matches_keys(stream.key, stream.event_time) if stream.keeps_matches else []
    kinds = {field.name.lower(): field.dataType.simpleString() for field in pairs.schema.fields}
    # Spark cannot hash maps, variants or intervals; the counts are still compared
    hashed = [key for key in keys if not any(word in kinds[key.lower()] for word in ("map<", "variant", "interval"))]
    checksum = f.sum(f.xxhash64(*(f.col(back_quoted(key)) for key in hashed), "source_version").cast(_CHECKSUM))
    return by_rule(pairs, checksum.cast("string").alias("checksum"))


def by_rule(pairs: DataFrame, *figures: Column) -> pl.DataFrame:
    """(row, rule) pairs aggregated by rule: rules_version, rule_id, matches and further figures."""
    counted = pairs.groupBy("rules_version", "rule_id").agg(f.count(f.lit(1)).alias("matches"), *figures)
    return pl.DataFrame(pl.from_arrow(counted.toArrow()))


def exploded(tagged: DataFrame) -> DataFrame:
    """The (row, rule) pairs of tagged rows: the row's columns and `rule_id`."""
    return tagged.withColumn("rule_id", f.explode("rule_ids"))
