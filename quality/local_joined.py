"""Measures what micro-batches wrote to a join's tables, without a JVM, reading the files in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.joining.local_keys import common_type, comparable, instants
from pipelines.scopes import JOINED_TIME
from pipelines.table_definitions import tagged_table
from quality.local_written import measured_rows, quarantined_rows, try_sample_again

if TYPE_CHECKING:
    from pipelines.settings.model import Join, Stream
    from quality.written import NewestBatch


@dataclass(frozen=True)
class JoinedRows:
    """Measures joined rows by the join's definition; zone: the time zone of times without one."""

    join: Join
    streams: Mapping[str, Stream]
    zone: str

    def unequal_keys(self, batch: pa.RecordBatch) -> int:
        """How many rows have keys that are NULL, or not equal in all streams."""
        first, *others = self.join.streams
        equal = np.ones(len(batch), bool)
        for place in range(len(self.join.on[first])):
            columns = {name: _field(batch, name, self.join.on[name][place]) for name in self.join.streams}
            kind = common_type([column.type for column in columns.values()], "the keys")
            keys = {name: comparable(column, kind) for name, column in columns.items()}
            equal &= keys[first].is_valid().to_numpy(zero_copy_only=False)
            for other in others:
                equal &= pc.fill_null(_same(keys[first], keys[other]), False).to_numpy(zero_copy_only=False)
        return int((~equal).sum())

    def outside_window(self, batch: pa.RecordBatch) -> int:
        """How many rows have an event time that is NULL, or before the latest one by more than its stream's window."""
        times = self._times(batch)
        null = reduce(np.logical_or, [each.is_null().to_numpy(zero_copy_only=False) for each in times.values()])
        known = {name: each.fill_null(0).to_numpy(zero_copy_only=False) for name, each in times.items()}
        latest = reduce(np.maximum, known.values())
        late = [latest - time > self.join.window[name] for name, time in known.items()]
        return int((reduce(np.logical_or, late) | null).sum())

    def hashes(self, batch: pa.RecordBatch) -> np.ndarray:
        """A hash of the keys of all streams, [rows] uint64.

        Nested keys are not part of the hash. It is 0 for a row with NULL in a key, and for all rows if the batch lacks
        a key, or if all keys are nested.
        """
        keys = {name: self.streams[name].key for name in self.join.streams}
        if not has_fields({name: [field.name for field in batch.schema.field(name).type] for name in keys}, keys):
            return np.zeros(len(batch), np.uint64)
        columns = [_field(batch, name, key) for name, named in keys.items() for key in named]
        plain = [column for column in columns if not pa.types.is_nested(column.type)]
        if not plain:
            return np.zeros(len(batch), np.uint64)
        frame = pl.DataFrame({str(number): pl.from_arrow(column) for number, column in enumerate(plain)})
        named = reduce(np.logical_and, [column.is_valid().to_numpy(zero_copy_only=False) for column in columns])
        return np.where(named, frame.hash_rows(seed=0).to_numpy(), np.uint64(0))

    def with_time(self, rows: pa.Table) -> pa.Table:
        """Joined rows with their event time, in the column that rules read it from."""
        rows = rows.combine_chunks()
        if not rows.num_rows:
            return rows.append_column(JOINED_TIME, pa.array([], pa.timestamp("us", "UTC")))
        times = self._times(rows.to_batches()[0])
        latest = pc.max_element_wise(*times.values(), skip_nulls=False)
        return rows.append_column(JOINED_TIME, latest.cast(pa.timestamp("us", "UTC")))

    def _times(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        return {
            name: instants(_field(batch, name, str(self.streams[name].event_time)), self.zone)
            for name in self.join.streams
        }


def measures_of(written: NewestBatch, join: Join) -> tuple[dict[str, Any], pl.DataFrame]:
    """Counts over what the micro-batches wrote and a sample of it, and the matches by rule.

    NeedsSparkError if only Spark compares keys or times.
    """
    configuration = written.workspace.configuration
    rows = JoinedRows(join, configuration.streams, configuration.rules.time_zone)
    table, has_keys = tagged_table(join.name), all(configuration.stream(name).key for name in join.streams)
    seen: list[np.ndarray] = []

    def further(batch: pa.RecordBatch) -> dict[str, int]:
        """The join's own counts over a batch; also collects the hashes of keys."""
        if has_keys:
            seen.append(rows.hashes(batch))
        return {"unequal_keys": rows.unequal_keys(batch), "outside_window": rows.outside_window(batch)}

    found, pairs = measured_rows(written, table, None, lambda batch: np.zeros(len(batch), np.uint64), further)
    measures: dict[str, Any] = {"unequal_keys": 0, "outside_window": 0, **found}
    named = np.concatenate(seen) if seen else np.empty(0, np.uint64)
    named = named[named != 0]
    measures["repeated_rows"] = len(named) - len(np.unique(named))
    measures["quarantined_rows"] = quarantined_rows(written, join.name) if written.total("quarantined") else 0
    sample = try_sample_again(written, table, JOINED_TIME, pairs, rows.with_time)
    return measures | sample.measures(), pairs


def has_fields(fields: Mapping[str, Sequence[str]], named: Mapping[str, Sequence[str]]) -> bool:
    """Whether the STRUCT columns of joined rows have all the fields in `named`, case aside; both by stream."""
    return all({key.lower() for key in keys} <= {each.lower() for each in fields[name]} for name, keys in named.items())


def _field(batch: pa.RecordBatch, stream: str, column: str) -> pa.Array:
    """A stream's column within joined rows, case aside."""
    struct = batch.column(stream)
    names = {field.name.lower(): place for place, field in enumerate(struct.type)}
    found = struct.flatten()[names[column.lower()]]
    return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found


def _same(one: pa.Array, other: pa.Array) -> pa.Array:
    """Whether values are equal, [rows] bool or NULL; NaN equals NaN."""
    equal = pc.equal(one, other)
    return pc.or_kleene(equal, pc.and_(pc.is_nan(one), pc.is_nan(other))) if pa.types.is_floating(one.type) else equal
