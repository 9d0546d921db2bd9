"""Finds the values that were added to a list's table and removed from it since one of its versions.

They are in the table's change data feed, if it has one. Otherwise the data files that only one of the two versions has
are compared. DELETE and MERGE write a file again without the rows that they remove, so most rows are in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipelines.lake.lake import open_delta
from pipelines.lake.reading import arrow_reads, as_dataset
from pipelines.row_differences import differing
from rules_index.domains.value_lists import list_type

if TYPE_CHECKING:
    from deltalake import DeltaTable

MOST_VERSIONS = 1_000
"""Maximum number of versions whose changes are read: each is one file or more."""

Changed = tuple[pa.ChunkedArray, pa.ChunkedArray]
"""The values of removed rows, and the values of added rows; some may be in both."""


def changed_values(table: DeltaTable, uri: str, column: str, version: int) -> Iterator[Changed]:
    """Yields the values of a column in the rows that changed after `version`, up to the open version.

    There are up to two answers: from the feed, which may be incomplete, and from the files. There is none if the
    version or one of its files is gone, or if the table has deletion vectors or column mapping, which neither reader
    supports. The caller then reads all rows.
    """
    if not arrow_reads(table) or not 0 <= int(table.version()) - version <= MOST_VERSIONS:
        return
    for read_changes in (_changes_in_feed, _changes_in_files):
        try:
            found = read_changes(table, uri, column, version)
        except MemoryError:
            raise
        except Exception:  # the readers raise no narrower class if a file is gone
            continue
        if found is not None:
            yield found


def _changes_in_feed(table: DeltaTable, uri: str, column: str, version: int) -> Changed | None:
    """The changes from the feed; None if the table has no feed, or the column a type that lists do not have."""
    if table.metadata().configuration.get("delta.enableChangeDataFeed") != "true":
        return None
    now = int(table.version())
    feed = table.load_cdf(starting_version=version + 1, ending_version=now, columns=[column, "_change_type"])
    changes = pa.RecordBatchReader.from_stream(feed).read_all()
    kind = list_type(changes[column].type)
    if kind is None:
        return None
    # the feed comes in view types, which not every kernel of Arrow supports
    values, types = changes[column].cast(kind), changes["_change_type"].cast(pa.string())
    is_added = pc.is_in(types, pa.array(["insert", "update_postimage"]))
    return values.filter(pc.invert(is_added)), values.filter(is_added)


def _changes_in_files(now: DeltaTable, uri: str, column: str, version: int) -> Changed:
    """The changes from the files that only one of the two versions has, without most of the rows that are in both."""
    before = open_delta(uri, version, "a list", "")
    datasets = [as_dataset(table) for table in (before, now)]
    files = [{each.path: each for each in dataset.get_fragments()} for dataset in datasets]
    removed, added = (
        [_values(dataset, [by_path[path]], column) for path in sorted(by_path.keys() - others.keys())]
        for dataset, by_path, others in zip(datasets, files, reversed(files), strict=True)
    )
    kinds = [dataset.schema.field(column).type for dataset in datasets]
    # rewritten files first, as among the removed ones: inserted rows are in files of their own, which are smaller
    added.sort(key=len, reverse=True)
    one, two = (_joined(parts, kind) for parts, kind in zip((removed, added), kinds, strict=True))
    return differing(one.combine_chunks(), two.combine_chunks()) if one.type == two.type else (one, two)


def _values(dataset: ds.Dataset, files: Sequence[ds.Fragment], column: str) -> pa.ChunkedArray:
    chosen = ds.FileSystemDataset(files, dataset.schema, dataset.format, dataset.filesystem)
    return chosen.to_table(columns=[column]).column(0)


def _joined(parts: Sequence[pa.ChunkedArray], kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks], kind)
