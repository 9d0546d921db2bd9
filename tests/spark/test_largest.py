"""What the bounds of costs accept at its largest is evaluated by Spark within them, in a JVM of 2 GiB.

Values are grown as far as the analysis accepts, by each function that makes larger ones, and handed to each function
that reads them. DELTATAG_LARGEST=all tries all pairs; without it a part of them, drawn by DELTATAG_SEED.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pipelines.spark import session
from rules_index.errors import RuleError
from rules_index.language.analyser import Analyser
from rules_index.language.costs.bounder import LARGEST_ROW, ORDINARY_ROW, Bounder
from rules_index.language.parser import parse
from rules_index.language.scope import Scope

pytestmark = pytest.mark.timeout(3600)

SCHEMA = pa.schema([("s", pa.string()), ("u", pa.string())])
SCOPE = Scope(SCHEMA)
COUNTS = [count for power in range(8) for count in (10**power, 2 * 10**power, 5 * 10**power)]
TEXTS = """
    repeat(s, {k}) ; lpad(s, {k}, 'ab') ; rpad(u, {k}, s) ; space({k}) ; array_join(array_repeat(s, {k}), ',')
    replace(s, 'x', repeat('y', {k})) ; array_join(transform(sequence(1, {k}), v -> concat(s, string(v))), '')
    regexp_replace(s, 'x', repeat('yz', {k})) ; concat_ws(repeat('-', {k}), s, u, s)
    translate(repeat(s, {k}), 'xy', 'zw')
    hex(repeat(s, {k})) ; format_string('%s-%s', repeat(s, {k}), u) ; to_json(named_struct('a', array_repeat(s, {k})))
"""
"""Texts that grow with the constant k."""
READ_TEXT = """
    upper({v}) ; lower({v}) ; initcap({v}) ; reverse({v}) ; trim({v}) ; md5({v}) ; sha2({v}, 512) ; base64({v})
    soundex({v}) ; ascii({v}) ; length({v}) ; crc32({v}) ; xxhash64({v}) ; instr({v}, 'yx') ; locate('zz', {v})
    substring({v}, -5) ; left({v}, 100) ; substring_index({v}, 'x', 3) ; split_part({v}, 'x', 2) ; concat({v}, {v})
    contains({v}, u) ; startswith({v}, u) ; levenshtein({v}, u) ; levenshtein({v}, {v}) ; find_in_set('y', {v})
    regexp_count({v}, '[xy]+') ; regexp_extract({v}, '(x)(y*)', 2) ; regexp_replace({v}, 'y', 'zz') ; {v} RLIKE 'x+y$'
    {v} LIKE '%x%y%x' ; size(split({v}, '')) ; size(sentences({v})) ; from_json({v}, 'a INT, b ARRAY<STRING>').a
    from_csv({v}, 'a STRING, b INT').b ; get_json_object({v}, '$.a.b') ; parse_url({v}, 'HOST') ; url_encode({v})
    overlay({v} PLACING 'q' FROM 3) ; mask({v}) ; size(regexp_extract_all({v}, '(x)', 1)) ; is_valid_utf8({v})
    try_cast({v} AS DOUBLE) ; try_cast({v} AS DECIMAL(38, 2)) ; try_cast({v} AS TIMESTAMP) ; {v} = u ; {v} < u
    try_to_number(left({v}, 50), '999') ; json_array_length({v}) ; unhex({v}) ; encode({v}, 'UTF-16') ; luhn_check({v})
    variant_get(try_parse_json({v}), '$.a', 'int') ; replace({v}, 'x', 'zzz') ; replace({v}, '', 'q') ; elt(1, {v}, u)
    greatest({v}, u) ; coalesce({v}, u) ; if({v} = u, {v}, u) ; CASE {v} WHEN u THEN 1 WHEN s THEN 2 END
    nullif({v}, u)
"""
LISTS = """
    array_repeat(s, {k}) ; split(repeat(s, {k}), '') ; sequence(1, {k}) ; transform(sequence(1, {k}), v -> concat(s, u))
    array_insert(array(s), {k}, u) ; flatten(array_repeat(array(s, u), {k}))
    regexp_extract_all(repeat(s, {k}), '(x|y)', 1)
"""
"""Arrays that grow with the constant k."""
READ_LIST = """
    array_distinct({v}) ; array_sort({v}) ; sort_array({v}, FALSE) ; array_union({v}, {v}) ; array_except({v}, {v})
    array_intersect({v}, {v}) ; array_max({v}) ; size({v}) ; array_compact({v}) ; slice({v}, 2, 100) ; reverse({v})
    exists({v}, v -> v = u) ; forall({v}, v -> v IS NOT NULL) ; filter({v}, v -> v > u) ; flatten(array({v}, {v}))
    transform({v}, v -> concat(v, u)) ; exists({v}, v -> exists({v}, w -> v < w)) ; arrays_overlap({v}, {v})
    arrays_zip({v}, {v}) ; array_join({v}, ',') ; array_append({v}, NULL) ; concat({v}, {v}) ; to_json({v}) ; {v}[3]
    aggregate({v}, 0, (a, v) -> a + length(v)) ; array_remove({v}, 'x') ; array_position({v}, 'x') ; {v} = {v}
    transform({v}, v -> transform({v}, w -> v)) ; element_at({v}, 2) ; try_element_at({v}, 7) ; array_contains({v}, u)
"""


def forms(text: str) -> list[str]:
    return [form.strip() for line in text.strip().splitlines() for form in line.split(" ; ")]


def steps_and_bytes(text: str, row: float) -> tuple[float, float]:
    """The bound of an expression on a row of so many bytes; `RuleError` where it is refused."""
    node, tokens = parse(text)
    analyser = Analyser(tokens, SCOPE)
    analyser.value(node)
    bound = Bounder(analyser, row).bound(node)
    return bound.steps.most, bound.memory.most


def largest(form: str) -> str | None:
    """The expression with the largest constant that is accepted; None where none is, or it is no expression."""
    found = None
    for count in COUNTS:
        text = form.replace("{k}", str(count))
        try:
            steps_and_bytes(text, ORDINARY_ROW)
            steps_and_bytes(text, LARGEST_ROW)
        except RuleError:
            break
        found = text
    return found


def expressions() -> list[str]:
    pairs = [*product(forms(TEXTS), forms(READ_TEXT)), *product(forms(LISTS), forms(READ_LIST))]
    if os.environ.get("DELTATAG_LARGEST") != "all":
        pairs = random.Random(int(os.environ.get("DELTATAG_SEED", "1"))).sample(pairs, 40)
    found = (largest(reader.replace("{v}", grown)) for grown, reader in pairs)
    return [f"hash({text}) = 1" if not text.endswith("= u") else text for text in found if text is not None]


@pytest.fixture(scope="module")
def sources(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[int, DataFrame]:
    """Three rows each of ten bytes, of a thousand and of a million."""
    found = {}
    for size in (10, 1_000, 1_000_000):
        half = ("xy,z" * (size // 8 + 1))[: size // 2]
        path = tmp_path_factory.mktemp("rows") / f"{size}.parquet"
        pl.DataFrame({"s": [half] * 3, "u": [half[::-1], half, None]}).write_parquet(path)
        found[size] = spark.read.parquet(str(path))
    return found


def seconds(frame: DataFrame, text: str, spark: SparkSession) -> float:
    started = time.perf_counter()
    frame.select(session.tested_column(spark, text, pa.bool_())).collect()
    return time.perf_counter() - started


ENCODERS = """
    hex({v}) ; base64({v}) ; quote({v}) ; url_encode({v}) ; encode({v}, 'utf-8') ; encode({v}, 'UTF-16')
    encode({v}, 'utf-32') ; decode(CAST({v} AS BINARY), 'iso-8859-1') ; upper({v}) ; lower({v}) ; initcap({v})
    translate({v}, 'xy', 'é日') ; mask({v}) ; reverse({v}) ; string(CAST({v} AS BINARY)) ; make_valid_utf8({v})
    encode({v}, 'us-ascii') ; encode({v}, 'iso-8859-1') ; decode(encode({v}, 'utf-16be'), 'utf-16be') ; unbase64({v})
    unhex({v}) ; url_decode({v}) ; to_json(named_struct('a', {v})) ; get_json_object({v}, '$') ; soundex({v})
    replace({v}, 'x', 'yz') ; regexp_replace({v}, '', 'z') ; lpad({v}, 20, 'é') ; format_string('%s%s', {v}, {v})
    split_part({v}, 'x', 1) ; substring_index({v}, 'y', 1) ; regexp_extract({v}, '(?s).*', 0) ; to_binary({v}, 'utf-8')
    array_join(split({v}, 'y'), 'x') ; from_csv({v}, 'a STRING').a ; from_json({v}, 'a STRING').a
    parse_url({v}, 'FILE') ; regexp_replace({v}, '(.)', '$1$1')
    array_join(sentences({v})[0], ' ') ; overlay({v} PLACING 'é' FROM 3)
"""
"""What makes of a text another text, or bytes."""
LETTERS = (
    "x",
    "é",
    "日",
    "🙂",
    "ß",
    "İ",
    "ΐ",
    "ﬃ",
    "'",
    '"',
    "\\",
    "%",
    " ",
    "\0",
    "\n",
    "41",
    "%41",
    "QUE=",
    b"\xff",
    b"\xe6\x97",
)


def test_no_text_is_larger_than_its_bound(spark: SparkSession, tmp_path: Path) -> None:
    """Also texts of every kind of letter and of bytes that are no UTF-8, encoded twice and three times over."""
    draw = random.Random(int(os.environ.get("DELTATAG_SEED", "1")))
    one = forms(ENCODERS)
    more = [draw.choice(one).replace("{v}", draw.choice(one)) for _ in range(60)]
    texts = [
        form.replace("{v}", "s") for form in [*one, *more, *(draw.choice(one).replace("{v}", t) for t in more[:20])]
    ]
    size, bounds = 400, {}
    for text in texts:
        node, tokens = parse(text)
        analyser = Analyser(tokens, SCOPE)
        analyser.value(node)
        with contextlib.suppress(RuleError):  # of what takes too many steps no value is ever made
            bounds[text] = Bounder(analyser, size).bound(node).size.bytes.most
    texts = list(bounds)
    values = [each if isinstance(each, bytes) else each.encode() for each in LETTERS]
    rows = pa.table({"b": pa.array([value * (size // len(value)) for value in values], pa.binary())})
    pl.DataFrame(rows).write_parquet(tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet")).selectExpr("CAST(b AS STRING) AS s")
    largest, accepted = dict.fromkeys(texts, -1), 0
    for text in texts:
        column = session.tested_column(spark, f"octet_length({text})", pa.int32())
        try:
            found = [row[0].value for row in frame.select(column).collect() if row[0] is not None]
        except AnalysisException:
            continue  # of a type that the next function does not take
        accepted += 1
        largest[text] = max((each for each in found if each is not None), default=-1)
    assert {text: (found, bounds[text]) for text, found in largest.items() if found > bounds[text]} == {}
    assert accepted > 0.8 * len(texts) and sum(found > 0 for found in largest.values()) > 0.7 * len(texts)


def test_accepted_expressions_stay_within_their_bounds(
    spark: SparkSession, sources: dict[int, DataFrame], tmp_path: Path
) -> None:
    heap: Any = spark._jvm.java.lang.Runtime.getRuntime().maxMemory()  # type: ignore[union-attr]
    assert heap <= 2 << 30
    known, slow, tried = 0, [], 0
    for text in expressions():
        for size, frame in sources.items():
            try:
                steps, _ = steps_and_bytes(text, size)
            except RuleError:
                continue
            if steps > 3e8:
                continue  # what grows with the square of a large row is ended by the time limit of its micro-batch
            try:
                taken = seconds(frame, text, spark)
            except AnalysisException:
                break  # Spark refuses the pair's types, and `compile` would reject it for that
            except Exception as error:  # an error of the expression on a row is kept apart; this one is Spark's
                slow.append((text, size, str(error).splitlines()[0][:200]))
                continue
            tried += 1
            known = max(known, int(taken * 1000))
            # planning and compiling take their second; three rows, 30 ns a step
            if taken > 4 + 3 * steps * 30e-9:
                slow.append((text, size, f"{taken:.1f} s, {steps:.3g} steps"))
    print(f"{tried} evaluated, the longest took {known} ms")
    assert not slow, "\n".join(map(str, slow))
    assert tried > 60
