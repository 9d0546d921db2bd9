"""Checks a sample of tagged rows: Spark evaluates each rule's whole expression, to compare with the tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pipelines.spark.catalyst import derived_column
from pipelines.table_definitions import tagged_table
from quality.sample import ROWS, SampleResult, rules_to_try, text_partitions
from rules_index import RuleError
from rules_index.names import back_quoted

if TYPE_CHECKING:
    from pipelines.lake.runs import MicroBatch
    from pipelines.workspace import Workspace

_RAISED = 3


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule; the bounds are in microseconds since the epoch, since Python's datetime has fewer years than Spark."""

    rule_id: Any
    expression: str
    valid_from: int | None
    valid_to: int | None


def try_sample_again(
    workspace: Workspace,
    scope: str,
    event_time: Column | None,
    batch: MicroBatch,
    tagged: DataFrame,
    pairs: pl.DataFrame,
) -> SampleResult:
    """The rules whose evaluation by Spark contradicts the tags of sampled rows, and the size of the sample.

    event_time: the time that validity bounds are compared with; tagged: rows that include those of `batch`; pairs:
    their rule_id, rules_version and matches. A row on which Spark raises an error for a rule is ignored for that rule.
    """
    rules = _choose(workspace, scope, batch, pairs)
    if not rules:
        return SampleResult()
    rows = tagged.filter(f.col("index_fingerprint") == f.lit(batch.fingerprint))
    for name in text_partitions(workspace, tagged_table(scope)):
        rows = rows.filter(f.col(back_quoted(name)).isNotNull())
    sample = _rows(rows, batch, [rule.rule_id for rule in rules])
    tried = [
        (rule, column) for rule in rules if (column := _disagrees(workspace, event_time, rule, sample)) is not None
    ]
    if not tried:
        return SampleResult()
    # Spark treats guarded expressions as nondeterministic, which aggregates do not allow: so flags first, then counts
    flagged = sample.select(*(column.alias(str(number)) for number, (_, column) in enumerate(tried)))
    counts = [f.count_if(f.col(name)).alias(name) for name in flagged.columns]
    row = flagged.agg(f.count(f.lit(1)).alias("rows"), *counts).first()
    assert row is not None
    faults = [f"{rule.rule_id} ({row[str(i)]} rows)" for i, (rule, _) in enumerate(tried) if row[str(i)]]
    return SampleResult(faults, int(row["rows"]), len(tried))


def _choose(workspace: Workspace, scope: str, batch: MicroBatch, pairs: pl.DataFrame) -> list[_Rule]:
    chosen = rules_to_try(workspace, scope, batch, pairs)
    if chosen is None:
        return []
    return [
        _Rule(*row)
        for row in chosen.with_columns(pl.col("valid_from", "valid_to").cast(pl.Int64)).sort("rule_id").iter_rows()
    ]


def _rows(tagged: DataFrame, batch: MicroBatch, ids: list[Any]) -> DataFrame:
    """A sample of rows; deterministic for a micro-batch."""
    fraction = min(1.0, 2 * ROWS / max(batch.rows or 0, 1))
    anywhere = tagged.sample(fraction=fraction, seed=batch.batch).limit(ROWS // 2)
    wanted = f.array(*(f.lit(i) for i in ids))
    return anywhere.unionByName(tagged.filter(f.arrays_overlap("rule_ids", wanted)).limit(ROWS // 2))


def _disagrees(workspace: Workspace, event_time: Column | None, rule: _Rule, sample: DataFrame) -> Column | None:
    """TRUE for a row that has the rule's id without satisfying the rule, or vice versa; None if Spark refuses it."""
    try:
        truth = derived_column(workspace.spark, rule.expression, pa.bool_())
        sample.select(truth)
    except (PySparkException, RuleError):
        return None
    satisfied = (truth == 1) & _is_valid(event_time, rule)
    return (truth != _RAISED) & (satisfied != f.array_contains("rule_ids", f.lit(rule.rule_id)))


def time_of(columns: Sequence[str]) -> Column | None:
    """The latest of a row's event times; columns: their names in Spark SQL. None without columns."""
    times = [f.col(column).cast("timestamp") for column in columns]
    return f.greatest(*times) if len(times) > 1 else times[0] if times else None


def _is_valid(event_time: Column | None, rule: _Rule) -> Column:
    """TRUE if the row's event time is within the rule's validity; never NULL."""
    bounds = [(rule.valid_from, True), (rule.valid_to, False)]
    valid = f.lit(True)
    for bound, is_start in bounds:
        if bound is not None and event_time is not None:
            instant = f.timestamp_micros(f.lit(bound).cast("bigint"))
            valid = valid & ((event_time >= instant) if is_start else (event_time < instant))
    return f.coalesce(valid, f.lit(False))
