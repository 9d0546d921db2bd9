"""Rules over one column become sets of values, exact under Spark's coercion."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.domains.values import float_key
from rules_index.language.compiler import compile_expression
from rules_index.language.formula import And, Fixed, Formula, Not, Or, Predicate, Truth
from rules_index.language.scope import Scope
from rules_index.language.typed import Leaf, Operation

from .schemas import SCHEMA, SCOPE

T, F, N = Truth.TRUE, Truth.FALSE, Truth.NULL


def key(value: Any) -> Any:
    """The key of a Python value."""
    if isinstance(value, float):
        return float_key(value)
    return value.encode() if isinstance(value, str) else int(value) if isinstance(value, bool) else value


def answer(predicate: Predicate, value: Any) -> Truth:
    """What a predicate says of one value of its attribute."""
    if value is None:
        return predicate.null
    found = key(value)
    assert not (found in predicate.true and found in predicate.false)
    return T if found in predicate.true else F if found in predicate.false else N


def truth(formula: Formula, value: Any) -> Truth:
    """What a formula over one attribute says of one value."""
    if isinstance(formula, Predicate):
        return answer(formula, value)
    if isinstance(formula, Fixed):
        return formula.truth
    if isinstance(formula, Not):
        inner = truth(formula.operand, value)
        return N if inner == N else Truth(1 - inner)
    found = [truth(operand, value) for operand in formula.operands]
    decisive = F if isinstance(formula, And) else T
    return decisive if decisive in found else N if N in found else Truth(1 - decisive)


INTEGERS = [None, -128, -1, 0, 1, 4, 5, 6, 100, 127]
NUMBERS = [None, -math.inf, -1.5, -0.0, 0.0, 0.1, 0.10000000149011612, 1.0, 1.5, 2.0, 1e300, math.inf, math.nan]
TEXTS = [None, "", "a", "ab", "abc", "abd", "b", "é", "😀"]


def compared(test: Callable[[Any], bool]) -> Callable[[Any], Truth]:
    """NULL for NULL, else the truth of a test."""
    return lambda value: N if value is None else Truth(int(test(value)))


def above(value: float) -> Callable[[float], bool]:
    """Spark's order: NaN is above every number."""
    return lambda other: math.isnan(other) or other > value


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("t < 5", INTEGERS, compared(lambda v: v < 5)),
        ("t <= 5", INTEGERS, compared(lambda v: v <= 5)),
        ("t = 5", INTEGERS, compared(lambda v: v == 5)),
        ("t <> 5", INTEGERS, compared(lambda v: v != 5)),
        ("5 < t", INTEGERS, compared(lambda v: v > 5)),
        ("t !< 5", INTEGERS, compared(lambda v: v >= 5)),
        ("t < 5.5", INTEGERS, compared(lambda v: v < 5.5)),
        ("t >= 4.5D", INTEGERS, compared(lambda v: v >= 4.5)),
        ("t = 5.0", INTEGERS, compared(lambda v: v == 5)),
        ("t < 1000", INTEGERS, compared(lambda v: True)),
        ("t > 1e30", INTEGERS, compared(lambda v: False)),
        ("t < 'NaN'", [None], compared(lambda v: True)),
        ("t = '5'", INTEGERS, compared(lambda v: v == 5)),
        ("t < 1 + 4", INTEGERS, compared(lambda v: v < 5)),
        ("t = CAST('5' AS INT)", INTEGERS, compared(lambda v: v == 5)),
        ("t > -(-4)", INTEGERS, compared(lambda v: v > 4)),
        ("t BETWEEN 1 AND 5", INTEGERS, compared(lambda v: 1 <= v <= 5)),
        ("t NOT BETWEEN 1 AND 5", INTEGERS, compared(lambda v: not 1 <= v <= 5)),
        ("t BETWEEN NULL AND 5", INTEGERS, lambda v: N if v is None or v <= 5 else F),
        ("t IN (1, 5)", INTEGERS, compared(lambda v: v in (1, 5))),
        ("t IN (1, 5, 5.0, '6')", INTEGERS, compared(lambda v: v in (1, 5, 6))),
        ("t IN (1, NULL)", INTEGERS, lambda v: T if v == 1 else N),
        ("t NOT IN (1, NULL)", INTEGERS, lambda v: F if v == 1 else N),
        ("t IS NULL", INTEGERS, lambda v: Truth(int(v is None))),
        ("t IS NOT NULL", INTEGERS, lambda v: Truth(int(v is not None))),
        ("t <=> 5", INTEGERS, lambda v: Truth(int(v == 5))),
        ("t <=> NULL", INTEGERS, lambda v: Truth(int(v is None))),
        ("t IS DISTINCT FROM 5", INTEGERS, lambda v: Truth(int(v != 5))),
        ("t = NULL", INTEGERS, lambda v: N),
        ("(t > 5) IS TRUE", INTEGERS, lambda v: Truth(int(v is not None and v > 5))),
        ("(t > 5) IS NOT TRUE", INTEGERS, lambda v: Truth(int(v is None or v <= 5))),
        ("(t > 5) IS UNKNOWN", INTEGERS, lambda v: Truth(int(v is None))),
        ("(t IN (1, NULL)) IS UNKNOWN", INTEGERS, lambda v: Truth(int(v != 1))),
        ("NOT (t > 5 OR t = 1)", INTEGERS, compared(lambda v: v <= 5 and v != 1)),
        ("x < 1.5", NUMBERS, compared(lambda v: v < 1.5)),
        ("x > 1.5", NUMBERS, compared(above(1.5))),
        ("x = 0", NUMBERS, compared(lambda v: v == 0)),
        ("x = -0.0D", NUMBERS, compared(lambda v: v == 0)),
        ("x = 0.1", NUMBERS, compared(lambda v: v == 0.1)),
        ("x = 0.1F", NUMBERS, compared(lambda v: v == 0.10000000149011612)),
        ("x = 'NaN'", [None, 1.0], compared(lambda v: False)),
        ("isnan(x)", NUMBERS, lambda v: Truth(int(v is not None and math.isnan(v)))),
        ("f = 0.1", [None, 0.10000000149011612], compared(lambda v: False)),
        ("f = CAST(0.1 AS FLOAT)", [None, 0.10000000149011612], compared(lambda v: True)),
        ("s < 'b'", TEXTS, compared(lambda v: v.encode() < b"b")),
        ("s LIKE 'ab%'", TEXTS, compared(lambda v: v.startswith("ab"))),
        ("s LIKE 'abc'", TEXTS, compared(lambda v: v == "abc")),
        ("s NOT LIKE '%'", TEXTS, compared(lambda v: False)),
        ("s LIKE 'é%'", TEXTS, compared(lambda v: v.startswith("é"))),
        ("startswith(s, 'ab')", TEXTS, compared(lambda v: v.startswith("ab"))),
        ("s LIKE ANY ('a', 'b')", TEXTS, compared(lambda v: v in ("a", "b"))),
        ("s = 'it''s'", [None, "it's", "its"], compared(lambda v: v == "it's")),
        ("b", [None, True, False], compared(bool)),
        ("NOT b", [None, True, False], compared(lambda v: not v)),
        ("b = 'true'", [None, True, False], compared(bool)),
        ("b IS NOT FALSE", [None, True, False], lambda v: Truth(int(v is not False))),
        ("dt >= '2024-01-02'", [None, 19723, 19724], compared(lambda v: v >= 19724)),
        ("dt < TIMESTAMP'2024-01-01 00:00:01'", [None, 19723, 19724], compared(lambda v: v == 19723)),
        ("ts > DATE'1970-01-02'", [None, 86_400_000_000, 86_400_000_001], compared(lambda v: v > 86_400_000_000)),
        ("d <= 1.505", [None, 150, 151], compared(lambda v: v <= 150)),
        (
            "l = 9007199254740993D",
            [None, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2],
            compared(lambda v: float(v) == 2.0**53),
        ),
        ("l < 9223372036854775808", [None, 5], lambda v: T),
        ("l BETWEEN 1 AND 9223372036854775808", [None, 0, 5], compared(lambda v: v >= 1)),
        ("NOT 9223372036854775808 BETWEEN 1 AND l", [None, 5], compared(lambda v: True)),
        ("9223372036854775808 BETWEEN l AND 9223372036854775809", [None, 5], compared(lambda v: True)),
    ],
)
def test_a_rule_over_one_column(text: str, values: list[Any], expected: Callable[[Any], Truth]) -> None:
    """The formula says what Spark says, on every value that a constant could tell apart."""
    formula = compile_expression(text, SCOPE)
    assert [truth(formula, value) for value in values] == [expected(value) for value in values]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("I = 1", "i"),
        ("st.q = 'a'", "st.Q"),
        ("ST.`Q` = 'a'", "st.Q"),
        ("(st).q = 'a'", "st.Q"),
        ("`dep.delay` > 1", "`Dep.Delay`"),
    ],
)
def test_columns_are_named_as_the_schema_spells_them(text: str, name: str) -> None:
    """Case makes no difference in a rule, and a dot in a name is told from one between names."""
    formula = compile_expression(text, SCOPE)
    assert isinstance(formula, Predicate)
    assert isinstance(formula.attribute, Leaf)
    assert (formula.attribute.name, formula.attribute.text) == (name, None)


@pytest.mark.parametrize(
    ("text", "attribute"),
    [
        ("initcap(s) = 'A'", "initcap(s)"),
        ("initcap( /* why */ s )\n= 'A'", "initcap( s )"),
        ("b AND exists(arr, x -> x > i) -- because", "exists(arr, x -> x > i)"),
        ("cbrt(i) > 1 AND i % 2 = 1", "cbrt(i)"),
        ("i LIKE '1%2'", "CAST(i AS STRING)"),
        ("s COLLATE UTF8_LCASE = 'a'", "s COLLATE UTF8_LCASE = 'a'"),
        ("size(array_sort(arr)) = 1", "size(array_sort(arr))"),
        ("overlay(s, s, 2) = '${user.home}'", "overlay(s, s, 2)"),
        *(
            (f"{call} = 'a'", call)
            for call in (
                "substring_index(s, 'a', -2147483648)",
                "split_part(s, 'a', -2147483648)",
                "lpad(s, 1001, 'a')",
                "regexp_replace(s, 'a', 'bc')",
                "translate(s, 'a', 'é')",
            )
        ),
        ("coalesce(i + i, 0) < 2147483648", "coalesce(i + i, 0) < 2147483648"),
        ("concat_ws(s, s, '${user.home}') = 'a'", "concat_ws(s, s, '\\u0024{user.home}')"),
    ],
)
def test_what_only_spark_evaluates_is_handed_over_in_the_authors_words(text: str, attribute: str) -> None:
    """Comments go, blanks become one, and no session variable can be substituted."""
    texts = [leaf.text for leaf in leaves(compile_expression(text, SCOPE))]
    assert attribute in texts


def leaves(formula: Formula) -> list[Leaf]:
    """The leaves of a formula's attributes."""
    if isinstance(formula, Predicate):
        found, waiting = [], [formula.attribute]
        while waiting:
            each = waiting.pop()
            if isinstance(each, Leaf):
                found.append(each)
            elif isinstance(each, Operation):
                waiting += each.operands
        return found
    if isinstance(formula, Not):
        return leaves(formula.operand)
    return [leaf for operand in formula.operands for leaf in leaves(operand)] if isinstance(formula, And | Or) else []


@pytest.mark.parametrize(
    "text",
    [
        "i + 1 < 5",
        "i < l",
        "i + l * 2 - t = 7",
        "CAST(x AS INT) = 3",
        "CASE WHEN b THEN i ELSE l END > 3",
        "coalesce(i, l, 5) = 5",
        "nullif(i, 5) IS NULL",
        "abs(i) BETWEEN 2 AND 3",
        "s LIKE 'a%b_'",
        "s RLIKE '^a+$'",
        "contains(s, '%')",
        "(i > 5 AND b) IS UNKNOWN",
        "(i > 5) = b",
        "i IN (l, 5)",
        "s = u",
        "d + d > 1.5",
        "arr IS NULL",
    ],
)
def test_what_needs_no_spark(text: str) -> None:
    """Arithmetic, comparisons of columns, CASE, casts of numbers and patterns work without a JVM."""
    assert all(leaf.text is None for leaf in leaves(compile_expression(text, SCOPE)))


def test_a_literal_timestamp_is_read_in_the_scopes_zone() -> None:
    """`time_zone` decides what instant a text without a zone means."""
    berlin = Scope(SCHEMA, "Europe/Berlin")
    formula = compile_expression("ts >= '2024-07-01'", berlin)
    assert isinstance(formula, Predicate)
    instant = 1_719_784_800_000_000  # 2024-06-30 22:00 UTC
    assert (answer(formula, instant), answer(formula, instant - 1)) == (T, F)


def test_a_day_that_begins_before_the_first_year_is_left_to_spark() -> None:
    """Year 1 began in Berlin when it was still year 0 in UTC, which Python's calendar has not."""
    formula = compile_expression("ts >= DATE'0001-01-01'", Scope(SCHEMA, "Europe/Berlin"))
    assert [leaf.text for leaf in leaves(formula)] == ["ts >= DATE'0001-01-01'"]


def test_equal_texts_share_one_derived_column() -> None:
    """However many rules use an expression, Spark evaluates it once."""
    names = {leaves(compile_expression(f"length( s ) > {k}", SCOPE))[0].name for k in range(5)}
    assert len(names) == 1


def test_any_way_in_which_arrow_holds_a_type_will_do() -> None:
    """Large, view and dictionary variants, other units and zones."""
    schema = pa.schema(
        [
            ("s", pa.large_string()),
            ("v", pa.string_view()),
            ("k", pa.dictionary(pa.int32(), pa.string())),
            ("q", pa.timestamp("ms", tz="Europe/Berlin")),
            ("y", pa.uint8()),
        ]
    )
    formula = compile_expression("s = 'a' AND v = 'a' AND k = 'a' AND q > '2024-01-01' AND y < 300", Scope(schema))
    assert isinstance(formula, And)
    types = [leaf.type for leaf in leaves(formula)]
    assert types == [pa.string()] * 3 + [pa.timestamp("us", tz="UTC"), pa.int16()]


MAPS = pa.schema(
    {
        "deep": pa.map_(pa.string(), pa.map_(pa.string(), pa.string())),
        "of_structs": pa.map_(pa.string(), pa.struct([("a", pa.int32())])),
        "inside": pa.struct([("m", pa.map_(pa.string(), pa.string()))]),
    }
)


@pytest.mark.parametrize(
    ("text", "derived"),
    [
        ("deep.a.a = 'x'", 1),
        ("deep['a'].a = 'x'", 1),
        ("of_structs.a.a = 1", 1),
        ("inside.m.m = 'x'", 0),
        ("inside.m['m'] = 'x'", 0),
    ],
)
def test_keys_of_maps_may_be_written_like_fields(text: str, derived: int) -> None:
    """Also where a key has the name of what follows it."""
    compiled = ri.compile_rules([("r", text)], MAPS)
    assert not compiled.rejects.num_rows and len(compiled.derived) == derived


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("datediff(day, DATE'2024-01-01') = 2", True),
        ("date_diff(day, month) = 2", True),
        ("date_add(day, 1) = DATE'2024-01-04'", True),
        ("date_add(Day, 2) = DATE'2024-01-04'", False),
        ("datediff(`day`, month) = 2", True),
        ("datediff(day, day) = 0", True),
    ],
)
def test_a_column_may_have_the_name_of_a_unit(text: str, expected: bool) -> None:
    """`datediff(day, x)` has a column where `datediff(DAY, x, y)` has a unit."""
    dates = pa.table({"day": [19_725], "month": [19_723]}, schema=pa.schema({"day": pa.date32(), "month": pa.date32()}))
    compiled = ri.compile_rules([("r", text)], dates.schema)
    assert not compiled.rejects.num_rows and not compiled.derived
    assert compiled.match(dates).to_pylist() == [["r"] if expected else []]


@pytest.mark.parametrize(
    ("text", "is_local"),
    [
        ("(l, s) IN ((1L, 'a'), (2L, 'b'))", True),
        ("(i, l) = (1, 1L)", True),
        ("(l, s) IN ((1, 'a'), (2, 'b'))", False),
        ("(l, s) IN ((1L, 'a'), (2, 'b'))", False),
        ("(i, l) <=> (1, 1)", False),
    ],
)
def test_row_values_of_other_types_are_left_to_spark(text: str, is_local: bool) -> None:
    """Spark casts the values of rows only where these have the same names."""
    compiled = ri.compile_rules([("r", text)], pa.schema({"i": pa.int32(), "l": pa.int64(), "s": pa.string()}))
    assert [leaf.text for leaf in compiled.derived] == ([] if is_local else [text])
