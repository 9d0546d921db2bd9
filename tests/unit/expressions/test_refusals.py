"""Rules that are refused: the code, the place, and a sentence that its author understands."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rules_index.errors import RuleError
from rules_index.expressions import Scope, compile_expression
from rules_index.expressions.formula import And, Or, Predicate

from .schemas import SCOPE

REFUSED = [
    ("", "SYNTAX", 0),
    ("  -- nothing", "SYNTAX", 0),
    ("i = ", "SYNTAX", 4),
    ("AND i = 5", "SYNTAX", 4),
    ("i = 5 5", "SYNTAX", 6),
    ("(i = 5", "SYNTAX", 0),
    ("i = 5)", "SYNTAX", 5),
    ("i IN (1,)", "SYNTAX", 8),
    ("i IS NULL IS NULL", "SYNTAX", 10),
    ("i IN (1) = b", "SYNTAX", 9),
    ("b = NOT c", "SYNTAX", 4),
    ("i BETWEEN 1 OR 2", "SYNTAX", 12),
    ("CASE WHEN b THEN 1 ELSE 2", "SYNTAX", 25),
    ("i = 1; DROP TABLE rules", "SYNTAX", 5),
    ("i = 1 AS z", "SYNTAX", 6),
    ("s = 'open", "SYNTAX", 4),
    ("i = 1 /* open", "SYNTAX", 6),
    ("i = /*+ hint */ 1", "SYNTAX", 4),
    ("größe = 1", "SYNTAX", 2),
    ("CAST(i AS TEXT) = 'a'", "SYNTAX", 10),
    ("i = 128Y", "LITERAL", 4),
    ("x < 1e400", "LITERAL", 4),
    ("x < 1e999999999", "LITERAL", 4),
    ("x < 1e99999999999999999999", "LITERAL", 4),
    ("x < -1e99999999999999999999F", "LITERAL", 4),
    ("x < 1e999999999BD", "LITERAL", 4),
    ("i = 999999999999999999999999999999999999999", "LITERAL", 4),
    ("bin = X'1G'", "LITERAL", 6),
    ("dt = DATE'2024-02-30'", "LITERAL", 5),
    ("ts = TIMESTAMP'yesterday noon'", "NOT_REPEATABLE", 5),
    ("dt = DATE'today'", "NOT_REPEATABLE", 5),
    ("j = 1", "UNKNOWN_COLUMN", 0),
    ("i = 1 AND `dep_delay` > 5", "UNKNOWN_COLUMN", 10),
    ("st.z = 1", "UNKNOWN_COLUMN", 0),
    ("i", "NOT_BOOLEAN", 0),
    ("i AND b", "NOT_BOOLEAN", 0),
    ("b OR i + 1", "NOT_BOOLEAN", 5),
    ("NULL", "NOT_BOOLEAN", 0),
    ("b = 1", "TYPE_MISMATCH", 0),
    ("arr = 1", "TYPE_MISMATCH", 0),
    ("i.x = 1", "TYPE_MISMATCH", 0),
    ("b + 1 > 1", "TYPE_MISMATCH", 0),
    ("upper() = 'A'", "TYPE_MISMATCH", 0),
    ("i IN (SELECT 1)", "SUBQUERY", 6),
    ("EXISTS (SELECT 1)", "SUBQUERY", 8),
    ("(SELECT 1) = i", "SUBQUERY", 1),
    ("i IN (WITH q AS (SELECT 1) SELECT * FROM q)", "SUBQUERY", 6),
    ("length(repeat(repeat(s, 10000), 10000)) > 1", "NOT_ALLOWED", 14),
    ("exists(sequence(1, 1000), q -> exists(sequence(1, 1000), r -> r > q))", "NOT_ALLOWED", 38),
    ("sum(i) > 1", "AGGREGATE", 0),
    ("count(*) > 1", "AGGREGATE", 0),
    ("count(DISTINCT i) > 1", "AGGREGATE", 6),
    ("sum(i) FILTER (WHERE b) > 1", "AGGREGATE", 0),
    ("sum(i) OVER (PARTITION BY b) > 1", "WINDOW", 0),
    ("row_number() > 1", "WINDOW", 0),
    ("explode(arr) = 1", "TABLE_FUNCTION", 0),
    ("ts < now()", "NOT_REPEATABLE", 5),
    ("ts < current_timestamp", "NOT_REPEATABLE", 5),
    ("rand() > 0.5", "NOT_REPEATABLE", 0),
    ("exists(arr, v -> v > rand())", "NOT_REPEATABLE", 21),
    ("current_user() = s", "NOT_REPEATABLE", 0),
    ("user = 'x'", "NOT_REPEATABLE", 0),
    ("unix_timestamp() > 5", "NOT_REPEATABLE", 0),
    ("input_file_name() = 'x'", "NOT_REPEATABLE", 0),
    ("reflect('java.lang.System', 'getenv', 'HOME') = 'x'", "NOT_ALLOWED", 0),
    ("java_method('a', 'b') = 'x'", "NOT_ALLOWED", 0),
    ("identifier('i') = 1", "NOT_ALLOWED", 0),
    ("raise_error('x') = 1", "NOT_ALLOWED", 0),
    ("i = :p", "NOT_ALLOWED", 4),
    ("i = ?", "NOT_ALLOWED", 4),
    ("db.f(i) = 1", "NOT_ALLOWED", 0),
    ("repeat(s, i) = 'x'", "NOT_ALLOWED", 10),
    ("element_at(arr, i) = 1", "NOT_ALLOWED", 16),
    ("element_at(arr, -2147483648) = 1", "NOT_ALLOWED", 16),
    ("rpad(s, 100000000) = 'x'", "NOT_ALLOWED", 8),
    ("size(sequence(0, i)) = 1", "NOT_ALLOWED", 17),
    ("round(x, 1000000000) = 1", "NOT_ALLOWED", 9),
    ("aggregate(arr, '', (a, v) -> a || a) = ''", "NOT_ALLOWED", 15),
    (
        "replace(replace(replace(replace(replace(s,'a','aa'),'a','aa'),'a','aa'),'a','aa'),'a','aa') = ''",
        "NOT_ALLOWED",
        32,
    ),
    ("transform(arr, v -> v)[0] = 1 AND v = 1", "UNKNOWN_COLUMN", 34),
    ("foo(i) = 1", "UNKNOWN_FUNCTION", 0),
    ("s RLIKE '('", "PATTERN", 8),
    ("s RLIKE 'a(?=b)'", "PATTERN", 8),
    ("upper(s) LIKE 'a!' ESCAPE '!'", "PATTERN", 14),
    ("s LIKE 'a' ESCAPE 'ab'", "LITERAL", 18),
    ("NOT " * 300 + "b", "TOO_DEEP", None),
    ("(" * 5 + "abs(" * 300 + "i" + ")" * 305 + " = 1", "TOO_DEEP", None),
    ("s" + " || s" * 5000 + " = 'a'", "TOO_DEEP", None),
    ("CAST(arr AS " + "ARRAY<" * 500 + "INT" + ">" * 500 + ") IS NULL", "TOO_DEEP", None),
    ("b AND " * 200_000 + "b", "TOO_LONG", None),
]


@pytest.mark.parametrize(("text", "code", "position"), REFUSED, ids=[text[:50] for text, _, _ in REFUSED])
def test_refused(text: str, code: str, position: int | None) -> None:
    """Each with its code, a sentence, and the offset of what is wrong."""
    with pytest.raises(RuleError) as caught:
        compile_expression(text, SCOPE)
    assert caught.value.error == code
    assert caught.value.message.endswith((".", "?"))
    if position is not None:
        assert caught.value.position == position


def test_the_nearest_name_is_named() -> None:
    """A typing error is quicker to mend when the right name stands beside it."""
    for text, hint in [("dep_dely = 1", "'dep_delay'"), ("uper(dep_delay) = 1", "upper")]:
        with pytest.raises(RuleError, match=hint):
            compile_expression(text, Scope(pa.schema([("dep_delay", pa.int32())])))


def test_columns_that_differ_in_case_only() -> None:
    """Spark does not tell them apart, so no rule can name them; others can."""
    scope = Scope(pa.schema([("a", pa.int32()), ("A", pa.int32()), ("c", pa.int32())]))
    with pytest.raises(RuleError) as caught:
        compile_expression("a = 1", scope)
    assert caught.value.error == "AMBIGUOUS_COLUMN"
    assert isinstance(compile_expression("c = 1", scope), Predicate)


def test_a_column_may_be_called_like_a_keyword() -> None:
    """No word of Spark SQL is reserved."""
    names = ["date", "timestamp", "user", "order", "end", "case", "interval", "first", "left", "in", "not", "x", "if"]
    scope = Scope(pa.schema([(name, pa.int32()) for name in names]))
    formula = compile_expression(" AND ".join(f"{name} = 1" for name in names), scope)
    assert isinstance(formula, And)
    assert len(formula.operands) == len(names)


@pytest.mark.parametrize(
    "text",
    [
        " AND ".join(f"i <> {k}" for k in range(20_000)),
        "(" * 5000 + "i = 1" + ")" * 5000,
        "i IN (" + ", ".join(map(str, range(50_000))) + ")",
        " AND ".join(["(b"] * 2000) + ")" * 2000,
        "b AND (c OR (" * 80 + "b" + "))" * 80,
    ],
    ids=["flat", "brackets", "list", "right", "alternating"],
)
def test_size_is_no_reason(text: str) -> None:
    """Long chains, lists and brackets are compiled in time in proportion to their text."""
    assert isinstance(compile_expression(text, SCOPE), And | Or | Predicate)
