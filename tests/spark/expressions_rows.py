"""Rows of every type with NULL, NaN, -0.0, extremes and Unicode."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

INSTANTS = [
    0,
    1,
    -1,
    1_704_067_200_000_000,
    1_704_067_200_000_001,
    1_704_110_400_123_456,
    -62_135_596_800_000_000,
    253_402_300_799_999_999,
    1_711_846_800_000_000,
    951_782_400_000_000,
    -994_376_400_000_000,  # 00:20 UTC of a day of which 01:30 in Amsterdam is 00:30 or 00:10, by the edition
]
TEXTS = [
    "", "a", "abc", "abd", "ab", "ABC", "b", "5", "-7", "1.5", " 5 ", "true", "2024-01-01", "2024-01-01 10:00:00",
    "é", "😀", "ß", "a%c", "a_c", "a\\c", "zz", "日本", "\n", "a\nb", "NaN", "1e3", "9223372036854775808",
]  # fmt: skip
COLUMNS: list[tuple[str, pa.DataType, Sequence[Any]]] = [
    ("i", pa.int32(), [0, 1, -1, 5, 6, 4, 2**31 - 1, -(2**31), 100, 10, 3]),
    ("l", pa.int64(), [0, 1, -1, 5, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 10**18 - 1, 10**18, 10**18 + 1]),
    ("t", pa.int8(), [0, 1, -1, 5, 127, -128, 10]),
    ("h", pa.int16(), [0, 1, -1, 300, 32767, -32768, 10]),
    (
        "d",
        pa.decimal128(10, 2),
        [Decimal(v) for v in ["0.00", "1.00", "1.50", "-1.50", "99999999.99", "-99999999.99", "5.49", "5.50"]],
    ),
    ("w", pa.decimal128(38, 0), [Decimal(v) for v in ("0", "1", "1" + "0" * 37, "9" * 38, "-" + "9" * 38)]),
    ("v", pa.decimal128(38, 18), [Decimal(v) for v in ("0", "1.000000000000000001", "-1.5", "1e19")]),
    ("f", pa.float32(), [0.0, -0.0, 1.0, 1.5, 0.1, math.nan, math.inf, -math.inf, 3.4e38, 1e-45, 16777216.0, 5.5]),
    ("x", pa.float64(), [0.0, -0.0, 1.0, 1.5, 0.1, math.nan, math.inf, -math.inf, 1e308, 5e-324, 2.0**53, 5.5, 1e18]),
    ("s", pa.string(), TEXTS),
    ("u", pa.string(), TEXTS[::-1]),
    ("b", pa.bool_(), [True, False]),
    ("c", pa.bool_(), [True, False]),
    ("dt", pa.date32(), [0, 19723, 19724, -719162, 2932896, -1, 19000]),
    ("ts", pa.timestamp("us", tz="UTC"), INSTANTS),
    ("n", pa.timestamp("us"), INSTANTS),
    ("bin", pa.binary(), [b"", b"a", b"\x00", b"\xff", b"abc"]),
    ("arr", pa.list_(pa.int32()), [[], [1], [1, 2, 3], [None], [5, None]]),
    ("m", pa.map_(pa.string(), pa.int32()), [[], [("a", 1)], [("a", 5), ("b", None)]]),
    (
        "st",
        pa.struct([("p", pa.int32()), ("Q", pa.string())]),
        [{"p": 1, "Q": "a"}, {"p": None, "Q": "abc"}, {"p": 5, "Q": None}, {"p": -3, "Q": "é"}],
    ),
]


def rows(count: int = 60, seed: int = 1) -> pa.Table:
    """`count` rows; every listed value occurs where there are rows enough, one in seven is NULL."""
    chance = random.Random(seed)
    columns = {}
    for name, data_type, values in COLUMNS:
        drawn = [values[k] if k < len(values) else chance.choice(values) for k in range(count)]
        chance.shuffle(drawn)
        columns[name] = pa.array([None if chance.random() < 1 / 7 else value for value in drawn], data_type)
    return pa.table(columns)
