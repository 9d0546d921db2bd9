"""Every function that is evaluated without Spark gives the value that Spark gives, over the edges of its domain."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rules_index as ri
from pipelines.spark.session import in_time_zone
from rules_index.language.evaluation.evaluate import evaluate
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.evaluation.function_registry import FUNCTIONS
from tests.cases import SOAK, soak_but
from tests.quotients import decimals, pairs
from tests.spark.local_function_cases import CASES, rows

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns")
NO_FUNCTIONS = {
    "casts",
    "numbers",
    "among",
    "seconds_of",
    "operators",
    "extremes",
    "fields",
    "shifts",
    "timestampadd",
    "arrays_overlap",
    "exists",
    "forall",
    "filter",
    "concat_ws",
    "isnan",
    "intervals",
    "implicit casts",
}


def test_every_function_has_a_case() -> None:
    assert set(FUNCTIONS) == set(CASES) - NO_FUNCTIONS


def ours(text: str, table: pa.Table, zone: str) -> pa.Array:
    """The values of an expression without Spark, NULL where evaluating it raises."""
    fields = {field.name: field for field in table.schema}
    compiled = ri.compile_rules([("r", f"({text}) IN (({text}))")], table.schema, time_zone=zone)
    assert not compiled.derived and not len(compiled.rejects), (text, compiled.derived, compiled.rejects.to_pylist())
    assert fields
    tree = next(iter(_calls(compiled.attributes)))
    inputs = {leaf.name: Evaluated(table[leaf.name].combine_chunks()) for leaf in compiled.inputs}
    return evaluate(tree, inputs, table.num_rows).values


_KINDS = (
    "abs",
    "call",
    "cast",
    "try_cast",
    "try_add",
    "try_subtract",
    "try_multiply",
    "try_divide",
    "try_remainder",
    "divide",
    "remainder",
    "positive_remainder",
    "quotient",
    "multiply",
    "greatest",
    "least",
    "exists",
    "forall",
    "concat_ws",
    "case",
    "<=>",
    "or",
)


def _calls(attributes: Any) -> Any:
    """The calls and casts in attributes, the outermost first."""
    for attribute in attributes:
        if getattr(attribute, "name", "") in _KINDS:
            yield attribute
        yield from _calls(getattr(attribute, "operands", ()))


def plain(values: pa.Array) -> list[Any]:
    """Values as Python has them; dates and times as numbers, since it has not all of them."""
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    is_time = pa.types.is_timestamp(values.type) or pa.types.is_duration(values.type)
    return (values.cast(pa.int64()) if is_time else values).to_pylist()


def _tried(text: str) -> str:
    """The text as Spark gives NULL where it would raise."""
    left, operator, right = [*text.split(" "), "", ""][:3]
    if operator in ("/", "%"):
        return f"{'try_divide' if operator == '/' else 'try_mod'}({left}, {right})"
    if operator == "DIV":
        return f"IF({right} = 0 OR ({left} = {-(2**63)} AND {right} = -1), NULL, {text})"
    for name, tried in (("[", "get"), ("element_at", "try_element_at")):
        if re.fullmatch(r"[arg]\[.*\]", text) and name == "[":
            return f"get({text[0]}, {text[2:-1]})"
        if text.startswith(name) and "0)" not in text:
            return text.replace(name, tried)
    if text == "element_at(a, 0)":
        return "CAST(NULL AS STRING)"
    if re.match(r"(mod|pmod|div)\(", text):
        left, right = text.split("(")[1].rstrip(")").split(", ")
        return f"IF({right} = 0, NULL, {text})"
    text = text.replace("url_decode", "try_url_decode") if text.startswith("url_decode") else text
    text = re.sub(r"^to_(date\(q\)|(?:date|timestamp)\(fd,)", r"try_to_\1", text)
    text = re.sub(r"^(?:to_)?(timestamp|timestamp_ntz)\((\w)\)", lambda m: f"CAST({m[2]} AS {m[1].upper()})", text)
    return re.sub(r"(?<!TRY_)CAST\(([klq]|tf)", r"TRY_CAST(\1", text)


WITHOUT_TRY = (
    "make_date(",
    "unix_timestamp(fd,",
    "to_unix_timestamp(fd,",
    "unix_timestamp(fh)",
    "to_unix_timestamp(fh)",
)
"""Calls that are NULL where they would raise only if Spark is not in ANSI mode."""


@contextmanager
def not_ansi(spark) -> Iterator[None]:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        yield
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


@pytest.mark.parametrize("function", ["upper", "lower"])
def test_every_letter_has_the_capital_that_spark_gives_it(spark, tmp_path: Path, function: str) -> None:
    letters = pa.array([chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000])
    table = pa.table({"s": letters})
    pq.write_table(table, tmp_path / "letters.parquet")
    theirs = spark.read.parquet(str(tmp_path / "letters.parquet")).selectExpr("s", f"{function}(s) AS c").toArrow()
    by_letter = dict(zip(theirs["s"].to_pylist(), theirs["c"].to_pylist(), strict=True))
    found = zip(letters.to_pylist(), ours(f"{function}(s)", table, "UTC").to_pylist(), strict=True)
    assert [(ord(letter), changed) for letter, changed in found if by_letter[letter] != changed] == []


@pytest.mark.parametrize("zone", soak_but(("America/St_Johns",), ZONES))
def test_values_are_those_of_spark(spark, tmp_path: Path, zone: str) -> None:
    table = rows()
    pq.write_table(table, tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    faults = []
    texts = [text for cases in CASES.values() for text in cases]
    named = {f"c{number}": _tried(text) for number, text in enumerate(texts)}
    loose = [name for name, text in named.items() if text.startswith(WITHOUT_TRY)]
    with in_time_zone(spark, zone):
        answers = frame.selectExpr(
            *(f"{text} AS {name}" for name, text in named.items() if name not in loose)
        ).toArrow()
        with not_ansi(spark):
            loose_answers = frame.selectExpr(*(f"{named[name]} AS {name}" for name in loose)).toArrow()
    for name, text in zip(named, texts, strict=True):
        spark_values = (loose_answers if name in loose else answers)[name].combine_chunks()
        found = ours(text, table, zone)
        if found.type != spark_values.type:
            found = found.cast(spark_values.type)
        differs = [
            (row, theirs, mine)
            for row, (theirs, mine) in enumerate(zip(plain(spark_values), plain(found), strict=True))
            if repr(theirs) != repr(mine)  # NaN is itself, and -0.0 is not 0.0
        ]
        if differs:
            row, theirs, mine = differs[0]
            faults.append(f"{zone}: {text}: {len(differs)} rows, row {table.slice(row, 1).to_pylist()}: Spark "
                          f"{theirs!r}, ours {mine!r}")  # fmt: skip
    assert not faults, "\n".join(each[:60] + each[-120:] for each in faults)


PIECES = [b"a", b"b", "é".encode(), "€".encode(), "\U0001f600".encode(), b"1", b" ", b"\xff", b"\x80", b"\xe2\x82",
          b"\xc0", b"\xf5", b"\xed\xa0\x80", b"\xc3", "\U000f0001".encode()]  # fmt: skip
OF_TEXTS = ["length(s)", "octet_length(s)", "upper(s)", "lower(s)", "ascii(s)", "reverse(s)", "trim(s)", "ltrim(s)",
    "rtrim(s)", "TRIM(BOTH 'a1 ' FROM s)", "left(s, 3)", "right(s, 6)", "substring(s, 2, 3)",
    "substring(s, instr(s, 'a'))", "left(s, levenshtein(s, u) - 3)", "substring(s, -7, 3)",
    "lpad(s, 12)", "rpad(s, 12, 'é')", "lpad(s, 2)", "instr(s, 'a')", "locate('é', s)", "replace(s, 'a', 'b')",
    "replace(s, 'é')", "substring_index(s, '1', 1)", "substring_index(s, 'a', -2)", "split_part(s, '1', 1)",
    "split_part(s, 'a', -1)", "translate(s, 'a1', 'b')", "startswith(s, u)", "startswith(s, left(s, 2))",
    "endswith(s, right(s, 5))", "contains(s, u)", "concat(s, u)", "concat_ws('-', u, s)", "get(split(s, 'a'), 0)",
    "size(array_distinct(split(s, '1')))", "regexp_extract(s, '(.)', 1)", "regexp_extract(s, '([^a]+)', 1)",
    "regexp_substr(s, '[^1]+')", "regexp_replace(s, '[^a]', '')", "regexp_count(s, '.')", "levenshtein(s, u)",
    "levenshtein(s, u, 5)", "luhn_check(left(s, 2))", "md5(s)", "crc32(s)", "hash(s)", "xxhash64(s)",
    "find_in_set(s, 'a,é')", "try_url_decode(s)", "array_join(split(s, 'a'), '-')",
    "TRY_CAST(s AS INT)", "length(substring(s, 2))", "upper(left(s, 4))"]  # fmt: skip


def test_bytes_that_are_not_utf8_are_read_as_by_spark(spark, tmp_path: Path) -> None:
    """All texts end with whole characters: behind the others Spark reads bytes that do not belong to the text."""
    chance = random.Random(9)

    def drawn() -> pa.Array:
        texts = [b"".join(chance.choices(PIECES, k=chance.randint(0, 7))) + b"zzzz" for _ in range(2_000)]
        return pa.array(texts, pa.binary()).view(pa.string())

    table = pa.table({"s": drawn(), "u": drawn()})
    pq.write_table(table, tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    answers = frame.selectExpr(*(f"{text} AS c{number}" for number, text in enumerate(OF_TEXTS))).toArrow()
    for number, text in enumerate(OF_TEXTS):
        both = [answers[f"c{number}"].combine_chunks(), ours(text, table, "UTC")]
        theirs, found = (each.cast(pa.binary()) if pa.types.is_string(each.type) else each for each in both)
        assert found.to_pylist() == theirs.to_pylist(), text


@pytest.mark.parametrize("kind", [pa.decimal128(10, 2), pa.decimal128(18, 6), pa.decimal128(28, 2)], ids=str)
def test_quotients_near_a_half_are_those_of_spark(spark, tmp_path: Path, kind: pa.DataType) -> None:
    drawn = pairs(random.Random(1), kind, pa.decimal128(20, 0), 3_000)
    divisors = [max(min(divisor, 2**63 - 1), -(2**63)) for _, divisor in drawn]
    table = pa.table({"a": decimals([dividend for dividend, _ in drawn], kind), "n": pa.array(divisors, pa.int64())})
    pq.write_table(table, tmp_path / "rows.parquet")
    theirs = spark.read.parquet(str(tmp_path / "rows.parquet")).selectExpr("a / n AS q").toArrow()["q"].combine_chunks()
    found = ours("a / n", table, "UTC")
    assert found.type == theirs.type
    assert found.to_pylist() == theirs.to_pylist()


FAR = [2**63 - 1, -(2**63), 2**63 - 20 * 86_400_000_000, 20 * 86_400_000_000 - 2**63, 9 * 10**18, -9 * 10**18,
       10**18, -(10**18), 2**62, -(2**62) - 1, 253_402_300_799_999_999, -62_135_596_800_000_001,
       -377_705_116_800_000_000]  # fmt: skip
FAR_DAYS = [2**31 - 1, -(2**31), 106_751_992, -106_751_993, 10**9, -(10**9), 2_932_897, -719_529]
RAISING = (
    "date_trunc",
    "add_months",
    "trunc",
    "time_add",
    "time_months_add",
    "time_between",
    "instant_add",
    "timestampadd",
    "date_format",
    "intervals",
    "timestamp_of",
    "ntz_of",
    "from_utc_timestamp",
    "to_utc_timestamp",
    "implicit casts",
    "months_between",
    "timestampdiff",
)


@pytest.mark.parametrize("zone", soak_but(("Europe/Berlin",), ZONES))
def test_values_at_the_ends_of_types_are_those_of_spark(spark, zone: str) -> None:
    """No date or instant is too far away, though its local time as one number may be."""
    days = [FAR_DAYS[place % len(FAR_DAYS)] for place in range(len(FAR))]
    columns = {
        "row": pa.array(range(len(FAR))),
        "ts": pa.array(FAR, pa.timestamp("us", "UTC")),
        "n": pa.array(FAR, pa.timestamp("us")),
        "later": pa.array(FAR[::-1], pa.timestamp("us", "UTC")),
        "d": pa.array(days, pa.int32()).cast(pa.date32()),
        "e": pa.array(days[::-1], pa.int32()).cast(pa.date32()),
    }
    table = pa.table(columns)
    # Spark evaluates expressions over so few rows of its driver when it plans the query, without a job
    kinds = "row BIGINT, ts TIMESTAMP, n TIMESTAMP_NTZ, later TIMESTAMP, d DATE, e DATE"
    frame = spark.createDataFrame(table, kinds)
    texts = {name: [text for text in cases if _are_columns(text, columns)] for name, cases in CASES.items()}

    def answers(text: str, begin: int, end: int) -> list[Any]:
        """Spark's values of the rows from `begin` to before `end`; NULL where one raises."""
        try:
            found = frame.filter(f"row >= {begin} AND row < {end}").selectExpr(f"{text} AS c").toArrow()["c"]
            return plain(found.combine_chunks())
        except Exception:  # whichever it is
            middle = (begin + end) // 2
            return [None] if end - begin == 1 else [*answers(text, begin, middle), *answers(text, middle, end)]

    sure = [text for name, cases in texts.items() if name not in RAISING for text in cases]
    with in_time_zone(spark, zone):
        known = frame.selectExpr(*(f"{text} AS c{number}" for number, text in enumerate(sure))).toArrow()
        theirs = {text: plain(known[f"c{number}"].combine_chunks()) for number, text in enumerate(sure)}
        theirs |= {text: answers(text, 0, len(FAR)) for name in RAISING for text in texts[name][: 2 if SOAK else 1]}
    assert len(theirs) > 60
    assert {text: plain(ours(text, table, zone)) for text in theirs} == theirs


def _are_columns(text: str, columns: dict[str, pa.Array]) -> bool:
    """Whether an expression reads just some of the columns."""
    names = re.findall(r"\b(?:[a-z]\d?|ts|later)\b", re.sub(r"'[^']*'", "", text))
    return bool(names) and set(names) <= set(columns)
