"""Measures what micro-batches wrote to a stream's tables, without a JVM, reading the files in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import rules_index as ri
from pipelines.lake.column_types import arrow_schema_of
from pipelines.lake.table_log import table_log
from pipelines.rule_set import RULE_COLUMNS
from pipelines.sources.slices import rows_of
from pipelines.table_definitions import matches_keys, matches_table, quarantine_table, tagged_table
from quality.sample import ROWS, SampleResult, rules_to_try, text_partitions
from rules_index.arrays import decoded
from rules_index.workers.source_file_reader import read_batches

if TYPE_CHECKING:
    from pipelines.settings.model import Stream
    from pipelines.sources.positions import Add
    from quality.written import NewestBatch

_VERSIONS = ("rules_version", "index_fingerprint")
_PAIR = ["rules_version", "rule_id"]
_CHECKSUM_BITS = (1 << 32) - 1


def row_measures(written: NewestBatch, stream: Stream) -> tuple[dict[str, int], pl.DataFrame]:
    """Counts over the tagged rows, and one row per rule: `rules_version`, `rule_id`, `matches`, and a `checksum` of
    the keys of matching rows."""
    keys = _keys(stream)
    columns = ["rule_ids", *_VERSIONS, "source_version", *keys]
    return measured_rows(written, tagged_table(stream), columns, lambda batch: _hashes(batch, keys), lambda _: {})


def measured_rows(
    written: NewestBatch,
    table: str,
    columns: Sequence[str] | None,
    hashes: Callable[[pa.RecordBatch], np.ndarray],
    further: Callable[[pa.RecordBatch], dict[str, int]],
) -> tuple[dict[str, int], pl.DataFrame]:
    """Like `row_measures`, for any tagged table.

    hashes: gives a hash of each row, [rows] uint64, for the checksums; further: gives additional counts over a batch,
    which are added up.
    """
    planned = {(batch.rules_version, batch.fingerprint) for batch in written.batches if batch.fingerprint is not None}
    counts = dict.fromkeys(("tagged_rows", "null_rule_ids", "unordered_rule_ids", "wrong_versions", "matched_rows"), 0)
    pairs: list[pl.DataFrame] = []
    for batch in _rows(written, table, columns):
        ids = batch.column("rule_ids")
        counts["tagged_rows"] += len(batch)
        counts["null_rule_ids"] += ids.null_count + _with_nulls(ids)
        counts["unordered_rule_ids"] += _unordered(ids)
        versions = pl.DataFrame(pl.from_arrow(batch.select(list(_VERSIONS)))).group_by(_VERSIONS).len()
        counts["wrong_versions"] += sum(n for *named, n in versions.iter_rows() if tuple(named) not in planned)
        counts["matched_rows"] += int(pc.sum(pc.greater(pc.list_value_length(ids), 0)).as_py() or 0)
        for name, count in further(batch).items():
            counts[name] = counts.get(name, 0) + count
        owner = pc.list_parent_indices(ids)
        rows = pl.DataFrame({"rules_version": batch.column("rules_version"), "hash": hashes(batch)})
        rows = rows[owner.to_numpy()].with_columns(pl.Series("rule_id", pl.from_arrow(pc.list_flatten(ids))))
        pairs.append(_by_rule(rows))
    return counts, _added_up(pairs, written)


def matches_by_rule(written: NewestBatch, stream: Stream) -> pl.DataFrame:
    """One row per rule like the second result of `row_measures`, but from `<stream>_matches`."""
    keys = _keys(stream)
    pairs = []
    for batch in _rows(written, matches_table(stream), ["rule_id", "rules_version", "source_version", *keys]):
        rows = pl.DataFrame(pl.from_arrow(batch.select(["rules_version", "rule_id"])))
        pairs.append(_by_rule(rows.with_columns(pl.Series("hash", _hashes(batch, keys)))))
    return _added_up(pairs, written)


def quarantined_rows(written: NewestBatch, scope: Stream | str) -> int:
    """How many rows of a stream, or of a join given by name, the micro-batches put into quarantine."""
    name = quarantine_table(scope)
    adds = written.adds(table_log(written.workspace.lake.uri(name)), name)
    return rows_of(tuple(adds)) or 0


def sample_result(written: NewestBatch, stream: Stream, pairs: pl.DataFrame) -> SampleResult:
    """The rules whose evaluation by brute force contradicts the tags of sampled rows, and the size of the sample."""
    return try_sample_again(written, tagged_table(stream), stream.event_time, pairs, lambda rows: rows)


def try_sample_again(
    written: NewestBatch,
    table: str,
    event_time: str | None,
    pairs: pl.DataFrame,
    as_rules_see: Callable[[pa.Table], pa.Table],
) -> SampleResult:
    """Like `sample_result`, for any tagged table. as_rules_see: adds the columns that rules may name besides."""
    batch = written.batches[-1]
    rules = rules_to_try(written.workspace, written.scope, batch, pairs)
    if rules is None or rules.is_empty():
        return SampleResult()
    log = table_log(written.workspace.lake.uri(table))
    schema = as_rules_see(arrow_schema_of(log.latest().fields).empty_table()).schema
    sample = _sample(written, table, str(batch.fingerprint), set(rules["rule_id"].to_list()), batch.batch)
    configuration = written.workspace.configuration
    compiled = ri.compile_rules(
        rules.select(name for name in RULE_COLUMNS if name in rules.columns).to_arrow(),
        schema,
        "scan",
        event_time=event_time,
        time_zone=configuration.rules.time_zone,
    )
    tried = set(compiled.ids.to_pylist())
    if sample is None or not tried or compiled.derived:
        return SampleResult()
    faults: dict[Any, int] = {}
    asked = as_rules_see(sample) if compiled.inputs else pa.table({"_": pa.nulls(sample.num_rows)})
    for alone, tagged in zip(compiled.match(asked).to_pylist(), sample["rule_ids"], strict=True):
        for rule in set(alone) ^ _among(tagged, compiled.ids):
            faults[rule] = faults.get(rule, 0) + 1
    listed = [f"{rule} ({rows} rows)" for rule, rows in sorted(faults.items())]
    return SampleResult(listed, sample.num_rows, len(tried))


def _among(tagged: pa.ListScalar, ids: pa.Array) -> set[Any]:
    """Those of a row's rules that are among `ids`: a row may have a million others, too many for Python's lists."""
    if tagged.values is None:
        return set()
    found = decoded(tagged.values)
    return set(found.filter(pc.is_in(found, value_set=ids.cast(found.type))).to_pylist())


def _sample(written: NewestBatch, table: str, fingerprint: str, ids: set[Any], seed: int) -> pa.Table | None:
    """A sample of rows tagged by this index: half of them any rows, half matched by one of `ids`; None if it is empty.

    The same for each evaluation of a micro-batch, since `seed` is its number.
    """
    chance = np.random.default_rng(seed)
    total = max(written.batches[-1].rows or 0, 1)
    found: list[pa.Table] = []
    anywhere = matched = 0
    wanted = pa.array(sorted(ids))
    texts = text_partitions(written.workspace, table)
    for batch in _rows(written, table, None):
        ours = pc.equal(batch.column("index_fingerprint"), fingerprint).to_numpy(zero_copy_only=False)
        for name in texts:
            ours = ours & batch.column(name).is_valid().to_numpy(zero_copy_only=False)
        drawn = np.flatnonzero(ours & (chance.random(len(batch)) < 2 * ROWS / total))[: ROWS // 2 - anywhere]
        hits = pc.list_parent_indices(batch.column("rule_ids")).to_numpy()
        flat = decoded(pc.list_flatten(batch.column("rule_ids")))
        is_wanted = pc.is_in(flat, value_set=wanted.cast(flat.type)).to_numpy(zero_copy_only=False)
        matching = np.unique(hits[is_wanted])
        matching = matching[ours[matching]][: ROWS // 2 - matched]
        anywhere, matched = anywhere + len(drawn), matched + len(matching)
        chosen = np.union1d(drawn, matching).astype(np.int64)
        if len(chosen):
            found.append(pa.Table.from_batches([batch]).take(pa.array(chosen)))
        if anywhere >= ROWS // 2 and matched >= ROWS // 2:
            break
    return pa.concat_tables(found, promote_options="permissive").unify_dictionaries() if found else None


def _rows(written: NewestBatch, table: str, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """The rows that the micro-batches wrote to a table, in batches; columns: a selection, case aside."""
    log = table_log(written.workspace.lake.uri(table))
    adds: list[Add] = written.adds(log, table)
    schema = arrow_schema_of(log.latest().fields)
    spelled = {name.lower(): name for name in schema.names}
    chosen = None if columns is None else [spelled[name.lower()] for name in columns]
    # a generator, so that `log` stays: the local copies of files of an object store are removed with it
    yield from read_batches(log.source_files(adds), schema, chosen, with_version=False)


def _keys(stream: Stream) -> list[str]:
    return matches_keys(stream.key, stream.event_time) if stream.keeps_matches else []


def _hashes(batch: pa.RecordBatch, keys: Sequence[str]) -> np.ndarray:
    """A hash of each row's keys and source version, [rows] uint64, which is the same in both tables."""
    named = {name.lower(): name for name in batch.schema.names}
    columns = [batch.column(named[name.lower()]) for name in (*keys, "source_version")]
    plain = [decoded(column) for column in columns if not pa.types.is_nested(column.type)]
    frame = pl.DataFrame({str(number): pl.from_arrow(column) for number, column in enumerate(plain)})
    hashes: np.ndarray = frame.hash_rows(seed=0).to_numpy() & np.uint64(_CHECKSUM_BITS)
    return hashes


def _by_rule(rows: pl.DataFrame) -> pl.DataFrame:
    """(row, rule) pairs aggregated by rule: rules_version, rule_id, matches and a checksum."""
    kind = pl.String if rows.schema["rule_id"] not in (pl.Int64,) else pl.Int64
    rows = rows.with_columns(pl.col("rule_id").cast(kind))
    return rows.group_by(_PAIR).agg(matches=pl.len().cast(pl.Int64), checksum=pl.col("hash").cast(pl.UInt64).sum())


def _added_up(pairs: Sequence[pl.DataFrame], written: NewestBatch) -> pl.DataFrame:
    """The results of `_by_rule` for several batches, added up."""
    kind = pl.Int64 if written.workspace.lake.rule_id_type() == "bigint" else pl.String
    empty = pl.DataFrame(
        schema={"rules_version": pl.Int64, "rule_id": kind, "matches": pl.Int64, "checksum": pl.UInt64}
    )
    return pl.concat([empty, *pairs]).group_by(_PAIR).agg(pl.col("matches").sum(), pl.col("checksum").sum())


def _with_nulls(ids: pa.ListArray) -> int:
    """How many lists contain a NULL."""
    flat = pc.list_flatten(ids)
    if not flat.null_count:
        return 0
    owner = pc.list_parent_indices(ids).to_numpy()
    return len(np.unique(owner[flat.is_null().to_numpy(zero_copy_only=False)]))


def _unordered(ids: pa.ListArray) -> int:
    """How many lists have ids that do not ascend."""
    flat, owner = decoded(pc.list_flatten(ids)), pc.list_parent_indices(ids).to_numpy()
    if len(flat) < 2:
        return 0
    ascends = pc.fill_null(pc.less(flat[:-1], flat[1:]), True).to_numpy(zero_copy_only=False)
    return len(np.unique(owner[1:][~ascends & (owner[1:] == owner[:-1])]))
