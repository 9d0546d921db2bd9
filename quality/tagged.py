"""What is expected of a tagged table: that its newest micro-batches are complete, and agree with `_matches`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.delta_internals import TableLog
from pipelines.errors import SourceError
from pipelines.runs import DONE, MicroBatch, batches
from pipelines.tables import matches_table, quarantine_table, tagged_table
from quality.findings import Expectation
from quality.rules import enabled_rules
from quality.sample import disagreements
from quality.validation import Suite, between, equal, listing, measured, none_of, nothing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipelines.config import Stream
    from pipelines.workspace import Workspace

Counts = tuple[tuple[Any, int], ...]
"""Matches of each rule id, most first."""
_CHECKSUM = "decimal(38,0)"


def expectations(stream: Stream) -> tuple[Expectation, ...]:
    """What holds for the rows of the newest micro-batches."""
    if stream.output == "all":
        rows = equal(
            "row_count", "Tagged rows are those of the source less those in quarantine", "tagged_rows", "expected_rows"
        )
    else:
        rows = between("row_count", "Tagged rows are no more than the source has", "surplus_rows", None, 0)
    listed = [
        rows,
        none_of("rule_ids_not_null", "No rule_ids is NULL or has a NULL in it", "null_rule_ids"),
        none_of("rule_ids_ascending", "The ids in each rule_ids ascend, none twice", "unordered_rule_ids"),
        none_of("versions_recorded", "Every row names the rules and the index of its micro-batch", "wrong_versions"),
        nothing("ids_exist", "Every id is an enabled rule of the stream in that version of the rules", "unknown_ids"),
        equal("matches_recorded", "The table runs counts as many matches", "tagged_matches", "recorded_matches"),
    ]
    if stream.keeps_matches:
        text = "For every rule, the tagged rows and the table of matches agree"
        listed.append(nothing("matches_agree", text, "differing_rules"))
    text = "A sample of rows, tried again with Spark's own WHERE, agrees"
    listed.append(nothing("sample_agrees", text, "disagreeing_rules"))
    return tuple(listed)


def suites(workspace: Workspace, stream: Stream, newest: int = 1) -> tuple[list[Suite], dict[str, Any], Counts]:
    """The suite over the rows of the `newest` last micro-batches, the measures behind it, and matches by rule."""
    done = _newest(workspace, stream, newest)
    if done:
        measures, counts = _measure(Written(workspace, stream, done))
    else:
        measures, counts = _nothing_written(), ()
    return [Suite(tagged_table(stream), expectations(stream), measured(measures))], measures, counts


def _newest(workspace: Workspace, stream: Stream, newest: int) -> list[MicroBatch]:
    """The last micro-batches that are done and took rows, of one series: without a restart in between."""
    done = [b for b in batches(workspace.lake, stream.name) if b.state == DONE and not b.plan.get("reset")]
    done = done[-newest:] if newest > 0 else []
    return [b for b in done if b.plan["series"] == done[-1].plan["series"]]


def _nothing_written() -> dict[str, Any]:
    counts = ("source_rows", "quarantined_rows", "tagged_rows", "expected_rows", "surplus_rows", "tagged_matches")
    faults = ("null_rule_ids", "unordered_rule_ids", "wrong_versions", "recorded_matches")
    listings = ("unknown_ids", "differing_rules", "disagreeing_rules")
    zeros: dict[str, Any] = dict.fromkeys((*counts, *faults), 0)
    return {**zeros, **dict.fromkeys(listings, listing([]))}


@dataclass(frozen=True, slots=True)
class Written:
    """Consecutive micro-batches of one stream, and what they wrote to its tables."""

    workspace: Workspace
    stream: Stream
    batches: Sequence[MicroBatch]

    def frame(self, table: str) -> DataFrame:
        """The rows that the micro-batches wrote to a table, found by the numbers in its log's commits."""
        self.workspace.lake.version(table)  # says what to do where there is no such table
        log = TableLog(self.workspace.spark, self.workspace.lake.uri(table))
        first, last = self.batches[0].batch, self.batches[-1].batch
        app = f"deltatag/{self.batches[-1].plan['series']}/{table}"
        adds: list[tuple[int, dict[str, Any]]] = []
        for version in reversed(log.commits()):
            actions = log.commit(version) or []
            numbers = [a["txn"]["version"] for a in actions if "txn" in a and a["txn"]["appId"] == app]
            if numbers and numbers[0] < first:
                break
            if numbers and numbers[0] <= last:
                adds += [(version, action["add"]) for action in actions if "add" in action]
        return log.frame(log.latest(), adds).drop("_change_type", "_commit_version", "_commit_timestamp")

    def source_rows(self) -> int:
        """Rows that the micro-batches took from the source: by the source's own log where it still shows them."""
        from pipelines.source import open_source, rows_of

        try:
            source = open_source(self.workspace.spark, self.stream)
            counts = [rows_of(source.retake(batch.plan).files) for batch in self.batches]
        except SourceError:
            counts = [None]
        recorded = [batch.rows or 0 for batch in self.batches]
        return sum(recorded) if None in counts else sum(count or 0 for count in counts)


def _measure(written: Written) -> tuple[dict[str, Any], Counts]:
    stream = written.stream
    tagged = written.frame(tagged_table(stream))
    measures = _row_measures(written, tagged)
    measures["source_rows"] = written.source_rows()
    quarantined = any(batch.quarantined for batch in written.batches)
    measures["quarantined_rows"] = written.frame(quarantine_table(stream)).count() if quarantined else 0
    measures["expected_rows"] = measures["source_rows"] - measures["quarantined_rows"]
    measures["surplus_rows"] = measures["tagged_rows"] - measures["expected_rows"]
    measures["recorded_matches"] = sum(batch.matches or 0 for batch in written.batches)
    pairs = _by_rule(stream, _exploded(tagged))
    measures["tagged_matches"] = int(pairs["matches"].sum())
    measures["unknown_ids"] = listing(_unknown_ids(written, pairs))
    measures["differing_rules"] = listing(_differing(written, pairs))
    disagreeing, figures = disagreements(written.workspace, stream, written.batches[-1], tagged, pairs)
    measures["disagreeing_rules"] = listing(disagreeing)
    totals = pairs.group_by("rule_id").agg(pl.col("matches").sum()).sort("matches", "rule_id", descending=[True, False])
    return measures | figures, tuple(totals.iter_rows())


def _row_measures(written: Written, tagged: DataFrame) -> dict[str, Any]:
    """Counts over the tagged rows, in one aggregation."""
    from pyspark.sql import functions as f

    planned = {(batch.rules_version, batch.fingerprint) for batch in written.batches if batch.fingerprint is not None}
    right = f.lit(False)
    for version, fingerprint in planned:
        right = right | ((f.col("rules_version") == version) & (f.col("index_fingerprint") == fingerprint))
    ids = f.col("rule_ids")
    row = tagged.agg(
        f.count(f.lit(1)).alias("tagged_rows"),
        f.count_if(ids.isNull() | f.exists(ids, lambda i: i.isNull())).alias("null_rule_ids"),
        f.count_if(ids != f.array_sort(f.array_distinct(ids))).alias("unordered_rule_ids"),
        f.count_if(~f.coalesce(right, f.lit(False))).alias("wrong_versions"),
        f.count_if(f.size(ids) > 0).alias("matched_rows"),
    ).first()
    assert row is not None
    return {name: int(count) for name, count in row.asDict().items()}


def _exploded(tagged: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return tagged.withColumn("rule_id", f.explode("rule_ids"))


def _by_rule(stream: Stream, pairs: DataFrame) -> pl.DataFrame:
    """rules_version, rule_id, matches and a checksum of the rows' keys, one row for each rule."""
    from pyspark.sql import functions as f

    from pipelines.quarantine import quoted
    from pipelines.writing import matches_keys

    keys = matches_keys(stream.key, stream.event_time) if stream.keeps_matches else []
    kinds = {field.name.lower(): field.dataType.simpleString() for field in pairs.schema.fields}
    # Spark hashes neither maps nor variants; the counts still compare them.
    hashed = [key for key in keys if not any(word in kinds[key.lower()] for word in ("map<", "variant", "interval"))]
    checksum = f.sum(f.xxhash64(*(f.col(quoted(key)) for key in hashed), "source_version").cast(_CHECKSUM))
    grouped = pairs.groupBy("rules_version", "rule_id")
    counted = grouped.agg(f.count(f.lit(1)).alias("matches"), checksum.cast("string").alias("checksum"))
    return pl.DataFrame(pl.from_arrow(counted.toArrow()))


def _unknown_ids(written: Written, pairs: pl.DataFrame) -> list[str]:
    """Ids in tagged rows that are no enabled rule of the stream in the version that the rows name."""
    unknown: list[str] = []
    for (version,), found in pairs.group_by("rules_version"):
        known = enabled_rules(written.workspace, written.stream, int(str(version)))["rule_id"]
        unknown += [str(i) for i in found.filter(~pl.col("rule_id").is_in(known.implode()))["rule_id"].sort()]
    return unknown


def _differing(written: Written, pairs: pl.DataFrame) -> list[str]:
    """Rules with other rows in `<stream>_matches` than in the tagged table."""
    stream = written.stream
    if not all(batch.plan.get("matches") for batch in written.batches):
        return []
    kept = _by_rule(stream, written.frame(matches_table(stream)))
    key = ["rules_version", "rule_id"]
    both = pairs.join(kept, on=key, how="full", suffix="_kept", coalesce=True)
    differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_kept")) for name in ("matches", "checksum"))
    return [
        f"{row['rule_id']} ({row['matches'] or 0} tagged, {row['matches_kept'] or 0} kept)"
        for row in both.filter(differs).sort(key).iter_rows(named=True)
    ]
