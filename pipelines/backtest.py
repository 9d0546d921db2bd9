"""The verb backtest: what rules would have matched among a source's rows, without a JVM; nothing is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds

import rules_index as ri
from pipelines.annotated import annotate_of
from pipelines.duplicate_ids import current_rules
from pipelines.errors import ConfigurationError
from pipelines.lake.python_values import values_of
from pipelines.rule_set import ANNOTATED_BY, RULE_COLUMNS
from pipelines.scopes import StreamScope, scope_of
from pipelines.sources.event_times import bounds
from pipelines.sources.source_rows import SourceRows
from pipelines.value_lists import read_lists
from pipelines.workspace import Workspace
from rules_index.arrays import gather_indices, offsets_of, segment_ids
from rules_index.errors import RuleError
from rules_index.names import column_key, path_parts, spelled

MOST_EXAMPLES = 5
MOST_OVERLAPS = 10
MOST_MEASURED, MEASURED_ROWS = 20, 1 << 16
"""How many rules' costs are measured, and on how many rows at least."""
_MOST_VALUE = 200
_TRIED: dict[str, pl.DataType | type[pl.DataType]] = {
    "rule_id": pl.String,
    "expression": pl.String,
    "labels": pl.List(pl.Struct({"key": pl.String, "value": pl.String})),
    "severity": pl.String,
    "valid_from": pl.Datetime("us", "UTC"),
    "valid_to": pl.Datetime("us", "UTC"),
}
_Compile = Callable[[pl.DataFrame], ri.CompiledRules]
_ANALYSIS = "ANALYSIS"
_SPARK_ONLY = (
    "The rule has a part that only Spark evaluates, {}, which a back-test does not evaluate. To count the rows "
    "that it matches, query the source with the rule as WHERE."
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rule to try: its new text, and the text that it replaces; either may be None, for a rule that is not in force.

    new_columns, old_columns: `labels`, `severity`, `valid_from` and `valid_to` of the rule with each text; those that
    it lacks are NULL.
    """

    rule_id: str
    new: str | None
    old: str | None = None
    new_columns: Mapping[str, Any] = field(default_factory=dict)
    old_columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class RuleBacktest:
    """What a rule would have matched.

    matches, errors: rows that the new text matches, and rows on which one of its predicates raised an error; gained,
    lost: rows that only the new text, or only the replaced one, matches; examples: some of these, with the keys `kind`
    ("gained" or "lost") and `row`; overlaps: current rules that match some of the same rows, with how many; over_time:
    matches by the hour of the event time, local in the zone of rules; cost: nanoseconds for matching one row with this
    rule alone, None if it was not measured; error: why the rule was not tried.
    """

    rule_id: str
    matches: int = 0
    gained: int = 0
    lost: int = 0
    errors: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)
    overlaps: dict[str, int] = field(default_factory=dict)
    over_time: dict[datetime, int] = field(default_factory=dict)
    cost: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class BacktestResult:
    """The rules that were tried on `rows` rows of a scope's source; `sampled` if these are not all of its rows."""

    scope: str
    rows: int
    rules: tuple[RuleBacktest, ...]
    sampled: bool
    seconds: float
    notes: tuple[str, ...] = ()


def backtest(
    workspace: Workspace,
    scope: str,
    candidates: Sequence[Candidate],
    since: str | None = None,
    until: str | None = None,
    sample: int | None = None,
    in_full: int | None = None,
) -> BacktestResult:
    """Try rules on the current rows of a stream's source.

    since, until: ISO 8601, of the event time, `until` excluded. sample: about how many rows to look at, spread over the
    source; by default all. in_full: of how many rules, the first that can be tried, overlaps and examples are wanted;
    by default of all. ConfigurationError for a join, or a range without an event time; SourceError if the source
    cannot be read without Spark.
    """
    started = time.perf_counter()
    over = scope_of(workspace, scope)
    if not isinstance(over, StreamScope):
        raise ConfigurationError(f"{scope} is a join; a back-test tries only rules of streams.")
    schema = over.columns()
    tried, current = _with_texts(candidates), current_rules(workspace).of_scope(scope)
    compile_ = _compiler(workspace, over, schema, pl.concat([current["expression"], tried["expression"]]))
    found, compiled, notes = _compiled(current, tried, compile_, candidates)
    event_time = spelled(schema.names, over.event_time, column_key) if over.event_time is not None else None
    names = {path_parts(leaf.name)[0].lower() for leaf in compiled.inputs}
    names |= {name.lower() for name in (*over.stream.key, over.event_time) if name}
    names = names or {schema.names[0].lower()}
    read = pa.schema([field for field in schema if field.name.lower() in names])
    times, zone = _times(workspace, scope, schema, event_time, since, until), workspace.configuration.rules.time_zone
    rows = SourceRows(over.stream, read, times, sample, zone)
    largest = schema.empty_table()
    whole = {id(each) for each in [each for each in found if each.error is None][:in_full]}
    for batch in rows if any(each.error is None for each in found) else ():
        workspace.progress(f"trying {len(candidates):,} rules on {scope}, {rows.read:,} rows")
        _count(found, whole, compiled, batch, event_time, ZoneInfo(zone))
        largest = max(largest, batch, key=len)
    if len(largest):
        _measure(found, tried, compile_, largest)
    return BacktestResult(
        scope, rows.read, tuple(found), rows.sampled, round(time.perf_counter() - started, 3), tuple(notes)
    )


def _with_texts(candidates: Sequence[Candidate]) -> pl.DataFrame:
    """The candidates as rules: number `i` has the id `n{i}` with its new text, and `o{i}` with the one it replaces."""
    texts = [(f"n{i}", each.new, each.new_columns) for i, each in enumerate(candidates)]
    texts += [(f"o{i}", each.old, each.old_columns) for i, each in enumerate(candidates)]
    rows = [{**_columns(given), "rule_id": key, "expression": text} for key, text, given in texts if text is not None]
    return pl.DataFrame(rows, schema=_TRIED)


def _compiler(workspace: Workspace, scope: StreamScope, schema: pa.Schema, texts: pl.Series) -> _Compile:
    """Returns a function that compiles rules over the stream; rules that need Spark are rejected.

    texts: the expressions of all rules that will be compiled, whose value lists are read now.
    """
    lists, _ = read_lists(workspace.configuration, texts)
    return lambda rules: ri.compile_rules(
        rules.to_arrow(),
        schema,
        event_time=scope.event_time,
        time_zone=workspace.configuration.rules.time_zone,
        annotate=annotate_of(workspace.configuration, scope.name),
        analyse=lambda leaves: [RuleError(_ANALYSIS, _SPARK_ONLY.format(leaf.text)) for leaf in leaves],
        lists=lists,
    )


def _compiled(
    current: pl.DataFrame, tried: pl.DataFrame, compile_: _Compile, candidates: Sequence[Candidate]
) -> tuple[list[RuleBacktest], ri.CompiledRules, list[str]]:
    """Compile the candidates (`tried`) and the current rules (`current`), whose ids get the prefix `t`, into one index.

    Returns a result for each candidate, with the error if it is rejected, then the index, and notes for people. A
    replaced text that is rejected is an error only if Spark evaluates it: any other one has matched nothing.
    """
    current = current.select(name for name in (*RULE_COLUMNS, *ANNOTATED_BY) if name in current.columns)
    current = current.with_columns(pl.format("t{}", "rule_id").alias("rule_id"))
    kinds = [(name, kind) for name, kind in current.schema.items() if name.startswith("valid_") and kind != pl.Null]
    tried = tried.select(name for name in tried.columns if name in current.columns)
    tried = tried.with_columns(pl.col(name).cast(kind) for name, kind in kinds)
    compiled = compile_(pl.concat([current, tried], how="diagonal_relaxed"))
    rejects = {row["rule_id"]: row for row in compiled.rejects.to_pylist()}
    found = [RuleBacktest(each.rule_id) for each in candidates]
    for number, each in enumerate(found):
        old = rejects.get(f"o{number}")
        reject = rejects.get(f"n{number}") or (old if old and old["error"] == _ANALYSIS else None)
        each.error = f"{reject['error']}: {reject['message']}" if reject else None
    missing = sum(key.startswith("t") for key in rejects)
    rules = "1 rule that needs Spark, or is" if missing == 1 else f"{missing:,} rules that need Spark, or are"
    notes = [f"Overlaps leave out {rules} rejected."] if missing else []
    disabled = [each.rule_id for each in candidates if each.new is None and each.old is None]
    if disabled:
        more = f" and {len(disabled) - MOST_EXAMPLES:,} more" if len(disabled) > MOST_EXAMPLES else ""
        notes.append(f"Disabled rules match nothing: {', '.join(disabled[:MOST_EXAMPLES])}{more}.")
    return found, compiled, notes


def _measure(found: Sequence[RuleBacktest], tried: pl.DataFrame, compile_: _Compile, rows: pa.Table) -> None:
    """Measure the cost of the first `MOST_MEASURED` rules: the faster of two matches with the rule alone.

    `rows` are repeated up to `MEASURED_ROWS`, so that the fixed cost of a match becomes negligible.
    """
    rows = pa.concat_tables([rows] * -(-MEASURED_ROWS // len(rows))).combine_chunks()
    for number, each in enumerate(found[:MOST_MEASURED]):
        alone = tried.filter(pl.col("rule_id") == f"n{number}")
        if each.error is not None or alone.is_empty():
            continue
        compiled, times = compile_(alone), []
        for _ in range(2):
            started = time.perf_counter()
            compiled.match_ordinals(rows)
            times.append(time.perf_counter() - started)
        each.cost = min(times) / rows.num_rows * 1e9


def _columns(given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a rule in the form in which rules are compiled."""
    pairs = [{"key": key, "value": value} for key, value in (given.get("labels") or {}).items()]
    return {name: given.get(name) for name in _TRIED} | {"labels": pairs}


def _times(
    workspace: Workspace, scope: str, schema: pa.Schema, event_time: str | None, since: str | None, until: str | None
) -> ds.Expression | None:
    """The range of event times as a filter; None without bounds.

    event_time: the column, in the source's spelling. ConfigurationError without one, if there are bounds.
    """
    if since is None and until is None:
        return None
    if event_time is None:
        raise ConfigurationError(f"The stream {scope} has no event_time, which --from and --to are compared with.")
    kind = schema.field(event_time).type
    zone = ZoneInfo(workspace.configuration.rules.time_zone)
    column, wanted = ds.field(event_time), None
    for bound, compare in zip(bounds(since, until, kind, zone), (column.__ge__, column.__lt__), strict=True):
        if bound is not None:
            part = compare(pa.scalar(bound, kind))
            wanted = part if wanted is None else wanted & part
    return wanted


def _count(
    found: Sequence[RuleBacktest],
    in_full: Collection[int],
    compiled: ri.CompiledRules,
    rows: pa.Table,
    event_time: str | None,
    zone: ZoneInfo,
) -> None:
    """Add the counts of a batch of rows to the results in `found`, and overlaps and examples to those whose `id` is in
    `in_full`. event_time: the column.

    The work for a rule grows with the rows that it matches, not with the batch: thousands may be tried together.
    """
    offsets, ordinals, errors = compiled.match_ordinals(rows)
    ids = compiled.ids.to_pylist()
    ordinal_of = {rule: ordinal for ordinal, rule in enumerate(ids)}
    order = np.argsort(ordinals, kind="stable")
    rows_by_rule, starts = segment_ids(offsets)[order], offsets_of(np.bincount(ordinals, minlength=len(ids)))
    places, hours = _hours(rows.column(event_time), zone) if event_time is not None else (None, [])

    def matched(key: str) -> np.ndarray:
        """The rows that one rule of the index matches: their numbers [.] int64, ascending."""
        ordinal = ordinal_of.get(key)
        return rows_by_rule[:0] if ordinal is None else rows_by_rule[starts[ordinal] : starts[ordinal + 1]]

    for number, each in enumerate(found):
        new, old = matched(f"n{number}"), matched(f"o{number}")
        gained, lost = np.setdiff1d(new, old, assume_unique=True), np.setdiff1d(old, new, assume_unique=True)
        each.matches += len(new)
        each.gained += len(gained)
        each.lost += len(lost)
        each.errors += errors.get(f"n{number}", 0)
        if id(each) in in_full:
            counts = np.bincount(ordinals[gather_indices(offsets, new)[0]])
            for rule in np.flatnonzero(counts).tolist():
                if ids[rule].startswith("t") and ids[rule] != f"t{each.rule_id}":
                    each.overlaps[ids[rule][1:]] = each.overlaps.get(ids[rule][1:], 0) + int(counts[rule])
            _add_examples(each, rows, gained, lost)
        if places is not None:
            _add_times(each, places[new], hours)


def _add_examples(each: RuleBacktest, rows: pa.Table, gained: np.ndarray, lost: np.ndarray) -> None:
    """Add rows to the examples, up to `MOST_EXAMPLES` of a kind; gained, lost: numbers of rows."""
    for kind, numbers in (("gained", gained), ("lost", lost)):
        left = MOST_EXAMPLES - sum(example["kind"] == kind for example in each.examples)
        if not left or not len(numbers):
            continue
        chosen = rows.take(pa.array(numbers[:left]))
        for row in zip(*map(values_of, chosen.columns), strict=True):
            named = zip(chosen.column_names, map(_short, row), strict=True)
            each.examples.append({"kind": kind, "row": dict(named)})


def _short(value: Any) -> Any:
    return f"{value[:_MOST_VALUE]}…" if isinstance(value, str) and len(value) > _MOST_VALUE else value


def _hours(column: pa.ChunkedArray, zone: ZoneInfo) -> tuple[np.ndarray, list[datetime]]:
    """The distinct hours of event times, ascending, and for each row the place of its hour among them, [rows] int64.

    Timestamps are converted to the zone. The place is -1 for NULL, and for years beyond Python's.
    """
    times = pl.Series(pl.from_arrow(column))
    if isinstance(times.dtype, pl.Datetime) and times.dtype.time_zone is not None:
        times = times.dt.convert_time_zone(zone.key).dt.replace_time_zone(None)
    hours = times.cast(pl.Datetime("us")).dt.truncate("1h")
    hours = pl.select(pl.when(hours.dt.year().is_between(1, 9999)).then(hours)).to_series()
    places = hours.rank("dense").cast(pl.Int64).fill_null(0).to_numpy() - 1
    return places, hours.drop_nulls().unique().sort().to_list()


def _add_times(each: RuleBacktest, places: np.ndarray, hours: Sequence[datetime]) -> None:
    """Add matched rows to the counts by hour; places: of their hours, -1 for none."""
    for place, count in zip(*np.unique(places[places >= 0], return_counts=True), strict=True):
        each.over_time[hours[place]] = each.over_time.get(hours[place], 0) + int(count)
