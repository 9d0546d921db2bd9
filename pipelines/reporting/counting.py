"""Counts a tagged table's rows and matches over time, and which rules match the same rows, without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipelines.error_texts import first_line
from pipelines.errors import TableError
from pipelines.lake.add_actions import file_name
from pipelines.lake.added_files import files_in
from pipelines.lake.lake import Lake
from pipelines.lake.reading import arrow_reads, as_dataset, read_rows
from pipelines.lake.tagged_ids import IDS, MatchCounts, coded, tagged_batches
from rules_index.names import column_key

MOST_ROWS = 20_000_000
"""Number of rows from which no further file is read: the cost of a report does not grow with a table's history."""
MOST_PERIODS = 60
_PAIR_ROWS = 2_000_000
_UNITS = {
    "1m": timedelta(minutes=1),
    "5m": timedelta(minutes=5),
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "1d": timedelta(days=1),
    "1w": timedelta(weeks=1),
    "1mo": timedelta(days=31),
    "3mo": timedelta(days=92),
    "1y": timedelta(days=366),
    "10y": timedelta(days=3_653),
    "100y": timedelta(days=36_525),
}
_YEARS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""Microseconds since 1970 of the start of the year 1 and the end of the year 9999."""


@dataclass(frozen=True, slots=True)
class Periods:
    """Consecutive periods, each one `unit` long; `starts`: their beginnings, as local times in text."""

    unit: str
    starts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The counts of the newest files of a tagged table.

    rows: how many of `all_rows` were read; matched: how many of these have a match; periods: those of the plots;
    rows_over_time, matched_over_time: [periods] rows, and rows with a match; matches: by rule, the rows that match;
    over_time: by rule, [periods] int64 rows that match; outside: rows whose time is NULL or in none of the periods.
    """

    rows: int
    all_rows: int
    matched: int
    periods: Periods
    rows_over_time: tuple[int, ...]
    matched_over_time: tuple[int, ...]
    matches: dict[Any, int]
    over_time: dict[Any, np.ndarray]
    outside: int


class TaggedRows:
    """The newest rows of a tagged table: the ids of their rules, and their time, local in `zone`.

    times: paths of columns; the latest of their values is a row's time.
    """

    def __init__(self, lake: Lake, table: str, times: Sequence[tuple[str, ...]], zone: str) -> None:
        from deltalake import exceptions

        delta = lake.delta(table)
        self._name, self._zone = table, zone
        self._times = [_in_spelling(pa.schema(delta.schema()), path) for path in times]
        names = {"rule_ids", *(path[0] for path in self._times)}
        try:
            self._dataset = as_dataset(delta) if arrow_reads(delta) else ds.dataset(read_rows(delta, sorted(names)))
        except (exceptions.DeltaError, OSError, pa.ArrowException) as error:
            raise lake.unreadable(table, None, error) from error
        actions = files_in(delta).select(["path", "num_records", "modification_time"])
        newest = pl.DataFrame(pl.from_arrow(actions)).sort("modification_time", descending=True)
        self.all_rows = int(newest["num_records"].sum())
        before = newest["num_records"].cum_sum().shift(1, fill_value=0)
        self._files = {file_name(path) for path in newest.filter(before < MOST_ROWS)["path"]}

    def times(self) -> Iterator[pl.Series]:
        """The rows' times in batches. TableError if the table cannot be read."""
        for _, times in self.batches(with_ids=False):
            yield times

    def batches(self, with_ids: bool = True, with_times: bool = True) -> Iterator[tuple[pa.Array, pl.Series]]:
        """The rows in batches: their ids (`tagged_ids.coded` takes them) and their times, empty where not asked for.

        TableError if the table cannot be read.
        """
        wanted = {IDS: pc.field(IDS)} if with_ids else {}
        if with_times:
            wanted |= {f"time{place}": pc.field(*path) for place, path in enumerate(self._times)}
        try:
            for batch in tagged_batches(self._dataset, wanted, lambda path: file_name(path) in self._files):
                ids = batch.column(IDS) if with_ids else pa.array([])
                times = [each for each in wanted if each != IDS]
                yield ids, self._latest(batch.select(times)) if with_times else pl.Series([])
        except (OSError, pa.ArrowException) as error:
            raise TableError(f"The table {self._name} cannot be read: {first_line(error)}") from error

    def _latest(self, batch: pa.RecordBatch) -> pl.Series:
        """The latest of each row's times, local in the zone."""
        frame = pl.DataFrame(pl.from_arrow(pa.Table.from_batches([batch])))
        return frame.select(pl.max_horizontal(*(self._local(*each) for each in frame.schema.items()))).to_series()

    def _local(self, name: str, kind: pl.DataType) -> pl.Expr:
        """The local time in the zone; TIMESTAMP_NTZ and DATE are local already."""
        time = pl.col(name)
        if isinstance(kind, pl.Datetime) and kind.time_zone is not None:
            time = time.dt.convert_time_zone(self._zone).dt.replace_time_zone(None)
        return time.cast(pl.Datetime("us"))


def _in_spelling(fields: Iterable[pa.Field], path: Sequence[str]) -> tuple[str, ...]:
    """The path of a column, which a configuration may spell in another case, in the spelling of a table."""
    found: list[str] = []
    for name in path:
        field = next((each for each in fields if column_key(each.name) == column_key(name)), pa.field(name, pa.null()))
        found.append(field.name)
        fields = list(field.type) if pa.types.is_struct(field.type) else ()
    return tuple(found)


def count(rows: TaggedRows) -> RowCounts:
    """Count rows and matches by period and by rule."""
    first, unit = _periods(rows)
    starts = pl.Series([], dtype=pl.Datetime("us"))
    if first is not None:
        starts = pl.datetime_range(first[0], first[1], unit, eager=True)
    outside = len(starts)  # the place of rows in none of the periods
    by_rule = MatchCounts(outside + 1)
    all_rows, matched = np.zeros((2, outside + 1), np.int64)
    for ids, times in rows.batches():
        places = _places(starts, times.dt.truncate(unit))
        found = coded(ids)
        all_rows += np.bincount(places, minlength=outside + 1)
        matched += np.bincount(places[np.unique(found.rows)], minlength=outside + 1)
        by_rule.add(found, places[found.rows])
    names = by_rule.ids.to_pylist()
    return RowCounts(
        int(all_rows.sum()),
        rows.all_rows,
        int(matched.sum()),
        Periods(unit, tuple(each.isoformat(" ", "minutes") for each in starts)),
        tuple(all_rows[:outside].tolist()),
        tuple(matched[:outside].tolist()),
        dict(zip(names, by_rule.counts.sum(axis=1).tolist(), strict=True)),
        dict(zip(names, by_rule.counts[:, :outside], strict=True)) if outside else {},
        int(all_rows[outside]),
    )


def _places(starts: pl.Series, times: pl.Series) -> np.ndarray:
    """The place [rows] int64 of each time among ascending times, as many as there are where it is none of them."""
    if not len(starts):
        return np.zeros(len(times), np.int64)
    known = starts.to_physical().to_numpy()
    wanted = times.to_physical().fill_null(np.iinfo(np.int64).min).to_numpy()
    places = np.searchsorted(known, wanted)
    return np.where(known[np.minimum(places, len(known) - 1)] == wanted, places, len(known))


def _periods(rows: TaggedRows) -> tuple[tuple[Any, Any] | None, str]:
    """The starts of the first and the last period (None if no row has a time), and the unit of all periods.

    Outliers (such as the year 9999 for "never") are outside of the periods, since they would flatten every plot. So are
    times beyond the years 1 to 9999, which Python does not have.
    """
    sampled = []
    for times in rows.times():
        times = times.drop_nulls()
        times = times.filter(times.to_physical().is_between(*_YEARS))
        sampled.append(times.gather_every(max(1, times.len() // 1_000)))
        sampled.append(pl.Series("time", [times.min(), times.max()], pl.Datetime("us")).drop_nulls())
    times = pl.concat(sampled).sort() if sampled else pl.Series("time", [], pl.Datetime("us"))
    if not times.len():
        return None, "1d"
    first, last = times[0], times[-1]
    low, high = times[int(times.len() * 0.005)], times[int((times.len() - 1) * 0.995)]
    if last - first > 4 * (high - low):
        first, last = low, high
    unit = next((unit for unit, long in _UNITS.items() if (last - first) / long < MOST_PERIODS - 1), "100y")
    ends = pl.Series([first, last], dtype=pl.Datetime("us")).dt.truncate(unit)
    if ends.to_physical()[0] < _YEARS[0]:  # periods are counted from 1970: the century of the year 1 begins before it
        ends = pl.concat([ends[:1].dt.offset_by(unit), ends[1:]])
    return (ends[0], ends[1]), unit


def together(rows: TaggedRows, rules: Sequence[Any]) -> np.ndarray:
    """[rules, rules] int64: how many of the newest rows both rules match; on the diagonal, the rows of each rule."""
    found = np.zeros((len(rules), len(rules)), np.int64)
    read = 0
    for column, _ in rows.batches(with_times=False):
        matched = coded(column)
        places = pc.index_in(matched.ids, pa.array(rules, matched.ids.type)).fill_null(-1).to_numpy()[matched.codes]
        has = np.zeros((len(column), len(rules)), np.float32)
        has[matched.rows[places >= 0], places[places >= 0]] = 1
        found += (has.T @ has).astype(np.int64)
        read += len(column)
        if read >= _PAIR_ROWS:
            break
    return found
