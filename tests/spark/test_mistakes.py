"""What lint says of one rule's text is what Spark does, and rules of Sigma match in Spark what the rule itself says."""

from __future__ import annotations

from pathlib import Path

import pytest

import rules_index as ri
from pipelines.authoring.sigma import read_sigma
from tests.sigma_oracle import matches
from tests.unit.implication.test_mistakes import KNOWN, SCHEMA
from tests.unit.pipelines import test_sigma as sigma

RAISES = [
    "amount = 'high'", "amount > '1,000'", "quantity = '12.5'", "quantity IN ('x', 'y')", "fee = 'a'",
    "txn_date > '01.10.2026'", "txn_date = '2026/10/01'", "txn_date = '2026-13-01'", "txn_time < 'last week'",
    "txn_time BETWEEN '1.1.2026' AND '2.1.2026'", "vip = 'maybe'", "amount / 0 > 1", "quantity % 0 = 1",
    "quantity DIV 0 > 1", "mod(quantity, 0) = 1", "fee / 0.0 > 1", "channel = 'x' OR 'POS'", "'amount' > 5",
    "amount = 'NULL'", "hour(txn_time) = 'noon'",
]  # fmt: skip
NEVER = [
    "mcc = 7995.5", "fee = 1.505", "upper(channel) = 'Ecom'", "lower(channel) IN ('A', 'B')", "hour(txn_time) > 23",
    "month(txn_time) = 13", "quantity = 3000000000", "dayofweek(txn_time) = 0", "weekofyear(txn_time) > 53",
    "dayofyear(txn_time) = 367", "weekday(txn_time) >= 7", "quarter(txn_time) < 1", "day(txn_date) = 32",
]  # fmt: skip
ROW = (
    "SELECT 5.0D AS amount, 1.50BD AS fee, 7 AS quantity, 7995 AS mcc, 'ECOM' AS channel, 'EUR' AS currency, "
    "DATE'2026-10-01' AS txn_date, TIMESTAMP'2026-10-01 12:00:00' AS txn_time, true AS vip"
)


@pytest.mark.spark
def test_what_is_told_to_raise_raises_in_spark(spark) -> None:
    from pyspark.errors import PySparkException

    for text in RAISES:
        assert "always_raises" in ri.lint([(1, text)], SCHEMA, known=KNOWN)["kind"].to_pylist(), text
        with pytest.raises(PySparkException):
            spark.sql(f"SELECT * FROM ({ROW}) WHERE {text}").collect()


@pytest.mark.spark
def test_what_is_told_never_to_hold_never_does_in_spark(spark) -> None:
    for text in NEVER:
        kinds = ri.lint([(1, text)], SCHEMA, known={})["kind"].to_pylist()
        assert "never_true" in kinds or "contradiction" in kinds, text
    together = " OR ".join(f"({text})" for text in NEVER)
    moments = "SELECT id, timestampadd(HOUR, id * 31, TIMESTAMP'2024-01-01 00:00:00') AS t FROM range(1000)"
    rows = (
        "SELECT amount, fee, int(id) AS quantity, int(id) AS mcc, channel, currency, date(t) AS txn_date, "
        f"t AS txn_time, vip FROM ({ROW}) CROSS JOIN ({moments})"
    )
    assert spark.sql(f"SELECT * FROM ({rows}) WHERE {together}").count() == 0


@pytest.mark.spark
def test_sigma_rules_in_spark(spark, tmp_path: Path) -> None:
    detections = [
        {"s": {f"Image{modifier}": value}, "condition": text}
        for modifier in ("", "|contains", "|startswith", "|endswith", "|cased", "|contains|windash")
        for value in sigma.VALUES
        for text in ("s", "not s")
    ]
    path, fields = sigma.write(tmp_path, *(sigma.rule(each, id=f"{n:04}") for n, each in enumerate(detections)))
    found = read_sigma(path, "s", sigma.SCHEMA, fields)
    assert found.rejected == []
    asked = sigma.events(7, 100)
    spark.createDataFrame(sigma.table(asked)).createOrReplaceTempView("sigma_events")
    tests = ", ".join(f"(({row['expression']}) IS TRUE) AS t{n}" for n, row in enumerate(found.rows))
    got = spark.sql(f"SELECT {tests} FROM sigma_events").collect()
    for number, detection in enumerate(detections):
        expected = [matches(detection, event) for event in asked]
        assert [row[f"t{number}"] for row in got] == expected, found.rows[number]["expression"]
