"""Rules as fraud teams write them, over card transactions: `tag` beside a plain copy and beside Spark's expressions.

    python -m benchmarks.transactions [--rows 1000000] [--repeat 3]

Most of the rules compute something: parts of texts, amounts in another currency, hours and days, array items. The
command `tag` needs no JVM for them, and is timed from its start to its end. Spark evaluates all of them for each row,
as CASE expressions of one query, and writes the same table. The numbers of matches of each rule are compared before any
time is printed.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from benchmarks import lakes
from benchmarks.report import interleaved, machine, median, print_table, timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


RULES = (
    "amount > 5000 AND country <> card_country",
    "country IN ('NG', 'IR', 'KP') AND amount > 100",
    "lower(merchant) LIKE '%casino%' AND amount > 900",
    "merchant LIKE 'Crypto%' AND hour(at) BETWEEN 0 AND 5",
    "mcc IN (7995, 7801, 7802, 6051) AND channel = 'ecom'",
    "velocity >= 10 AND amount * velocity > 20000",
    "email LIKE '%@tempmail.org' AND amount > 500",
    "email RLIKE '^user[0-9]{1,3}@' AND score > 1",
    "substring_index(email, '@', -1) IN ('mail.ru', 'tempmail.org') AND velocity > 30",
    "split_part(ip, '.', 1) IN ('10', '127', '203')",
    "ip LIKE '203.%' AND country = 'US'",
    "array_contains(flags, 'vpn') AND channel = 'ecom'",
    "size(flags) >= 2 AND amount > 1000",
    "note IS NOT NULL AND note LIKE 'ref 1%'",
    "upper(channel) = 'ATM' AND amount > 2000 AND dayofweek(at) IN (1, 7)",
    "datediff(CAST(at AS DATE), opened) < 30 AND amount > 500",
    "amount / nullif(velocity, 0) > 5000",
    "amount - floor(amount) = 0 AND amount >= 1000",
    "currency <> 'EUR' AND amount BETWEEN 9000 AND 9999.99",
    "CASE currency WHEN 'USD' THEN amount * 0.9 WHEN 'GBP' THEN amount * 1.17 ELSE amount END > 9500",
    "coalesce(note, '') = '' AND score < -2",
    "abs(score) > 3",
    "date_format(at, 'HH:mm') BETWEEN '01:00' AND '04:30' AND channel = 'atm'",
    "substring(account, 3, 2) = '00' AND amount > 100",
    "length(device) < 7",
    "regexp_extract(merchant, '([0-9]+)$', 1) = '4' AND country = 'RU'",
    "CAST(split_part(ip, '.', 4) AS INT) > 250 AND velocity > 40",
    "concat(country, card_country) IN ('DENG', 'FRIR', 'USKP')",
    "round(amount, 0) = amount AND mcc BETWEEN 5000 AND 5999",
    "year(opened) < 2012 AND score > 2",
)
_FILES = 8
_COUNTRIES = ("DE", "FR", "US", "NG", "RU", "GB", "IT", "ES", "PL", "CN", "IR", "KP")
_MERCHANTS = [
    f"{kind} {place}-{number}"
    for kind in ("Casino", "Cafe", "Shop", "Hotel", "Air", "Crypto", "Jewel", "Pharm", "Gas", "Super")
    for place in ("Berlin", "Paris", "Online", "Roma", "24h", "Star")
    for number in range(8)
]


def rows_of(first: int, count: int) -> pa.Table:
    """Transactions with the ids from `first` on."""
    draw, ids = np.random.default_rng(first), range(first, first + count)

    def one_of(values: Any) -> pa.Array:
        return pa.array(values).take(pa.array(draw.integers(0, len(values), count)))

    cents = pa.array(draw.integers(100, 1_000_000, count)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2))
    hosts = ("mail.ru", "gmail.com", "tempmail.org", "corp.de")
    columns: dict[str, Any] = {
        "id": ids,
        "at": pa.array([1_700_000_000_000_000 + 1_000_000 * each for each in ids], pa.timestamp("us", "UTC")),
        "account": [f"AC{each % 300_007:08}" for each in ids],
        "merchant": one_of(_MERCHANTS),
        "country": one_of(_COUNTRIES),
        "card_country": one_of(_COUNTRIES),
        "mcc": draw.integers(3_000, 9_999, count).astype(np.int32),
        "channel": one_of(["ecom", "pos", "atm", "moto"]),
        "amount": pc.divide(cents, pa.scalar(100, pa.decimal128(3, 0))).cast(pa.decimal128(12, 2)),
        "currency": one_of(["EUR", "USD", "GBP", "PLN"]),
        "device": [f"dev-{each * 7_919 % 100_003:x}" for each in ids],
        "email": [f"user{each * 31 % 1_000_003}@{hosts[each % 4]}" for each in ids],
        "ip": [f"{each % 223}.{each * 7 % 256}.{each * 13 % 256}.{each * 29 % 256}" for each in ids],
        "note": [None if each % 10 else f"ref {each % 5_000}" for each in ids],
        "score": draw.normal(size=count),
        "velocity": draw.integers(0, 50, count).astype(np.int32),
        "opened": pa.array(draw.integers(15_000, 19_700, count).astype(np.int32), pa.date32()),
        "flags": [["vpn"] if each % 11 == 0 else ["new", "tor"] if each % 13 == 0 else [] for each in ids],
    }
    return pa.table(columns)


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args(arguments)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    print(f"{len(RULES)} rules over {options.rows:,} transactions; {machine()}")
    with tempfile.TemporaryDirectory(prefix="deltatag-bench-") as folder:
        _measure(Path(folder), options.rows, options.repeat)


def _measure(folder: Path, rows: int, repeat: int) -> None:
    source = folder / "source"
    for part in np.array_split(np.arange(rows), _FILES):
        write_deltalake(str(source), rows_of(int(part[0]), len(part)), mode="append")
    spark = lakes.session(folder)
    workspace = lakes.lake(folder / "lake", None, "s", RULES, streams={"s": {"source": str(source)}})
    (folder / "deltatag.toml").write_text('[lake]\nroot = "lake"\n[streams.s]\nsource = "source"\n')
    read = spark.read.format("delta").load(str(source))
    expected = _counts(spark, _written(_by_spark(read), folder / "by_spark"))
    _tag(folder)
    if (found := _counts(spark, workspace.lake.uri("s_tagged"))) != expected:
        raise SystemExit(f"By rule, {found} matches were found, and {expected} by Spark.")
    tasks: dict[str, Callable[[], float]] = {
        "copy by Spark": lambda: timed(lambda: _written(read, folder / "copy")),
        "tag": lambda: timed(lambda: _tag(folder)),
        "Spark's expressions": lambda: timed(lambda: _written(_by_spark(read), folder / "by_spark")),
    }
    seconds = interleaved(repeat, tasks)
    copy = median(seconds["copy by Spark"])
    lines = [(name, f"{median(taken):.2f}", f"{median(taken) / copy:.2f}") for name, taken in seconds.items()]
    title = f"Medians of {repeat} turns, {sum(expected.values()) / rows:.2f} matches a row; {machine()}"
    print_table(title, ("", "s", "/ copy"), lines)


def _by_spark(read: DataFrame) -> DataFrame:
    cases = (f"CASE WHEN {rule} THEN 'rule_{number:06}' END" for number, rule in enumerate(RULES))
    return read.selectExpr("*", f"filter(array({', '.join(cases)}), x -> x IS NOT NULL) AS rule_ids")


def _written(frame: DataFrame, path: Path) -> str:
    shutil.rmtree(path, ignore_errors=True)
    frame.write.format("delta").save(str(path))
    return str(path)


def _tag(folder: Path) -> None:
    """The whole command, from its start to its end: in this process it would take Spark's session."""
    command = [sys.executable, "-m", "deltatag", "tag", "s", "--restart"]
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)


def _counts(spark: SparkSession, path: str) -> dict[str, int]:
    ids = spark.read.format("delta").load(path).selectExpr("explode(rule_ids) AS id")
    return {row["id"]: row["count"] for row in ids.groupBy("id").count().collect()}


if __name__ == "__main__":
    main()
