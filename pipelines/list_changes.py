"""Which rows of a list's table were added and removed since a version of it, from the files in which they differ.

The table's change data feed tells them, if it has one. Else the data files that only one of the two versions has are
read: DELETE and MERGE write a file anew without the rows that go, so most of its rows are in both.
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
"""The values of rows that were removed, and of those that were added; some may be in both."""


def changed_values(table: DeltaTable, uri: str, column: str, version: int) -> Iterator[Changed]:
    """The values of a column in the rows that changed after a version, up to the version that is open: by the feed, and
    by the files.

    Yields nothing if the version or one of its files is gone, or if the table has deletion vectors or column mapping,
    which neither reader supports. The caller then reads all rows.
    """
    if not arrow_reads(table) or not 0 <= int(table.version()) - version <= MOST_VERSIONS:
        return
    for of in (_of_feed, _of_files):
        try:
            found = of(table, uri, column, version)
        except MemoryError:
            raise
        except Exception:  # the readers raise no narrower class if a file is gone
            continue
        if found is not None:
            yield found


def _of_feed(table: DeltaTable, uri: str, column: str, version: int) -> Changed | None:
    """The changes by the feed; None if the table has none."""
    if table.metadata().configuration.get("delta.enableChangeDataFeed") != "true":
        return None
    now = int(table.version())
    feed = table.load_cdf(starting_version=version + 1, ending_version=now, columns=[column, "_change_type"])
    changes = pa.RecordBatchReader.from_stream(feed).read_all()
    kind = list_type(changes[column].type)
    if kind is None:
        return None
    # not every kernel of Arrow knows the view types that the feed comes in
    values, types = changes[column].cast(kind), changes["_change_type"].cast(pa.string())
    is_added = pc.is_in(types, pa.array(["insert", "update_postimage"]))
    return values.filter(pc.invert(is_added)), values.filter(is_added)


def _of_files(now: DeltaTable, uri: str, column: str, version: int) -> Changed:
    """The rows of the files that only one of two versions has."""
    before = open_delta(uri, version, "a list", "")
    datasets = [as_dataset(table) for table in (before, now)]
    files = [{each.path: each for each in dataset.get_fragments()} for dataset in datasets]
    removed, added = (
        [_values(dataset, [mine[path]], column) for path in sorted(mine.keys() - other.keys())]
        for dataset, mine, other in zip(datasets, files, reversed(files), strict=True)
    )
    kinds = [dataset.schema.field(column).type for dataset in datasets]
    # rows that were put in are in files of their own, which are smaller
    added.sort(key=len, reverse=True)
    one, two = (_joined(parts, kind) for parts, kind in zip((removed, added), kinds, strict=True))
    return differing(one.combine_chunks(), two.combine_chunks()) if one.type == two.type else (one, two)


def _values(dataset: ds.Dataset, files: Sequence[ds.Fragment], column: str) -> pa.ChunkedArray:
    chosen = ds.FileSystemDataset(files, dataset.schema, dataset.format, dataset.filesystem)
    return chosen.to_table(columns=[column]).column(0)


def _joined(parts: Sequence[pa.ChunkedArray], kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks], kind)
