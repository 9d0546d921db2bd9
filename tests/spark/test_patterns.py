"""LIKE, ILIKE and RLIKE against Spark, on random patterns and on every code point, and derived columns."""

from __future__ import annotations

import random
import re
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException

import rules_index as ri
from pipelines.spark.catalyst import derived_column, self_test
from rules_index.errors import RuleError
from rules_index.language.evaluation.evaluate import evaluate
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.patterns import (
    check_rlike,
    is_safe_in_java,
    like_as_java_regex,
    like_matcher,
    rlike_as_re2,
    rlike_matcher,
)
from rules_index.language.patterns.re2 import captured, divided
from tests.cases import SOAK

pytestmark = pytest.mark.spark

COMMON = ["a", "b", "c", "A", "B", "K", "k", "\n", "\r", "\u0085", "\u2028", " ", "_", "0"]
RARE = ["\u2029", "\t", "é", "É", "ß", "ſ", "\u212a", "İ", "ı", "\u0301", "\U0001f600", "\U0001d400", "α", "Σ", "ς"]
ALPHABET = [*COMMON, *RARE, "٣", "\u200d", ".", "\x0b", "\x1c", "\u00a0", "µ", "ÿ", "(", "[", "&", "#", "]", "-"]
SETS = [".", r"\d", r"\w", r"\s", r"\R", r"\W", r"\S", r"\h", r"\H", r"\v", r"\V", r"\pL", r"\p{Lu}", r"\p{Punct}"]
SETS += [r"\p{IsLatin}", r"\p{IsUppercase}", r"\p{Lower}", r"\P{Ll}", r"\p{L1}"]
ESCAPES = [r"\x{1F600}", r"\uD83D\uDE00", r"\x61", r"\0101", r"\cA", r"\e", r"\t", r"\n", r"\r", r"\Q.a\E"]
GROUPS = ["(", "(?:", "(?i:", "(?s:", "(?m:", "(?iu:", "(?x:", "(?d:", "(?U:", "(?dm:", "(?-i:"]
FLAGS = ["(?i)", "(?m)", "(?s)", "(?iu)", "(?x)", "(?U)", "(?d)", "(?-i)", "(?-m)"]
QUANTIFIERS = ["*", "+", "?", "{2}", "{1,2}", "{0,1}", "{2,}", "{0}", "*?", "+?", "??"]


class Patterns:
    """Random patterns of java.util.regex, most of them well-formed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def literal(self) -> str:
        letter = self.rng.choice(COMMON if self.rng.random() < 0.6 else ALPHABET)
        return "\\" + letter if letter in ".([&#]-" else letter

    def character_class(self, depth: int = 0) -> str:
        items = []
        for _ in range(self.rng.randrange(1, 5)):
            kind = self.rng.random()
            if kind < 0.4:
                items.append(self.literal())
            elif kind < 0.55:
                low, high = sorted(self.rng.choices(ALPHABET, k=2))
                items.append(f"{self.quoted(low)}-{self.quoted(high)}")
            elif kind < 0.7:
                items.append(self.rng.choice([s for s in SETS if s not in (".", r"\R")]))
            elif kind < 0.8 and depth < 2:
                items.append(self.character_class(depth + 1))
            elif kind < 0.9 and depth < 2 and items:
                items.append("&&" + self.character_class(depth + 1))
            else:
                items.append(self.rng.choice(["-", "^", r"\x41", r"\t"]))
        return "[" + self.rng.choice(["", "", "^"]) + "".join(items) + "]"

    def quoted(self, letter: str) -> str:
        return "\\" + letter if letter in "[]&-#(.\\^" else letter

    def atom(self, depth: int) -> str:
        kind = self.rng.random()
        if kind < 0.4:
            return self.literal()
        if kind < 0.55:
            return self.character_class()
        if kind < 0.75:
            return self.rng.choice(SETS + ESCAPES)
        if kind < 0.88 or depth > 2:
            return self.rng.choice(["^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z", r"\G", "$", "^"])
        return self.rng.choice(GROUPS) + self.choice(depth + 1) + ")"

    def choice(self, depth: int = 0) -> str:
        return "|".join(self.sequence(depth) for _ in range(self.rng.choice([1, 1, 1, 2, 3])))

    def sequence(self, depth: int) -> str:
        parts = []
        for _ in range(self.rng.choice([0, 1, 1, 2, 2, 3, 4] if depth else [1, 2, 2, 3, 4])):
            part = self.atom(depth)
            if self.rng.random() < 0.3:
                part += self.rng.choice(QUANTIFIERS)
            if self.rng.random() < 0.08:
                part = self.rng.choice(FLAGS) + part
            parts.append(part)
        return "".join(parts)


def some_strings(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    drawn = ["".join(rng.choices(rng.choice([COMMON, ALPHABET]), k=rng.choice([1, 2, 3, 5, 7]))) for _ in range(count)]
    return list(dict.fromkeys([*drawn, "", "a\n", "a\r\n", "\r\n", "\n\n", "a\u2028b", "\U0001d400\u0301", "K\u212a"]))


def frame_of(spark: Any, values: list[str]) -> Any:
    return spark.createDataFrame(pa.table({"i": list(range(len(values))), "s": values})).coalesce(1).cache()


def java_finds(frame: Any, patterns: list[str]) -> list[list[bool]]:
    """What Spark's own RLIKE says, a list for each pattern."""
    from pyspark.sql import functions

    columns = [functions.col("s").rlike(pattern).alias(f"c{i}") for i, pattern in enumerate(patterns)]
    table = frame.select("i", *columns).toArrow().sort_by("i")
    return [table.column(i + 1).to_pylist() for i in range(len(patterns))]


def compiles_in_java(spark: Any, pattern: str) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        spark._jvm.java.util.regex.Pattern.compile(pattern)
    except (Py4JJavaError, IllegalArgumentException):
        return False
    return True


def is_java_17(spark: Any) -> bool:
    return int(spark._jvm.java.lang.Runtime.version().feature()) < 19


def test_random_patterns_of_rlike(spark: Any) -> None:
    values = some_strings(11, 150)
    frame, here = frame_of(spark, values), pa.array(values)
    known: list[str] = []
    makes = Patterns(12)
    for pattern in [makes.choice() for _ in range(500)]:
        edges = not is_java_17(spark) and (r"\b" in pattern or r"\B" in pattern)
        try:
            check_rlike(pattern)
        except RuleError as error:
            refused = "possessive" in error.message or "grapheme" in error.message
            assert refused or not compiles_in_java(spark, pattern), (pattern, error.message)
            continue
        assert compiles_in_java(spark, pattern), pattern
        if not edges:
            known.append(pattern)
    assert len(known) > 300
    for start in range(0, len(known), 100):
        part = known[start : start + 100]
        for pattern, wanted in zip(part, java_finds(frame, part), strict=True):
            got = rlike_matcher(pattern).match(here).to_pylist()
            wrong = [(v, w) for v, w, g in zip(values, wanted, got, strict=True) if w != g]
            assert not wrong, f"{pattern!r}: (value, Spark) {wrong[:3]}"


@pytest.mark.parametrize("flags", ["", "(?i)", "(?U)"])
def test_sets_on_every_code_point_that_may_be_assigned(spark: Any, flags: str) -> None:
    """Java 17 knows Unicode 13.0; a newer one differs only where a code point was assigned later."""
    if not is_java_17(spark):
        pytest.skip("the sets are those of Unicode 13.0, which Java 17 has")
    names = ["L", "Lu", "M", "Mn", "Nd", "P", "S", "Cn", "LC", "Alpha", "Lower", "Punct", "Space", "Graph", "Print"]
    names += ["IsAlphabetic", "IsLowercase", "IsTitlecase", "IsWhite_Space", "IsPunctuation", "IsIdeographic"]
    names += ["IsGreek", "IsHan", "IsCommon", "script=Unknown", "IsAssigned", "IsWord"]
    patterns = [f"{flags}\\p{{{name}}}" for name in names]
    patterns += [
        flags + text for text in (r"\w", r"\s", r"\d", r"\h", r"\v", ".", "k", "ß", "[à-ÿ]", "[a-z]", "Σ", "İ")
    ]
    # each set once by one of the flags, in `make soak` by all
    patterns = patterns if SOAK else patterns[("", "(?i)", "(?U)").index(flags) :: 3]
    codes = [c for c in (*range(0x32000), *range(0xE0000, 0xE0200), 0x10FFFF) if not 0xD800 <= c < 0xE000]
    values = [chr(code) for code in codes]
    frame, here = frame_of(spark, values), pa.array(values)
    for start in range(0, len(patterns), 16):
        part = patterns[start : start + 16]
        for pattern, wanted in zip(part, java_finds(frame, part), strict=True):
            got = rlike_matcher(pattern).match(here).to_numpy(zero_copy_only=False)
            differs = np.flatnonzero(got != np.array(wanted))
            assert not len(differs), f"{pattern}: {len(differs)}, first U+{codes[differs[0]]:04X}"
    frame.unpersist()


def test_random_patterns_of_like_and_ilike(spark: Any) -> None:
    rng = random.Random(5)
    values = some_strings(6, 120)
    frame, here = frame_of(spark, values), pa.array(values)
    letters = [*COMMON, "É", "Σ", "İ", "ς", "\U0001f600", ".", "\\", "$", "^", "*"]
    patterns = []
    for _ in range(240):
        escape = rng.choice(["!", "a", "E", "."])
        tokens = [t for t in letters if t != escape] + ["%", "%", "%", "_", "_", *(escape + t for t in "%_" + escape)]
        patterns.append(("".join(rng.choices(tokens, k=rng.randrange(7))), escape))
    columns, cases = [], []
    for pattern, escape in patterns:
        for ignore_case in (False, True):
            try:
                matcher = like_matcher(pattern, escape, ignore_case)
            except RuleError:
                assert ignore_case  # lowering took a letter that was the escape character
                continue
            cases.append((pattern, escape, ignore_case, matcher))
            columns.append(f"{'ilike' if ignore_case else 'like'}(s, {sql(pattern)}, {sql(escape)}) AS c{len(columns)}")
    for start in range(0, len(cases), 80):
        table = frame.selectExpr("i", *columns[start : start + 80]).toArrow().sort_by("i")
        for index, (pattern, escape, ignore_case, matcher) in enumerate(cases[start : start + 80]):
            got = matcher.match(here).to_pylist()
            assert got == table.column(index + 1).to_pylist(), (pattern, escape, ignore_case)
    translated = [like_as_java_regex(pattern, escape) for pattern, escape in patterns]
    for start in range(0, len(translated), 80):
        answers = java_finds(frame, translated[start : start + 80])
        for (pattern, escape), answer in zip(patterns[start : start + 80], answers, strict=True):
            assert answer == like_matcher(pattern, escape).match(here).to_pylist(), (pattern, escape)


def sql(text: str) -> str:
    """A text as a literal of Spark SQL."""
    codes = "".join(f"\\u{unit:04x}" for unit in np.frombuffer(text.encode("utf-16-le"), np.uint16).tolist())
    return f"'{codes}'"


def test_lower_case_of_every_letter(spark: Any) -> None:
    from rules_index.language.patterns.like import lower

    values = [chr(code) for code in range(0x32000) if not 0xD800 <= code < 0xE000]
    here = lower(pa.array(values)).to_pylist()
    spark_says = frame_of(spark, values).selectExpr("i", "lower(s) AS l").toArrow().sort_by("i").column("l").to_pylist()
    assert [v for v, h, s in zip(values, here, spark_says, strict=True) if h != s] == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1 / b > 0.5 AND 1 / b < 3", [3, 1, 0, 2]),
        ("b <> 0 AND 1 / b > 0 AND 1 / b < 5", [0, 1, 1, 2]),
        ("1 / 0 > b", [3, 3, 3, 3]),
        ("s LIKE 'a%'", [1, 2, 1, 0]),
        ("s NOT LIKE 'a!%' ESCAPE '!'", [1, 2, 1, 1]),
        ("s ILIKE 'A%'", [1, 2, 1, 0]),
        ("s LIKE ANY ('a%', 'b', NULL)", [1, 2, 1, 2]),
        ("s NOT LIKE ALL ('a%', 'b')", [0, 2, 0, 1]),
        ("s NOT LIKE ANY ('a%', 'Ä%')", [1, 2, 1, 1]),
        ("like(s, 'a%')", [1, 2, 1, 0]),
        ("s RLIKE 'b$'", [1, 2, 0, 0]),
        ("s RLIKE '^(a|b)*c'", [0, 2, 1, 0]),
        ("regexp_like(s, '(a|aa)+b')", [1, 2, 0, 0]),
        ("exists(items, y -> y LIKE 'a%b')", [1, 2, 2, 2]),
        ("exists(items, y -> y ILIKE '%ä%')", [0, 1, 2, 2]),
        ("exists(items, y -> y RLIKE '(a|aa)+b')", [1, 2, 2, 2]),
        ("exists(transform(items, v -> struct(v AS q)), e -> e.q LIKE 1)", [0, 2, 2, 2]),
        ("if(b = 1, b RLIKE '(1|11)+', NULL)", [2, 1, 2, 2]),
    ],
)
def test_derived_columns(spark: Any, text: str, wanted: list[int]) -> None:
    schema = "b INT, s STRING, items ARRAY<STRING>"
    rows = [(0, "ab\n", ["x", "aab"]), (1, None, ["Äb", None]), (2, "aaaac", None), (None, "Äx", [None])]
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    code = derived_column(spark, text, pa.bool_())
    assert [row[0] for row in frame.select(code).collect()] == wanted
    kept = frame.select(code.alias("code"), derived_column(spark, f" {text}", pa.bool_()).alias("again"))
    assert kept.filter("code = 1 AND again = 1").count() == wanted.count(1)


def test_derived_values_tell_null_from_errors(spark: Any) -> None:
    frame = spark.createDataFrame([(0,), (2,), (None,)], "b INT").coalesce(1)
    found = frame.select(derived_column(spark, "1 / b", pa.float64())).collect()
    assert [row[0] and tuple(row[0]) for row in found] == [None, (0.5,), (None,)]


@pytest.mark.parametrize(
    "text",
    [
        r"s RLIKE '\\p{InGreek}[\\p{javaDigit}]'",
        r"exists(array(s), x -> x RLIKE '^\\P{block=Cyrillic}+$')",
        r"regexp_replace(s, '\\p{InGreek}', '') = '1'",
        r"split(s, '\\p{gc=javaDigit}')[0] = 'α'",
    ],
)
def test_properties_that_only_java_knows(spark: Any, text: str) -> None:
    frame = spark.createDataFrame([("α1",), ("б1",), (None,)], "s STRING").coalesce(1)
    assert [row[0] for row in frame.select(derived_column(spark, text, pa.bool_())).collect()] == [1, 0, 2]
    with pytest.raises(IllegalArgumentException, match="NoSuchBlock"):
        derived_column(spark, re.sub(r"p\{.*?\}", "p{InNoSuchBlock}", text, flags=re.IGNORECASE), pa.bool_())


def test_a_pattern_that_is_no_literal_is_refused(spark: Any) -> None:
    with pytest.raises(RuleError, match="literal"):
        derived_column(spark, "exists(items, x -> x LIKE s)", pa.bool_())


def test_no_pattern_stalls_a_job(spark: Any) -> None:
    frame = spark.range(1).selectExpr("array(repeat('a', 20000)) AS items")
    texts = [
        "y LIKE '%a%a%a%b'",
        "y ILIKE '%a%_a%a%b'",
        "y RLIKE '^(a|b)*c'",
        "y RLIKE '(a+)+b'",
        "y LIKE ANY ('%a%a%b', 'c')",
    ]
    started = time.perf_counter()
    codes = [derived_column(spark, f"exists(items, y -> {text})", pa.bool_()) for text in texts]
    assert list(frame.select(*codes).collect()[0]) == [0] * len(texts)
    assert time.perf_counter() - started < 30


def test_patterns_said_to_be_safe_neither_overflow_nor_stall(spark: Any) -> None:
    makes = Patterns(21)
    patterns = ["(ab)*$", "(?:[ab]a)*c", "(a){1,1000}b", "^.*a.*b$", r"\s*,\s*", r"(aa|a)b", "(a?){5}b", "a*b"]
    drawn = (makes.choice() for _ in range(600))
    patterns += [p for p in drawn if is_safe_in_java(p) and any(q in p for q in "*+{")][:80]
    assert all(map(is_safe_in_java, patterns))
    frame = frame_of(spark, ["a" * 3_000, "ab" * 1_500, "a\U0001f600" * 1_000, "aA\r\n" * 700])
    started = time.perf_counter()
    java_finds(frame, patterns)
    assert time.perf_counter() - started < 60


def test_translations_for_re2_find_what_java_finds(spark: Any) -> None:
    values = some_strings(31, 100)
    here = pa.array(values)
    frame = frame_of(spark, values)
    makes = Patterns(32)
    texts = []
    for pattern in (makes.choice() for _ in range(800)):
        try:
            rlike_as_re2(pattern)
        except RuleError:
            continue
        if not is_safe_in_java(pattern):
            texts.append(pattern)
    texts = texts[:40]
    assert len(texts) > 20
    codes = [
        derived_column(spark, f"if(true, s RLIKE {sql(p)}, NULL)", pa.bool_()).alias(f"c{i}")
        for i, p in enumerate(texts)
    ]
    table = frame.select("i", *codes).toArrow().sort_by("i")
    for index, pattern in enumerate(texts):
        assert [bool(v) for v in table.column(index + 1).to_pylist()] == rlike_matcher(pattern).match(
            here
        ).to_pylist(), pattern


def test_parts_that_re2_finds_are_those_of_java(spark: Any) -> None:
    values = some_strings(31, 150)
    here = pa.array(values)
    frame = frame_of(spark, values)
    makes = Patterns(32)
    texts = []
    for pattern in dict.fromkeys(makes.choice() for _ in range(3_000)):
        texts += [f"regexp_extract(s, {sql(pattern)}, {group})" for group in range(3) if captured(pattern, group)]
        if divided(pattern):
            texts += [f"{call}(s, {sql(pattern)}{more})" for call, more in (("regexp_count", ""), ("split", ""))]
        if divided(pattern, True):
            texts.append(f"regexp_replace(s, {sql(pattern)}, '')")
    kept = texts[:: 1 if SOAK else 4]
    assert len(kept) > 300
    schema = pa.schema([("s", pa.string())])
    for start in range(0, len(kept), 80):
        part = kept[start : start + 80]
        answers = frame.selectExpr("i", *(f"{text} AS c{at}" for at, text in enumerate(part))).toArrow().sort_by("i")
        for at, text in enumerate(part):
            whole = f"{text}[0] = 'a'" if text.startswith("split") else f"{text} IS NULL"
            compiled = ri.compile_rules([("r", whole)], schema)
            if len(compiled.rejects):  # unsafe in Java
                continue
            assert not compiled.derived, text
            found = evaluate(next(_calls(compiled.attributes)), {"s": Evaluated(here)}, len(here)).values
            assert found.to_pylist() == answers.column(at + 1).to_pylist(), text


def _calls(attributes: Any) -> Any:
    for attribute in attributes:
        if getattr(attribute, "name", "") == "call" and attribute.parameters[0] != "[]":
            yield attribute
        yield from _calls(getattr(attribute, "operands", ()))


def test_the_internals_of_this_spark_are_known(spark: Any) -> None:
    self_test(spark)
