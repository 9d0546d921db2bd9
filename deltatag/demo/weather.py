"""The demonstration's second source: hourly weather at the airports of New York City in 2013."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltatag.demo.flights import data_folder, read_csv

if TYPE_CHECKING:
    import polars as pl


def read_weather() -> pl.DataFrame:
    """All observations in the order of their time, at most one per hour and `origin`.

    `observed_at` is in UTC, `temp` and `dewp` in degrees Fahrenheit, `wind_dir` in degrees, `wind_speed` and
    `wind_gust` in miles per hour, `precip` in inches, `pressure` in millibars, `visib` in miles. `wind_gust` is NULL if
    there were no gusts. One observation has a `wind_speed` above 1,000, as it was published.
    """
    import polars as pl

    weather = read_csv((data_folder() / "weather.csv").read_bytes())
    observed = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="us", time_zone="UTC")
    return (
        weather.with_columns(observed.alias("observed_at"), pl.col("wind_dir").cast(pl.Int32))
        .sort("observed_at", "origin")
        .select(
            *("origin", "observed_at", "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip"),
            *("pressure", "visib", "month"),
        )
    )
