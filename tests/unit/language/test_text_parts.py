"""Functions that take texts apart, and casts of texts to integers, against plain Python on each text."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import rules_index as ri
from tests.cases import cases

LETTERS = "aab.é\U0001f600 \0"
COUNTS = (1, 2, 3, 5, -1, -2, -3, -9, 0, 1_000, 1_001, -1_001, 2**31 - 1, 1 - 2**31)


def substring_index(text: str, delimiter: str, count: int) -> str:
    """The text before or behind the delimiter's occurrence, which may overlap others."""
    places = [place for place in range(len(text)) if delimiter and text.startswith(delimiter, place)]
    if not delimiter or not count:
        return ""
    if abs(count) > len(places):
        return text
    return text[: places[count - 1]] if count > 0 else text[places[count] + len(delimiter) :]


def split_part(text: str, delimiter: str, number: int) -> str:
    parts = text.split(delimiter) if delimiter else [text]
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if 0 <= place < len(parts) else ""


def translate(text: str, old: str, new: str) -> str:
    letters: dict[str, str] = {}
    for place, letter in enumerate(old):
        letters.setdefault(letter, new[place] if place < len(new) and new[place] != "\0" else "")
    return "".join(letters.get(letter, letter) for letter in text)


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0") + "'"


def drawn(draw: random.Random, longest: int) -> str:
    return "".join(draw.choice(LETTERS) for _ in range(draw.randint(0, longest)))


def of_each(texts: list[str | None], function: Callable[[str], Any]) -> list[Any]:
    return [None if text is None else function(text) for text in texts]


def assert_equal(call: str, texts: list[str | None], expected: list[Any]) -> None:
    """The call on each text has the expected value; also in the middle of an array."""
    kind = pa.int32() if call.startswith(("ascii", "find_in_set")) else pa.string()
    table = pa.table({"s": pa.array(["before", *texts], pa.string()), "t": pa.array([None, *expected], kind)}).slice(1)
    compiled = ri.compile_rules([("equal", f"{call} <=> t")], table.schema)
    assert not compiled.rejects.num_rows and not compiled.derived, call
    assert compiled.match(table).to_pylist() == [["equal"]] * len(texts), (call, texts)


@pytest.mark.parametrize("seed", range(4))
def test_parts_are_those_that_python_takes(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(cases(200)):
        texts = [None if draw.random() < 0.1 else drawn(draw, 12) for _ in range(draw.randint(1, 30))]
        delimiter, count = drawn(draw, 3), draw.choice(COUNTS)
        index = of_each(texts, partial(substring_index, delimiter=delimiter, count=count))
        assert_equal(f"substring_index(s, {literal(delimiter)}, {count})", texts, index)
        if count:
            part = of_each(texts, partial(split_part, delimiter=delimiter, number=count))
            assert_equal(f"split_part(s, {literal(delimiter)}, {count})", texts, part)
        old = drawn(draw, 4)
        new = drawn(draw, 4).encode()[: len(old)].decode(errors="ignore")
        if all(len(b.encode()) <= len(a.encode()) for a, b in zip(old, new, strict=False)):
            changed = of_each(texts, partial(translate, old=old, new=new))
            assert_equal(f"translate(s, {literal(old)}, {literal(new)})", texts, changed)
        assert_equal("ascii(s)", texts, of_each(texts, lambda text: ord(text[0]) if text else 0))


def test_polars_takes_the_integers_that_spark_takes() -> None:
    """Digits after at most one sign; the cast of texts relies on it."""
    letters = "+-09 1a._xe,\t\u0661\0"
    short = ["".join(each) for length in range(5) for each in itertools.product(letters, repeat=length)]
    edges = ("9223372036854775807", "9223372036854775808", "9223372036854775809", "18446744073709551616", "9" * 40, "0")
    long = ["".join(each) for each in itertools.product(("", "+", "-"), ("", "0", "0" * 30), edges)]
    for text, found in zip([*short, *long], pl.Series([*short, *long]).cast(pl.Int64, strict=False), strict=True):
        is_integer = re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII) and -(2**63) <= int(text) < 2**63
        assert found == (int(text) if is_integer else None), text


@pytest.mark.timeout(60)
def test_long_constants_take_time_in_proportion_to_their_length() -> None:
    """In proportion to its square, it would be hours."""
    parts = [f"p{number}" for number in range(60_000)]
    assert_equal(f"find_in_set(s, '{','.join([*parts, *parts])}')", ["p7", "p59999", "q", None], [8, 60_000, 0, None])
    delimiter = "a" * 400_000 + "b"
    assert_equal(f"substring_index(s, '{delimiter}', 1)", ["x", f"x{delimiter}y", None], ["x", "x", None])
