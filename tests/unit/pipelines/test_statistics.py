"""What a file's statistics tell of a join's keys: values, however the log spells them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from pipelines.joining.statistics import RangesOfNewFiles, file_ranges


def partition(value: str | None, data_type: pa.DataType):
    add = {"partitionValues": {"k": value}}
    return file_ranges(add, "t", [("k", data_type)], "UTC")


def ranged(low: Any, high: Any, data_type: pa.DataType):
    stats = json.dumps({"numRecords": 2, "minValues": {"k": low}, "maxValues": {"k": high}})
    return file_ranges({"stats": stats}, "t", [("k", data_type)], "UTC")


def may_join(one, other) -> bool:
    return RangesOfNewFiles([one]).may_join(other, 0, 0) and RangesOfNewFiles([other]).may_join(one, 0, 0)


NEAR = 1.2345678901234567e19
DEC, LONG = pa.decimal128(9, 2), pa.decimal128(38, 10)


@pytest.mark.parametrize(
    ("one", "other", "met"),
    [
        (partition("1.50", DEC), partition("1.5", pa.decimal128(9, 1)), True),
        (partition("10", pa.int32()), partition("9", pa.int64()), False),
        (partition("-1.50", DEC), partition("-1.5", DEC), True),
        (partition("1E+3", DEC), partition("1000", pa.int64()), True),
        (partition("10", pa.int64()), ranged(9, 11, pa.int64()), True),
        (partition("12", pa.int64()), ranged(9, 11, pa.int64()), False),
        (partition("1.50", DEC), ranged(1.5, 1.5, DEC), True),
        (partition("12345678901234567890.1234500001", LONG), ranged(NEAR, NEAR, LONG), True),
        (partition("-12345678901234567890.5", LONG), ranged(-NEAR, -1e19, LONG), True),
        (partition("2024-01-01", pa.date32()), partition("2024-01-02", pa.date32()), False),
        (partition("2024-01-01", pa.date32()), partition("2024-01-01", pa.date32()), True),
        (partition("+10000-01-01", pa.date32()), ranged("2024-01-01", "2025-01-01", pa.date32()), True),
        (partition("20240101", pa.date32()), partition("2024-01-01", pa.date32()), True),
        (partition("1.5", pa.string()), partition("1.50", pa.string()), False),
        (partition("1", pa.string()), ranged("0", "9", pa.string()), True),
        (partition("", pa.string()), partition("a", pa.string()), False),
        (partition(None, pa.string()), partition("a", pa.string()), True),
        (partition("\U0001f600", pa.string()), ranged("a", "b\U0010ffff", pa.string()), False),
        (partition("\uffee", pa.string()), ranged("a", "\U0001f600", pa.string()), True),
        (ranged(True, True, pa.int64()), partition("5", pa.int64()), True),
        (ranged("NaN", "NaN", DEC), partition("5", DEC), True),
        (ranged({"a": 1}, {"a": 1}, pa.string()), partition("5", pa.string()), True),
        (ranged(None, 5, pa.int64()), partition("9", pa.int64()), True),
    ],
)  # fmt: skip
def test_files_that_may_have_equal_keys_meet(one, other, met: bool) -> None:
    assert may_join(one, other) is met


@pytest.mark.parametrize(
    "time", ["2024-01-01 00:00:00", "2024-01-01T00:00:00.000000Z", "2024-01-01", "garbled", "20240101"]
)
def test_the_event_time_of_a_partition_is_within_its_reach(time: str) -> None:
    found = file_ranges({"partitionValues": {"T": time}}, "t", [], "Pacific/Auckland")
    known = time not in ("garbled",)
    assert (found.low is not None) is known
    if found.low is not None and found.high is not None:
        assert found.low < 1_704_067_200_000_000 < found.high + 13 * 3_600_000_000
