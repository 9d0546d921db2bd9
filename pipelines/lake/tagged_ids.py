"""Reads the rule ids of tagged rows as codes: a table with very many matches has far fewer different ids.

As texts, the ids of a row group with a hundred matches a row take a gigabyte; as codes, a tenth of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipelines.lake.reading import arrow_reads, as_dataset, batches_of
from rules_index.workers.source_file_reader import coded_leaves

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake

IDS = "rule_ids"
_FEW_ROWS = 10_000
"""Up to so many rows a file is read as it is: its footer would have to be read twice."""


class CodedIds(NamedTuple):
    """The matches of a batch: `rows` [matches] int64 its row, `codes` [matches] int32 the place of its rule in `ids`,
    which may have ids that no row of the batch has."""

    rows: np.ndarray
    codes: np.ndarray
    ids: pa.Array


def coded(column: pa.Array) -> CodedIds:
    """The matches of a batch's column `rule_ids`, in the order of its rows."""
    values = pc.list_flatten(column)
    rows = pc.list_parent_indices(column)
    if values.null_count:
        rows, values = rows.filter(values.is_valid()), values.drop_null()
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    codes = values.indices.to_numpy(zero_copy_only=False)
    return CodedIds(rows.to_numpy(zero_copy_only=False), codes, values.dictionary)


class MatchCounts:
    """How many matches each rule has at each of some places: `ids` [rules], and `counts` [rules, places] int64."""

    def __init__(self, places: int = 1) -> None:
        self.ids = pa.array([], pa.string())
        self.counts = np.zeros((0, places), np.int64)

    def add(self, matches: CodedIds, places: np.ndarray | int = 0) -> None:
        """Count matches, each at its place [matches], or all at one."""
        width = self.counts.shape[1]
        bins = matches.codes.astype(np.int64) * width + places
        found = np.bincount(bins, minlength=len(matches.ids) * width).reshape(-1, width)
        matched = np.flatnonzero(found.any(axis=1))
        ids = matches.ids.take(pa.array(matched))
        if not len(self.ids):
            self.ids = ids.slice(0, 0)
        new = ids.filter(pc.invert(pc.is_in(ids, self.ids)))
        self.ids = pa.concat_arrays([self.ids, new])
        self.counts = np.concatenate([self.counts, np.zeros((len(new), width), np.int64)])
        self.counts[pc.index_in(ids, self.ids).to_numpy()] += found[matched]


def tagged_rows(
    lake: Lake, name: str, columns: Sequence[str], where: pc.Expression | None = None, version: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Columns of a tagged table, which must include those that `where` names, in batches; `coded` takes the ids.

    TableError if the table cannot be read, or lacks one of the columns.
    """
    from deltalake import exceptions

    table = lake.delta(name, version)
    try:
        if arrow_reads(table):
            yield from tagged_batches(as_dataset(table), columns, where=where)
        else:
            yield from batches_of(table, columns, where)
    except (exceptions.DeltaError, OSError, pa.ArrowException) as error:
        raise lake.unreadable(name, version, error) from error


def tagged_batches(
    dataset: ds.Dataset,
    columns: Sequence[str] | Mapping[str, pc.Expression],
    is_wanted: Callable[[str], bool] = lambda path: True,
    where: pc.Expression | None = None,
) -> Iterator[pa.RecordBatch]:
    """Columns of a tagged table in batches of at most a row group; ids that are texts are dictionaries in large files.

    columns, where: as for Arrow's `to_batches`; is_wanted: whether the rows of a file are, by its path. Raises what
    Arrow raises. All rows of a dataset that is not of files are read, as they are.
    """
    names = list(columns) if not isinstance(columns, Mapping) else dict(columns)
    if not isinstance(dataset, ds.FileSystemDataset):
        yield from dataset.to_batches(columns=names, filter=where)
        return
    schema = _with_codes(dataset.schema) if IDS in names else dataset.schema
    for file in dataset.get_fragments():
        if not is_wanted(file.path):
            continue
        read, read_schema = file, dataset.schema
        if schema != dataset.schema and file.metadata.num_rows > _FEW_ROWS:
            read, read_schema = _as_codes(file), schema
        yield from read.to_batches(read_schema, columns=names, filter=where, batch_readahead=1, fragment_readahead=1)


def _with_codes(schema: pa.Schema) -> pa.Schema:
    """The schema with dictionaries for ids that are texts."""
    place = schema.get_field_index(IDS)
    kind = schema.field(place).type if place >= 0 else pa.null()
    if not (pa.types.is_list(kind) and pa.types.is_string(kind.value_type)):
        return schema
    return schema.set(place, pa.field(IDS, pa.list_(pa.dictionary(pa.int32(), kind.value_type))))


def _as_codes(file: Any) -> Any:
    """The fragment of a Parquet file whose ids are read as dictionaries."""
    leaves = set(coded_leaves(file.metadata, IDS))
    options = ds.ParquetReadOptions(dictionary_columns=leaves, coerce_int96_timestamp_unit="us")
    return ds.ParquetFileFormat(options).make_fragment(file.path, file.filesystem, file.partition_expression)
