"""Keys with very many rows are cut into slices that are as large as others, with all that can join in one of them."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import functions

from pipelines.joining import partitioning
from pipelines.joining.hot_keys import hot_keys, placed_slices
from pipelines.settings.model import Join
from rules_index.join.worker import KEY, OWNED, STREAM, TIME

PARTITIONS, ROWS = 8, 20_000
WINDOW = {"a": 0, "b": 1_000}
JOIN = Join("j", ("a", "b"), {"a": ("k",), "b": ("k",)}, WINDOW)


@pytest.fixture(scope="module")
def rows(spark):
    """Of 20,000 rows 30 % have one key and crowd in three bursts, 10 % another one, each row at another time."""
    draw = np.random.default_rng(4)
    share = draw.random(ROWS)
    key = np.where(share < 0.3, 0, np.where(share < 0.4, 1, draw.integers(2, 2_000, ROWS)))
    burst = draw.choice([-5_000_000, 0, 70_000_000], ROWS) + draw.integers(0, 60_000, ROWS)
    time = np.where(key == 0, burst, draw.integers(0, 80_000_000, ROWS))
    columns = f"`{STREAM}` tinyint, `{TIME}` bigint, `{KEY}0` bigint, number int"
    streams = draw.integers(0, 2, ROWS)
    values = zip(streams.tolist(), time.tolist(), key.tolist(), range(ROWS), strict=True)
    return spark.createDataFrame(list(values), columns).repartition(4).cache()


@pytest.fixture(scope="module")
def placed(rows):
    """Partition, slice, owned, stream, time, key and number of every row and copy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitioning, "MIN_PARTITION_ROWS", 64)
        hot = hot_keys([rows.filter("number % 2 = 0"), rows.filter("number % 2 = 1")], JOIN, 1, PARTITIONS, ROWS)
    assert len(hot) == 2
    frame, keys = placed_slices(rows, JOIN, 1, PARTITIONS, hot)
    assert keys == 2
    return frame.withColumn("partition", functions.spark_partition_id()).toPandas()


def test_no_partition_has_many_more_rows_than_others(placed) -> None:
    sizes = np.bincount(placed["partition"], minlength=PARTITIONS)
    assert sizes.max() < 1.2 * np.median(sizes)
    assert len(placed) < 1.3 * ROWS


def test_every_row_is_owned_once(placed) -> None:
    assert sorted(placed["number"][placed[OWNED]]) == list(range(ROWS))


def test_rows_that_can_join_are_where_the_latest_of_them_is_owned(placed, rows) -> None:
    whole = rows.filter(f"`{KEY}0` < 2").toPandas()
    expected = 0
    for key in (0, 1):
        a, b = (whole[(whole[KEY + "0"] == key) & (whole[STREAM] == stream)][TIME].to_numpy() for stream in (0, 1))
        gap = a[:, None] - b[None, :]
        expected += int(((gap >= 0) & (gap <= WINDOW["b"])).sum())
    found = 0
    for _, part in placed[placed[KEY + "0"] < 2].groupby(["partition", KEY + "0", KEY + "1"]):
        a, b = part[part[STREAM] == 0], part[part[STREAM] == 1]
        gap = a[TIME].to_numpy()[:, None] - b[TIME].to_numpy()[None, :]
        found += int(((gap >= 0) & (gap <= WINDOW["b"]) & a[OWNED].to_numpy()[:, None]).sum())
    assert found == expected > 1_000
