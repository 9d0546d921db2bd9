"""Keys and event times of joins without a JVM: what they are compared as, and what is left to Spark."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from pipelines.errors import NeedsSparkError
from pipelines.joining.local_keys import common_type, instants
from pipelines.lake.column_types import OPAQUE


class TestKeys:
    """Which type keys are compared in, and event times of zones."""

    @pytest.mark.parametrize(
        "kinds",
        [
            (pa.timestamp("us", "UTC"), pa.date32()),
            (pa.timestamp("us"), pa.timestamp("us", "UTC")),
            (pa.float32(), pa.decimal128(5, 2)),
            (OPAQUE, OPAQUE),
        ],
    )
    def test_what_only_spark_compares(self, kinds) -> None:
        with pytest.raises(NeedsSparkError):
            common_type(kinds, "the keys")

    def test_times_of_a_zone_are_those_of_the_standard_library(self) -> None:
        zone = ZoneInfo("America/New_York")
        draw = random.Random(1)
        begin = datetime(1970, 1, 3)
        times = [begin + timedelta(minutes=draw.randint(0, 60 * 525_600)) for _ in range(3000)]
        times += [datetime(2024, 3, 10, 1, 59) + timedelta(minutes=30 * n) for n in range(6)]
        times += [datetime(2024, 11, 3, 0, 30) + timedelta(minutes=30 * n) for n in range(6)]
        found = instants(pa.array([*times, None], pa.timestamp("us")), "America/New_York").to_pylist()
        assert found == [*(round(time.replace(tzinfo=zone).timestamp() * 1e6) for time in times), None]

    def test_what_clocks_showed_before_1970_is_left_to_spark(self) -> None:
        times = pa.array([datetime(1960, 1, 1)], pa.timestamp("us"))
        assert instants(times, "UTC").to_pylist() == [-315_619_200_000_000]
        with pytest.raises(NeedsSparkError, match="wall times"):
            instants(times, "Europe/Berlin")

    def test_a_time_whose_instant_is_no_bigint_is_left_to_spark(self) -> None:
        with pytest.raises(NeedsSparkError, match="wall times"):
            instants(pa.array([-(1 << 63)]).cast(pa.timestamp("us")), "+05:30")

    def test_a_midnight_that_clocks_skip_is_left_to_spark(self) -> None:
        days = [date(2018, 11, 3), date(2018, 11, 4)]
        assert instants(pa.array(days[:1]), "America/Sao_Paulo").to_pylist() == [1_541_214_000_000_000]
        with pytest.raises(NeedsSparkError, match="midnights"):
            instants(pa.array(days), "America/Sao_Paulo")
