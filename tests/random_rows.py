"""Random rows of every type of a Delta table, from a seed, and literals of their values.

The rows hold what breaks comparisons: NULL, NaN, both zeros, infinities, the ends of every range, empty, control
and non-Latin strings. Literals come from the same values, so that equality and the edges of ranges are met.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

WHOLE = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
DECIMALS = {"decimal(5,2)": (5, 2), "decimal(18,6)": (18, 6), "decimal(20,0)": (20, 0), "decimal(38,10)": (38, 10)}
NUMBERS = (*WHOLE, "float", "double", *DECIMALS)
TIMES = ("date", "timestamp", "timestamp_ntz")

ARROW = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(5,2)": pa.decimal128(5, 2),
    "decimal(18,6)": pa.decimal128(18, 6),
    "decimal(20,0)": pa.decimal128(20, 0),
    "decimal(38,10)": pa.decimal128(38, 10),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "struct": pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.struct([("w", pa.float64())]))]),
    "array<int>": pa.list_(pa.int32()),
    "array<string>": pa.list_(pa.string()),
    "map": pa.map_(pa.string(), pa.int32()),
}

COLUMNS = {
    "t": "tinyint",
    "sm": "smallint",
    "i": "int",
    "i2": "int",
    "l": "bigint",
    "f": "float",
    "d": "double",
    "d2": "double",
    "m5": "decimal(5,2)",
    "m18": "decimal(18,6)",
    "m20": "decimal(20,0)",
    "m38": "decimal(38,10)",
    "s": "string",
    "s2": "string",
    "bin": "binary",
    "b": "boolean",
    "b2": "boolean",
    "dt": "date",
    "ts": "timestamp",
    "nt": "timestamp_ntz",
    "st": "struct",
    "ai": "array<int>",
    "sa": "array<string>",
    "mp": "map",
}
FIELDS = {"int": ["st.x"], "string": ["st.y"], "double": ["st.z.w"]}

INFINITY = float("inf")
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.1, 2.5, -3.75, 1e10, 100.0, 3.0, float("nan"), INFINITY, -INFINITY)
VALUES: dict[str, Sequence[Any]] = {
    "float": (*FLOATS, 1.401298464324817e-45, 3.4028234663852886e38, -3.4028234663852886e38, 16777216.0),
    "double": (
        *FLOATS,
        5e-324,
        1.7976931348623157e308,
        -1.7976931348623157e308,
        9007199254740993.0,
        0.30000000000000004,
    ),
    "string": (
        *("", " ", "a", "A", "ab", "abc", "abd", "b", "a%b", "a_b", "a\\b", "1", " 1 ", "-0", "2.5", "1e3", "NaN"),
        *("true", "2024-02-29", "2024-02-29 12:30:00", "x" * 40, "it's", '"q"', "tab\tnew\nline\r", "\x00", "\x7f"),
        *(
            "é",
            "e\u0301",
            "ß",
            "İ",
            "ı",
            "Σς",
            "日本語",
            "🙂",
            "👩‍👩‍👧",
            "\uffff",
            "\U0010ffff",
            "a\n",
            "9223372036854775808",
        ),
    ),
    "binary": (b"", b"\x00", b"\x00\x00", b"a", b"ab", b"\xff", b"\xff\xfe", b"\x80", "é".encode()),
    "boolean": (True, False),
    "date": tuple(
        datetime.date.fromisoformat(text)
        for text in (
            "0001-01-01",
            "1582-10-15",
            "1969-12-31",
            "1970-01-01",
            "2000-02-29",
            "2024-02-29",
            "2024-03-10",
            "2024-12-31",
            "9999-12-31",
        )
    ),
    "timestamp_ntz": tuple(
        datetime.datetime.fromisoformat(text)
        for text in (
            "0001-01-01 00:00:00",
            "1969-12-31 23:59:59.999999",
            "1970-01-01 00:00:00",
            "2024-02-29 12:30:00",
            "2024-02-29 00:00:00",
            "2024-12-31 23:59:59.999999",
            "2024-03-10 02:30:00.000001",
            "9999-12-31 23:59:59.999999",
        )
    ),
}
for _name, _bits in WHOLE.items():
    _most = 2 ** (_bits - 1) - 1
    VALUES[_name] = (-_most - 1, -_most, -2, -1, 0, 1, 2, 3, 5, 10, 29, 100, _most - 1, _most)
for _name, (_digits, _scale) in DECIMALS.items():
    _most = 10**_digits - 1
    _small = [value * 10**_scale for value in (-3, -1, 0, 1, 2, 5, 100)]
    _units = [-_most, _most, _most - 1, 1, -1, 5 * 10**_scale // 2, *_small]
    # scaleb would round to the context's 28 digits
    VALUES[_name] = [Decimal((unit < 0, tuple(map(int, str(abs(unit)))), -_scale)) for unit in _units]
VALUES["timestamp"] = [value.replace(tzinfo=datetime.UTC) for value in VALUES["timestamp_ntz"]]


def rows(count: int, seed: int) -> pa.Table:
    """`count` rows of COLUMNS with a key `pk`; about one value in eight is NULL."""
    choice = random.Random(seed)

    def value(name: str) -> Any:
        if choice.random() < 0.12:
            return None
        if name == "struct":
            return {
                "x": value("int"),
                "y": value("string"),
                "z": None if choice.random() < 0.1 else {"w": value("double")},
            }
        if name.startswith("array"):
            return [value(name[6:-1]) for _ in range(choice.choice((0, 1, 2, 3, 5)))]
        if name == "map":
            keys = choice.sample(["a", "b", "", "é", "k"], choice.randrange(4))
            return [(key, value("int")) for key in keys]
        return choice.choice(VALUES[name])

    columns = {"pk": pa.array(range(count), pa.int64())}
    for column, name in COLUMNS.items():
        columns[column] = pa.array([value(name) for _ in range(count)], ARROW[name])
    return pa.table(columns)


def quoted(text: str, choice: random.Random) -> str:
    """A string literal in one of the spellings that Spark reads as `text`."""
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\x00": "\\0"}
    escaped = "".join(escapes.get(letter, letter) for letter in text)
    style = choice.random()
    if style < 0.08 and "\\" in text and "'" not in text and text.isprintable():
        return f"r'{text}'"
    if style < 0.16:
        return '"' + escaped.replace('"', '\\"') + '"'
    if style < 0.2 and len(text) > 1 and text.isalnum():
        return f"'{text[:1]}' '{text[1:]}'"
    if style < 0.6:
        return "'" + escaped.replace("'", "\\'") + "'"
    return "'" + escaped.replace("'", "''") + "'"


def literal(name: str, choice: random.Random) -> str:
    """A literal of a type, from the values that rows hold."""
    value = choice.choice(VALUES[name])
    if name in WHOLE:
        suffix = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L"}[name]
        if choice.random() < 0.6 and abs(value) < 2**31:
            suffix = ""
        return f"{value}{suffix}"
    if name in ("float", "double"):
        if value != value or value in (INFINITY, -INFINITY):
            word = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
            return choice.choice((f"{name}('{word}')", f"CAST('{word}' AS {name.upper()})"))
        return f"{value!r}{'F' if name == 'float' else 'D'}" if choice.random() < 0.7 else repr(value)
    if name in DECIMALS:
        return f"{value:f}" + choice.choice(("", "", "BD"))
    if name == "string":
        return quoted(value, choice)
    if name == "binary":
        return f"X'{value.hex()}'"
    if name == "boolean":
        return choice.choice(("TRUE", "true")) if value else choice.choice(("FALSE", "false"))
    if name == "date":
        return f"DATE'{value.isoformat()}'"
    text = value.replace(tzinfo=None).isoformat(sep=choice.choice(" T"))
    if name == "timestamp":
        zone = choice.choice(("", "", "Z", "+02:00", " America/New_York")) if 1900 < value.year < 2100 else ""
        return f"{choice.choice(('TIMESTAMP', 'TIMESTAMP_LTZ'))}'{text}{zone}'"
    return f"TIMESTAMP_NTZ'{text}'"
