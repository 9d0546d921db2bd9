"""Reads the rows of one stream of a join in this process: event time, key, and the stream's columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.error_texts import first_line
from pipelines.errors import NeedsSparkError, SourceError
from pipelines.joining.local_keys import common_type, comparable, instants
from pipelines.joining.sides import SideFiles
from pipelines.lake.column_types import arrow_schema_of, is_opaque, nullable
from pipelines.lake.delta_log import DeltaLog
from pipelines.sources.positions import Add
from rules_index.arrays import decoded
from rules_index.join.window_partners import FARTHEST
from rules_index.join.worker import KEY, NEW, TIME, own_column
from rules_index.workers.source_file_reader import SourceFile, UnreadableFileError, read_batches

if TYPE_CHECKING:
    from pipelines.settings.model import Join


@dataclass
class SideReader:
    """Reads the rows of one stream that can join: event time, whether the row is new, key, and the stream's columns.

    number: the stream's place in the join; types: the common types of the key's columns; filters: whether rows are
    filtered by the rules, None until the first batch decides it.
    """

    side: SideFiles
    number: int
    time: str
    keys: tuple[str, ...]
    types: Sequence[pa.DataType]
    zone: str
    schema: pa.Schema
    filters: bool | None = field(default=None)

    @property
    def names(self) -> list[str]:
        """The stream's columns."""
        return list(self.schema.names)

    @property
    def made(self) -> pa.Schema:
        """The columns of the batches that `rows` gives."""
        keys = [pa.field(f"{KEY}{place}", kind) for place, kind in enumerate(self.types)]
        own = [pa.field(own_column(self.side.stream.name, each.name), each.type) for each in self.schema]
        return pa.schema([pa.field(TIME, pa.int64()), pa.field(NEW, pa.bool_()), *keys, *own])

    def files(self, adds: Sequence[Add]) -> list[SourceFile]:
        """Files of the source, by their `add` actions."""
        assert isinstance(self.side.source.log, DeltaLog)
        return self.side.source.log.source_files(adds)

    def times(self, files: Sequence[SourceFile]) -> Iterator[np.ndarray]:
        """Event times (microseconds) of rows that have time and key; only these columns are read."""
        for batch in read_batches(files, self.schema, [self.time, *self.keys], with_version=False):
            yield self._joining(batch)[0].to_numpy()

    def rows(self, files: Sequence[SourceFile], new: bool, least: int | None, late: bool) -> Iterator[pa.RecordBatch]:
        """The rows of files that have time and key, with the columns `made`.

        new: whether they are new; least: rows before this event time (microseconds) are left out or, if `late`, are the
        only ones.
        """
        for batch in read_batches(files, self.schema, with_version=False):
            times, keys, present = self._joining(batch)
            if least is not None:
                kept = (times.to_numpy() < least) == late
                times, keys = times.filter(pa.array(kept)), [key.filter(pa.array(kept)) for key in keys]
                present[present] = kept
            own = [decoded(batch.column(name)) for name in self.schema.names]
            if not present.all():
                own = [column.filter(pa.array(present)) for column in own]
            if len(times):
                arrays = [times, pa.array(np.full(len(times), new)), *keys, *own]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.made)

    def _joining(self, batch: pa.RecordBatch) -> tuple[pa.Array, list[pa.Array], np.ndarray]:
        """Times and keys of the rows that have both, and a mask of these rows, [rows] bool.

        A row whose event time is as far from 1970 as `FARTHEST` counts as one without.
        """
        times = instants(batch.column(self.time), self.zone)
        keys = [comparable(decoded(batch.column(n)), kind) for n, kind in zip(self.keys, self.types, strict=True)]
        is_near = pc.and_(pc.greater(times, -FARTHEST), pc.less(times, FARTHEST)).fill_null(False)
        valid = [mask.to_numpy(zero_copy_only=False) for mask in (is_near, *(key.is_valid() for key in keys))]
        present: np.ndarray = np.array(reduce(np.logical_and, valid))
        if not present.all():
            chosen = pa.array(present)
            times, keys = times.filter(chosen), [key.filter(chosen) for key in keys]
        return times, keys, present


def side_readers(join: Join, sides: Sequence[SideFiles], zone: str) -> list[SideReader]:
    """A reader for each stream; NeedsSparkError if only Spark can compare the keys or read the columns."""
    schemas = [nullable(arrow_schema_of(side.fields)) for side in sides]
    for side, schema in zip(sides, schemas, strict=True):
        for each in schema:
            if is_opaque(each.type):
                raise NeedsSparkError(f"only Spark reads the column {each.name} of {side.stream.name}")
    spelled = [{name.lower(): name for name in schema.names} for schema in schemas]
    streams = [side.stream.name for side in sides]
    columns = [
        tuple(names[key.lower()] for key in join.on[stream]) for stream, names in zip(streams, spelled, strict=True)
    ]
    types = []
    for named in zip(*columns, strict=True):
        kinds = [schema.field(name).type for schema, name in zip(schemas, named, strict=True)]
        pairs = zip(streams, named, strict=True)
        types.append(common_type(kinds, "the keys " + ", ".join(f"{stream}.{name}" for stream, name in pairs)))
    times = [names[str(s.stream.event_time).lower()] for names, s in zip(spelled, sides, strict=True)]
    return [
        SideReader(side, number, times[number], columns[number], types, zone, schemas[number])
        for number, side in enumerate(sides)
    ]


@contextmanager
def reading(reader: SideReader) -> Iterator[None]:
    """Turn errors of reading a source into NeedsSparkError (a file for Spark alone) or SourceError."""
    try:
        yield
    except UnreadableFileError as error:
        raise NeedsSparkError(str(error)) from error
    except (pa.ArrowException, OSError) as error:
        name = reader.side.stream.name
        raise SourceError(f"The source of {name} cannot be read: {first_line(error)}") from error


def new_files(side: SideFiles) -> Sequence[Add]:
    """The files of a side's new rows."""
    return side.new.files if side.new is not None else ()


def struct_of(reader: SideReader, batch: pa.RecordBatch) -> pa.StructArray:
    """The stream's columns of a batch as one STRUCT column."""
    name = reader.side.stream.name
    fields = [batch.column(own_column(name, column)) for column in reader.names]
    return pa.StructArray.from_arrays(fields, reader.names)


def names_of(readers: Sequence[SideReader]) -> Mapping[str, tuple[str, ...]]:
    """The column names of each stream."""
    return {reader.side.stream.name: tuple(reader.names) for reader in readers}
