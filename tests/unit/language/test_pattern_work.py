"""No text of patterns holds a compile: the work is in proportion to the text, or the rule is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

import rules_index as ri
from tests.cases import quick_first

from .clock import heap_of_its_own, within

SCHEMA = pa.schema([("s", pa.string())])


def _distinct(count: int) -> list[str]:
    return [chr(0x10000 + 2 * index) for index in range(count)]


@pytest.fixture(autouse=True, scope="module")
def without_others() -> Iterator[None]:
    """What tests of other files have left is frozen once, not for each time that is taken here."""
    with heap_of_its_own():
        yield


RULES = {
    "like and": " AND ".join(f"s LIKE '%a{k}%'" for k in range(2_000)),
    "like or": " OR ".join(f"s LIKE '%a{k}%'" for k in range(2_000)),
    "few likes": " AND ".join(f"s LIKE '%a{k}%'" for k in range(150)),
    "like all": "s LIKE ALL (" + ", ".join(f"'%a{k}%'" for k in range(2_000)) + ")",
    "rlike and": " AND ".join(f"s RLIKE 'a{k}'" for k in range(2_000)),
    "by Spark": " AND ".join(f"find_in_set('{k}', s) > 0" for k in range(1_000)),
    "class": f"s RLIKE '[{''.join(_distinct(15_000))}]+x'",
    "larger class": f"s RLIKE '[{''.join(_distinct(60_000))}]+x'",
    "class of either case": f"s RLIKE '(?iu)[{''.join(_distinct(15_000))}]+x'",
    "alternatives": f"s RLIKE '{'|'.join(_distinct(9_000))}'",
    "words": f"s RLIKE '{'|'.join(f'w{k}' for k in range(9_000))}'",
    "properties": "s RLIKE '" + r"\\p{L}[^a]\\P{Lu}" * 2_000 + "'",
    "properties in a class": "s RLIKE '[" + r"\\P{L}" * 20_000 + "]'",
    "captured": " AND ".join(f"regexp_extract(s, 'a([0-9]+)b{k}', 1) = 'x'" for k in range(1_000)),
    "large classes captured": " AND ".join(f"regexp_extract(s, '[\\\\p{{L}}]{{300}}{k}', 0) = 'x'" for k in range(250)),
    "classes divided by": " AND ".join(f"size(split(s, '[\\\\p{{L}}]{k}')) = 2" for k in range(500)),
    "edges of words": "s RLIKE '" + r"\\b" * 9_000 + "'",
    "nested": "s RLIKE '((a{50}){50}){50}'",
    "many nodes": "s RLIKE '.*a.{20}'",
}


@pytest.mark.parametrize("name", quick_first(3, RULES))
@pytest.mark.slow
def test_no_pattern_holds_a_compile(name: str) -> None:
    ri.compile_rules([(1, "s LIKE '%a%' AND s RLIKE '(?iu)[É-Ý]'")], SCHEMA)
    # twice the second that a rule may take, and once more, since other tests run beside this one
    assert within(2, compile_seconds(name)) or within(2, compile_seconds(name))


def compile_seconds(name: str) -> float:
    """The CPU seconds of a compile, which may only refuse the rule for its pattern or its cost."""
    with heap_of_its_own():
        started = time.process_time()
        errors = ri.compile_rules([(1, RULES[name])], SCHEMA).rejects.column("error").to_pylist()
        seconds = time.process_time() - started
    assert set(errors) <= {"TOO_COMPLEX", "PATTERN"}
    return seconds


@pytest.mark.slow
@pytest.mark.parametrize("call", ["regexp_count(s, '.*a.{45}b') = 1", "size(split(s, '[ab]*a[ab]{40}c')) = 2"])
def test_no_pattern_holds_a_match(call: str) -> None:
    """RE2 may try each state of a pattern for each byte, so that larger patterns are left to Spark."""
    compiled = ri.compile_rules([(1, call)], SCHEMA)
    assert not compiled.derived and not len(compiled.rejects)
    rows = pa.table({"s": ["ab" * 5_000 + str(k) for k in range(100)]})
    with heap_of_its_own():
        started = time.process_time()
        compiled.match(rows)
        seconds = time.process_time() - started
    assert within(2, seconds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ("s ILIKE 'xAb' ESCAPE 'a'", "PATTERN"),
        ("s ILIKE 'xA%b' ESCAPE 'A'", None),
        ("s ILIKE 'xAb' ESCAPE 'A'", None),
        (r"s RLIKE '\\b{2}a'", None),
        ("s RLIKE '[x&&]'", None),
        (r"s RLIKE '(\\B|x+)+y'", "PATTERN"),
        (r"s RLIKE '(\\p{InGreek}+x?)+y'", "PATTERN"),
        (r"s RLIKE '([^\\P{InGreek}]+x?)+y'", "PATTERN"),
        (r"split(s, '(\\p{InGreek}+x?)+y')[0] = 'a'", "PATTERN"),
    ],
)
def test_what_spark_refuses_is_refused(rule: str, error: str | None) -> None:
    compiled = ri.compile_rules([(1, rule)], SCHEMA)
    assert compiled.rejects.column("error").to_pylist() == ([error] if error else [])
    if not error:
        compiled.match(pa.table({"s": ["xa%b", "a", "x", None]}))


@pytest.mark.slow
def test_no_edge_of_a_word_is_left_to_spark() -> None:
    compiled = ri.compile_rules([(1, r"s RLIKE '\\B'"), (2, r"(s RLIKE 'x\\B') IS NULL")], SCHEMA)
    assert not len(compiled.rejects)
    assert len(compiled.derived) == 2


@pytest.mark.parametrize(
    "name", ["InGreek", "InNoSuchBlock", "blk=Greek", "Block=Greek", "javaLetter", "IsjavaLetter", "gc=javaLetter"]
)
@pytest.mark.parametrize("form", [r"\\p{}", r"a\\P{}+", r"[^a\\p{}]", r"[a-z&&[\\P{}]]", r"(x|(\\p{}))$"])
def test_properties_that_only_java_knows_are_left_to_spark(name: str, form: str) -> None:
    pattern = form.replace("{}", f"{{{name}}}")
    compiled = ri.compile_rules([(1, f"s RLIKE '{pattern}'"), (2, r"s RLIKE '\\p{Lu}[\\p{IsGreek}]'")], SCHEMA)
    assert not len(compiled.rejects)
    assert len(compiled.derived) == 1
