"""The suite of a join's tagged table: the newest joined rows belong together and satisfy their rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.errors import NeedsSparkError
from pipelines.runners.choice import spark_ruled_out
from pipelines.settings.model import LOCAL
from pipelines.table_definitions import quarantine_table, tagged_table
from quality.evaluation import Suite
from quality.findings import WARNING, Expectation
from quality.sample import disagreements, time_of
from quality.spark_written import Counts, NewestBatch, by_rule, exploded, totals
from quality.validation import between, equal, listing, none_of, nothing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipelines.settings.model import Configuration, Join
    from pipelines.workspace import Workspace


def expectations(configuration: Configuration, join: Join) -> tuple[Expectation, ...]:
    """The expectations about the rows of the newest micro-batches.

    Rows that come too late are quarantined one by one, and keys need not be unique, so both are only warnings.
    """
    listed = [
        equal("row_count", "The table runs counts as many joined rows", "tagged_rows", "recorded_rows"),
        none_of("rule_ids_not_null", "No rule_ids is NULL or has a NULL in it", "null_rule_ids"),
        none_of("rule_ids_not_empty", "Every joined row satisfies at least one rule", "unmatched_rows"),
        none_of("rule_ids_ascending", "The ids in each rule_ids ascend, none twice", "unordered_rule_ids"),
        none_of("versions_recorded", "Every row names the rules and the index of its micro-batch", "wrong_versions"),
        none_of("keys_equal", "The keys of every joined row's rows are equal", "unequal_keys"),
        none_of("times_in_window", "The event times of every joined row's rows lie in the window", "outside_window"),
        nothing("ids_exist", "Every id is a rule of the index that tagged the row", "unknown_ids"),
        equal("matches_recorded", "The table runs counts as many matches", "tagged_matches", "recorded_matches"),
        nothing("sample_agrees", "A sample of rows, tried again rule by rule, agrees", "disagreeing_rules"),
    ]
    if _has_keys(configuration, join):
        text = "No two joined rows have the same keys of all streams"
        listed.append(none_of("rows_unique", text, "repeated_rows", WARNING))
    if join.lateness is not None:
        limit = max(configuration.stream(name).max_quarantine_share for name in join.streams)
        text = "Share of new rows that came too late and went to quarantine"
        listed.append(between("quarantine_share", text, "quarantine_share", 0, limit, WARNING))
    return tuple(listed)


def _has_keys(configuration: Configuration, join: Join) -> bool:
    """True if every stream has a key, so that keys identify a joined row."""
    return all(configuration.stream(name).key for name in join.streams)


def suites(workspace: Workspace, join: Join, newest: int = 1) -> tuple[list[Suite], dict[str, Any], Counts]:
    """The suite over the last `newest` micro-batches, its measures, and the matches by rule."""
    written = NewestBatch.newest(workspace, join.name, newest)
    measures: dict[str, Any] = _nothing_written()
    counts: Counts = ()
    if written.batches:
        measures, counts = _measured(written, join)
    expected = expectations(workspace.configuration, join)
    return [Suite(tagged_table(join.name), expected, measures)], measures, counts


def _nothing_written() -> dict[str, Any]:
    faults = (
        "null_rule_ids",
        "unmatched_rows",
        "unordered_rule_ids",
        "wrong_versions",
        "unequal_keys",
        "repeated_rows",
    )
    zeros: dict[str, Any] = dict.fromkeys((*faults, "outside_window", "tagged_matches", "recorded_matches"), 0)
    listings = dict.fromkeys(("unknown_ids", "disagreeing_rules"), listing([]))
    return {**zeros, "tagged_rows": 0, "recorded_rows": 0, "new_rows": 0, "quarantine_share": 0.0, **listings}


def _measured(written: NewestBatch, join: Join) -> tuple[dict[str, Any], Counts]:
    """The measures and the matches by rule, by the runner that joins the rows."""
    from pipelines.joining.choice import why_spark

    if why_spark(written.workspace, [join]) is None:
        try:
            return _measure_files(written, join)
        except NeedsSparkError as reason:
            if written.workspace.configuration.lake.runner == LOCAL:
                raise spark_ruled_out(written.workspace, f"the gate of {join.name}", reason) from reason
    with written.workspace.active_session():
        return _measure(written, join)


def _measure_files(written: NewestBatch, join: Join) -> tuple[dict[str, Any], Counts]:
    """Like `_measure`, without a JVM."""
    from quality.local_joined import measures_of

    measures, pairs, disagreeing = measures_of(written, join)
    measures |= _recorded(written)
    measures["unmatched_rows"] = measures["tagged_rows"] - measures["matched_rows"]
    kept = measures["quarantined_rows"]
    measures["quarantine_share"] = kept / measures["new_rows"] if kept else 0.0
    measures["tagged_matches"] = int(pairs["matches"].sum())
    measures["unknown_ids"] = listing(written.unknown_ids(pairs))
    measures["disagreeing_rules"] = listing(disagreeing)
    return measures, totals(pairs)


def _recorded(written: NewestBatch) -> dict[str, int]:
    return {
        "recorded_rows": sum(int(batch.plan.get("joined", 0)) for batch in written.batches),
        "new_rows": written.total("rows"),
        "recorded_matches": written.total("matches"),
    }


def _measure(written: NewestBatch, join: Join) -> tuple[dict[str, Any], Counts]:
    streams = written.workspace.configuration.streams
    times = {name: _column(name, str(streams[name].event_time)) for name in join.streams}
    tagged = written.frame(tagged_table(join.name))
    further = {"unequal_keys": _unequal_keys(join), "outside_window": _outside_window(join, times)}
    measures: dict[str, Any] = dict(written.row_measures(tagged, further))
    measures["unmatched_rows"] = measures["tagged_rows"] - measures["matched_rows"]
    measures |= _recorded(written)
    kept = written.frame(quarantine_table(join.name)).count() if written.total("quarantined") else 0
    measures["quarantined_rows"] = kept
    measures["quarantine_share"] = kept / measures["new_rows"] if kept else 0.0
    measures["repeated_rows"] = _repeated(written, join, tagged)
    pairs = by_rule(exploded(tagged))
    measures["tagged_matches"] = int(pairs["matches"].sum())
    measures["unknown_ids"] = listing(written.unknown_ids(pairs))
    disagreeing, figures = disagreements(
        written.workspace, join.name, time_of(list(times.values())), written.batches[-1], tagged, pairs
    )
    measures["disagreeing_rules"] = listing(disagreeing)
    return measures | figures, totals(pairs)


def _repeated(written: NewestBatch, join: Join, tagged: DataFrame) -> int:
    """How many joined rows repeat the keys of another one; 0 if a stream has no key, or its source lacks it."""
    from pyspark.sql import functions as f

    from pipelines.spark.sql_text import quoted
    from quality.local_joined import has_fields

    configuration = written.workspace.configuration
    keys = {name: configuration.stream(name).key for name in join.streams}
    fields = {name: tagged.select(f"{quoted(name)}.*").columns for name in join.streams}
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
    from pipelines.spark.sql_text import quoted

    return f"{quoted(stream)}.{quoted(column)}"


def _unequal_keys(join: Join) -> Column:
    """TRUE for joined rows whose keys are NULL, or not equal in all streams."""
    from pyspark.sql import functions as f

    first, *others = join.streams
    equal_keys = f.lit(True)
    for other in others:
        for one, two in zip(join.on[first], join.on[other], strict=True):
            equal_keys = equal_keys & (f.col(_column(first, one)) == f.col(_column(other, two)))
    return ~f.coalesce(equal_keys, f.lit(False))


def _outside_window(join: Join, times: dict[str, str]) -> Column:
    """TRUE for joined rows with an event time that is NULL, or before the latest one by more than its window."""
    from pyspark.sql import functions as f

    latest = time_of(list(times.values()))
    assert latest is not None
    inside = f.lit(True)
    for stream, time in times.items():
        behind = f.unix_micros(latest) - f.unix_micros(f.col(time).cast("timestamp"))
        inside = inside & (behind <= join.window[stream])
    return ~f.coalesce(inside, f.lit(False))
