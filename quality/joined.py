"""The suite of a join's tagged table: the newest joined rows meet the join's definition and satisfy their rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.errors import NeedsSparkError
from pipelines.runners.choice import spark_ruled_out
from pipelines.settings.model import LOCAL
from pipelines.table_definitions import scope_tables, tagged_table
from quality.evaluation import MeasuredSuites, Suite
from quality.findings import WARNING, Expectation, MatchesByRule
from quality.validation import between, equal, listing, none_of, nothing
from quality.written import NewestBatch, totals

if TYPE_CHECKING:
    import polars as pl

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


def suites(workspace: Workspace, join: Join, newest: int = 1) -> MeasuredSuites:
    """The suite over the last `newest` micro-batches, its measures, and the matches by rule."""
    written = NewestBatch.newest(workspace, join.name, newest)
    measures: dict[str, Any] = _nothing_written()
    counts: MatchesByRule = ()
    if written.batches:
        with written.passing_over_what_is_gone(scope_tables(join.name, is_join=True)):
            measures, counts = _measured(written, join)
    expected = expectations(workspace.configuration, join)
    return MeasuredSuites([Suite(tagged_table(join.name), expected, measures)], measures, counts, written.note_judged)


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


def _measured(written: NewestBatch, join: Join) -> tuple[dict[str, Any], MatchesByRule]:
    """The measures and the matches by rule, by the runner that joins the rows."""
    from pipelines.joining.choice import why_spark

    if why_spark(written.workspace, [join]) is None:
        from quality import local_joined

        try:
            return _completed(written, *local_joined.measures_of(written, join))
        except NeedsSparkError as reason:
            if written.workspace.configuration.lake.runner == LOCAL:
                raise spark_ruled_out(written.workspace, f"the gate of {join.name}", reason) from reason
    with written.workspace.active_session():
        from quality import spark_joined

        return _completed(written, *spark_joined.measures_of(written, join))


def _completed(
    written: NewestBatch, measures: dict[str, Any], pairs: pl.DataFrame
) -> tuple[dict[str, Any], MatchesByRule]:
    """Adds the measures that follow from `runs` and from other measures; returns all, and the matches by rule."""
    new, kept = written.total("rows"), measures["quarantined_rows"]
    measures |= {
        "recorded_rows": sum(int(batch.plan.get("joined", 0)) for batch in written.batches),
        "new_rows": new,
        "recorded_matches": written.total("matches"),
        "unmatched_rows": measures["tagged_rows"] - measures["matched_rows"],
        "quarantine_share": kept / new if kept else 0.0,
        "tagged_matches": int(pairs["matches"].sum()),
        "unknown_ids": listing(written.unknown_ids(pairs)),
    }
    return measures, totals(pairs)
