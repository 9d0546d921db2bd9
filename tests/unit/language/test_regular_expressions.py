"""Regular expressions that RE2 evaluates in place of Java, and which ones it must not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.language.patterns.re2 import captured, divided

ROWS = pa.table({"s": ["user@shop.example", "a12b345", None, "", "xy", "xay", "0012", "a\n", "ÄÖ\U0001f600b"]})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("regexp_extract(s, '@(.+)$', 1)", ["shop.example", "", None, "", "", "", "", "", ""]),
        ("regexp_extract(s, 'x(a)?y', 1)", ["", "", None, "", "", "a", "", "", ""]),
        ("regexp_extract(s, '([a-z])$')", ["e", "", None, "", "y", "y", "", "a", "b"]),
        ("regexp_extract(s, '(.+?)[0-9]', 1)", ["", "a", None, "", "", "", "0", "", ""]),
        ("regexp_extract(s, '[^a-z]b', 0)", ["", "2b", None, "", "", "", "", "", "\U0001f600b"]),
        ("regexp_replace(s, '[0-9]+', '#')", ["user@shop.example", "a#b#", None, "", "xy", "xay", "#", "a\n",
                                              "ÄÖ\U0001f600b"]),
        ("regexp_replace(s, '^0', '')", ["user@shop.example", "a12b345", None, "", "xy", "xay", "012", "a\n",
                                         "ÄÖ\U0001f600b"]),
        ("regexp_substr(s, '[0-9]+')", [None, "12", None, None, None, None, "0012", None, None]),
        ("regexp_substr(s, '^[0-9]*')", [None, None, None, None, None, None, "0012", None, None]),
        ("get(split(s, '[@.]'), 1)", ["shop", None, None, None, None, None, None, None, None]),
        ("get(split(s, 'y'), 1)", [None, None, None, None, "", "", None, None, None]),
    ],
)  # fmt: skip
def test_values(text: str, wanted: list[str | None]) -> None:
    for value in {each for each in wanted if each is not None} | {""}:
        written = value.replace("\n", "\\n")
        compiled = ri.compile_rules([("r", f"{text} = '{written}'")], ROWS.schema)
        assert not compiled.derived and not len(compiled.rejects)
        assert compiled.match(ROWS).to_pylist() == [["r"] if each == value else [] for each in wanted]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "group"),
    [("(a)", 2), ("(a)", -1), ("a$", 0), ("(a$)", 1), ("((a)|b)*", 2), ("(a*)*", 0), (r"\bfoo", 0), ("(?m)^a", 0),
     ("(?:x{900}){900}", 0), (".*a.{900}b", 0), (r"\p{L}", 0), ("(", 0), ("a(?=b)", 0)],
)  # fmt: skip
def test_what_java_may_capture_in_another_way_is_left_to_it(pattern: str, group: int) -> None:
    assert captured(pattern, group) is None


@pytest.mark.parametrize("pattern", ["a*", "", "^a", r"\Ga", "a$", "(a|b*)", "x?"])
def test_what_java_may_divide_in_another_way_is_left_to_it(pattern: str) -> None:
    assert divided(pattern) is None
    assert (divided(pattern, at_start=True) is None) == (pattern != "^a")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("exists(tags, t -> t LIKE 'v%')", [True, False, None, False, None]),
        ("forall(tags, t -> t LIKE 'v%')", [True, False, None, True, None]),
        ("arrays_overlap(tags, array('vip', 'old'))", [True, True, None, False, True]),
    ],
)
def test_conditions_on_items(text: str, wanted: list[Any]) -> None:
    tags = pa.array([["vip"], ["new", "old"], None, [], [None, "vip"]])
    rows = pa.table({"tags": tags}).slice(0, 5)
    expected = [*wanted[:4], True if "exists" in text else wanted[4]]
    rules = [("true", text), ("false", f"NOT {text}"), ("null", f"({text}) IS NULL")]
    compiled = ri.compile_rules(rules, rows.schema)
    assert not compiled.derived
    names = {True: ["true"], False: ["false"], None: ["null"]}
    assert compiled.match(rows).to_pylist() == [names[each] for each in expected]
    assert compiled.match(rows.slice(1, 3)).to_pylist() == [names[each] for each in expected[1:4]]


@pytest.mark.parametrize(
    "text", ["lpad(t, 3, 'x') = 'a'", "regexp_extract(t, '(a)', 1) = 'a'", "sha2(t, 256) = 'a'",
             "get(split(t, ','), 0) = 'a'", "concat_ws('-', t, t) = 'a'", "t LIKE 'v%'", "t RLIKE 'a+'"]
)  # fmt: skip
def test_conditions_on_no_items(text: str) -> None:
    rows = pa.table({"tags": pa.array([[], None, []], pa.list_(pa.string()))})
    compiled = ri.compile_rules(
        [("r", f"exists(tags, t -> {text})"), ("all", f"forall(tags, t -> {text})")], rows.schema
    )
    assert not compiled.derived
    assert compiled.match(rows).to_pylist() == [["all"], [], ["all"]]
    assert compiled.match(rows.slice(0, 0)).to_pylist() == []
