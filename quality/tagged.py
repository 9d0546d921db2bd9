"""The suite of a tagged table: its newest micro-batches are complete, and agree with `_matches`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from pipelines.errors import SourceError
from pipelines.settings.model import LOCAL
from pipelines.table_definitions import scope_tables, tagged_table
from quality.evaluation import MeasuredSuites, Suite
from quality.findings import Expectation, MatchesByRule
from quality.validation import between, equal, listing, none_of, nothing
from quality.written import NewestBatch, totals

if TYPE_CHECKING:
    from pipelines.runners.runner import Runner
    from pipelines.settings.model import Stream
    from pipelines.workspace import Workspace
    from quality.sample import SampleResult


def expectations(stream: Stream) -> tuple[Expectation, ...]:
    """The expectations about the rows of the newest micro-batches."""
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
        nothing("ids_exist", "Every id is a rule of the index that tagged the row", "unknown_ids"),
        equal("matches_recorded", "The table runs counts as many matches", "tagged_matches", "recorded_matches"),
    ]
    if stream.keeps_matches:
        text = "For every rule, the tagged rows and the table of matches agree"
        listed.append(nothing("matches_agree", text, "differing_rules"))
    text = "A sample of rows, tried again rule by rule, agrees"
    listed.append(nothing("sample_agrees", text, "disagreeing_rules"))
    return tuple(listed)


def suites(workspace: Workspace, stream: Stream, newest: int = 1) -> MeasuredSuites:
    """The suite over the last `newest` micro-batches, its measures, and the matches by rule."""
    written = NewestBatch.newest(workspace, stream.name, newest)
    measures: dict[str, Any] = _nothing_written()
    counts: MatchesByRule = ()
    if written.batches:
        from pipelines.runners.choice import runner_of

        runner = runner_of(workspace, stream)
        with runner.session(), written.passing_over_what_is_gone(scope_tables(stream.name)):
            measures, counts = _measure(written, stream, runner)
    return MeasuredSuites(
        [Suite(tagged_table(stream), expectations(stream), measures)], measures, counts, written.note_judged
    )


class _Reader(Protocol):
    """The module that reads the tables, `local_written` or `spark_written`; the results are described there."""

    def row_measures(self, written: NewestBatch, stream: Stream, /) -> tuple[dict[str, int], pl.DataFrame]: ...

    def quarantined_rows(self, written: NewestBatch, stream: Stream, /) -> int: ...

    def matches_by_rule(self, written: NewestBatch, stream: Stream, /) -> pl.DataFrame: ...

    def sample_result(self, written: NewestBatch, stream: Stream, pairs: pl.DataFrame, /) -> SampleResult: ...


def _reader(runner: str) -> _Reader:
    if runner == LOCAL:
        from quality import local_written

        return local_written
    from quality import spark_written

    return spark_written


def _nothing_written() -> dict[str, Any]:
    counts = ("source_rows", "quarantined_rows", "tagged_rows", "expected_rows", "surplus_rows", "tagged_matches")
    faults = ("null_rule_ids", "unordered_rule_ids", "wrong_versions", "recorded_matches")
    listings = ("unknown_ids", "differing_rules", "disagreeing_rules")
    zeros: dict[str, Any] = dict.fromkeys((*counts, *faults), 0)
    return {**zeros, **dict.fromkeys(listings, listing([]))}


def _measure(written: NewestBatch, stream: Stream, runner: Runner) -> tuple[dict[str, Any], MatchesByRule]:
    """The measures, and the matches by rule."""
    reader = _reader(runner.name)
    rows, pairs = reader.row_measures(written, stream)
    measures: dict[str, Any] = {**rows, "source_rows": _source_rows(written, runner)}
    quarantined = written.total("quarantined")
    measures["quarantined_rows"] = reader.quarantined_rows(written, stream) if quarantined else 0
    measures["expected_rows"] = measures["source_rows"] - measures["quarantined_rows"]
    measures["surplus_rows"] = measures["tagged_rows"] - measures["expected_rows"]
    measures["recorded_matches"] = written.total("matches")
    measures["tagged_matches"] = int(pairs["matches"].sum())
    measures["unknown_ids"] = listing(written.unknown_ids(pairs))
    kept = all(batch.plan.get("matches") for batch in written.batches)
    differing = _differing(pairs, reader.matches_by_rule(written, stream)) if kept else []
    measures["differing_rules"] = listing(differing)
    return measures | reader.sample_result(written, stream, pairs).measures(), totals(pairs)


def _source_rows(written: NewestBatch, runner: Runner) -> int:
    """How many rows the micro-batches took from the source: by the source's log if possible, else by `runs`."""
    from pipelines.sources.slices import rows_of

    try:
        source = runner.open_source()
        counts = [rows_of(source.retake(batch.plan).files) for batch in written.batches]
    except SourceError:
        counts = [None]
    return written.total("rows") if None in counts else sum(count or 0 for count in counts)


def _differing(pairs: pl.DataFrame, kept: pl.DataFrame) -> list[str]:
    """Rules with other rows in `<stream>_matches` (`kept`) than in the tagged table."""
    key = ["rules_version", "rule_id"]
    both = pairs.join(kept, on=key, how="full", suffix="_kept", coalesce=True)
    differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_kept")) for name in ("matches", "checksum"))
    return [
        f"{row['rule_id']} ({row['matches'] or 0} tagged, {row['matches_kept'] or 0} kept)"
        for row in both.filter(differs).sort(key).iter_rows(named=True)
    ]
