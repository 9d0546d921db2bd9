"""Rules that are refused: the code, the place, and a sentence that its author understands."""

from __future__ import annotations

import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.errors import RuleError
from rules_index.language.compiler import compile_expression
from rules_index.language.formula import And, Fixed, Or, Predicate, Truth
from rules_index.language.scope import Scope
from rules_index.language.typed import Leaf

from .schemas import SCHEMA, SCOPE

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
    ("ts BETWEEN '08:00' AND '17:00'", "NOT_REPEATABLE", 11),
    ("i = 1 OR ts IN (TIMESTAMP'2024-01-01', 'T8:00')", "NOT_REPEATABLE", 39),
    ("coalesce(ts, ' 12:30') < n", "NOT_REPEATABLE", 13),
    ("ts < 'T8'", "NOT_REPEATABLE", 5),
    ("CAST('12:30' AS TIMESTAMP) < ts", "NOT_REPEATABLE", 5),
    ("dt = DATE'today'", "NOT_REPEATABLE", 5),
    ("ts < TIMESTAMP'2024-01-01 00:00:00 Factory'", "LITERAL", 5),
    ("ts < TIMESTAMP'2024-01-01 00:00:00 localtime'", "LITERAL", 5),
    ("ts < TIMESTAMP'2024-01-01 00:00:00+800'", "LITERAL", 5),
    ("abs(x => i) = 1", "SYNTAX", 4),
    ("b AND CAST(CAST(NULL AS TIMESTAMP_NTZ) AS BOOLEAN)", "TYPE_MISMATCH", 6),
    ("j = 1", "UNKNOWN_COLUMN", 0),
    ("i = 1 AND `dep_delay` > 5", "UNKNOWN_COLUMN", 10),
    ("st.z = 1", "UNKNOWN_COLUMN", 0),
    ("i", "NOT_BOOLEAN", 0),
    ("i AND b", "NOT_BOOLEAN", 0),
    ("b OR i + 1", "NOT_BOOLEAN", 5),
    ("NULL", "NOT_BOOLEAN", 0),
    ("s AND u", "NOT_BOOLEAN", 0),
    ("s AND NULL", "NOT_BOOLEAN", 0),
    ("b OR NULL AND s", "NOT_BOOLEAN", 5),
    ("b AND (s AND u)", "NOT_BOOLEAN", 7),
    ("b AND (c AND (s AND u))", "NOT_BOOLEAN", 14),
    ("(b AND c) AND (s AND u)", "NOT_BOOLEAN", 15),
    ("(b OR c) OR (s OR u OR b)", "NOT_BOOLEAN", 13),
    ("CASE WHEN s THEN b END", "NOT_BOOLEAN", 10),
    ("CASE WHEN b THEN c WHEN NULL THEN b END", "NOT_BOOLEAN", 24),
    ("if(s, b, c)", "NOT_BOOLEAN", 3),
    ("st['p']", "NOT_BOOLEAN", 0),
    ("second(ts)", "NOT_BOOLEAN", 0),
    ("second(ts) AND b", "NOT_BOOLEAN", 0),
    ("s + 1", "NOT_BOOLEAN", 0),
    ("-s", "NOT_BOOLEAN", 0),
    ("ts - ts", "NOT_BOOLEAN", 0),
    ("nanvl(f, 1)", "NOT_BOOLEAN", 0),
    ("b = 1", "TYPE_MISMATCH", 0),
    ("arr = 1", "TYPE_MISMATCH", 0),
    ("i.x = 1", "TYPE_MISMATCH", 0),
    ("b + 1 > 1", "TYPE_MISMATCH", 0),
    ("upper() = 'A'", "TYPE_MISMATCH", 0),
    ("i IN (SELECT 1)", "SUBQUERY", 6),
    ("EXISTS (SELECT 1)", "SUBQUERY", 8),
    ("(SELECT 1) = i", "SUBQUERY", 1),
    ("i IN (WITH q AS (SELECT 1) SELECT * FROM q)", "SUBQUERY", 6),
    ("length(repeat(repeat(s, 10000), 10000)) > 1", "TOO_COSTLY", 7),
    ("exists(sequence(1, 1000), q -> exists(sequence(1, 1000), r -> r > q))", "TOO_COSTLY", 0),
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
    ("replace(" * 12 + "s" + ",'a','aa')" * 12 + " = ''", "TOO_COSTLY", None),
    ("transform(arr, v -> v)[0] = 1 AND v = 1", "UNKNOWN_COLUMN", 34),
    ("foo(i) = 1", "UNKNOWN_FUNCTION", 0),
    ("s RLIKE '('", "PATTERN", 8),
    ("s RLIKE 'a(?=b)'", "PATTERN", 8),
    ("upper(s) LIKE 'a!' ESCAPE '!'", "PATTERN", 14),
    ("s LIKE 'a' ESCAPE 'ab'", "LITERAL", 18),
    ("i = 1 AND (b OR (" * 150 + "b" + "))" * 150, "TOO_DEEP", None),
    ("i IN (" + "1, " * 250_000 + "1)", "TOO_COMPLEX", None),
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


@pytest.mark.slow
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


ACCEPTED = [
    "NOT " * 199 + "i = 1",
    "NOT " * 5000 + "b",
    "concat() = s",
    "abs(ALL i) = 1",
    "system.builtin.abs(i) = 1",
    "`system`.BUILTIN.`abs`(i) = 1",
    "builtin.coalesce(i, 1) = 1",
    "CAST(i AS DECIMAL(0,0)) IS NULL",
    "dt = DATE'epoch UTC'",
    "mask(s, upperChar => 'Q') = 'a'",
    "f < float('1e400')",
    "f < CAST('1e309' AS FLOAT)",
    "exists(transform(arr, v -> struct(v AS q)), e -> e.q LIKE 1)",
    "n < '999999-01-01'",
    "n < DATE'299999-01-01'",
    "ts < '2024-01-01 00:00:00+800'",
]


@pytest.mark.parametrize("text", ACCEPTED, ids=[text[:50] for text in ACCEPTED])
def test_accepted(text: str) -> None:
    """What Spark understands, though it looks odd."""
    compile_expression(text, SCOPE)


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("NULL = NULL", Truth.NULL),
        ("NULL <=> NULL", Truth.TRUE),
        ("NULL IS DISTINCT FROM NULL", Truth.FALSE),
        ("NULL < 5", Truth.NULL),
        ("1 < 2", Truth.TRUE),
        ("CAST(0.99999999999999999999 AS INT) = 1", Truth.TRUE),
        ("CAST('1e309' AS FLOAT) > 3e38", Truth.TRUE),
        ("CAST('1e-400' AS DECIMAL(5,2)) = 0", Truth.TRUE),
        ("DATE'epoch UTC' = DATE'1970-01-01'", Truth.TRUE),
    ],
)
def test_constants_need_no_spark(text: str, truth: Truth) -> None:
    assert compile_expression(text, SCOPE) == Fixed(truth)


@pytest.mark.parametrize(
    "text", ["NULL BETWEEN NULL AND i", "i BETWEEN NULL AND NULL", "(+ i) IS NULL", "(+ d) IS NOT NULL"]
)
def test_nulls_beside_columns_need_no_spark(text: str) -> None:
    assert len(ri.compile_rules([(1, text)], SCHEMA, engine="scan").derived) == 0


@pytest.mark.parametrize("text", ["least(i, s) = 5", "greatest(s, 1, i) > 5", "greatest('1', d) > 5"])
def test_spark_judges_extremes_of_texts_and_numbers(text: str) -> None:
    """It refuses them; deltatag asks it for whatever it leaves to it."""
    assert len(ri.compile_rules([(1, text)], SCHEMA, engine="scan").derived) == 1


@pytest.mark.parametrize(
    "text", ["s IS DISTINCT FROM CAST(NULL AS INT)", "NOT (s <=> CAST(NULL AS DOUBLE))", "s <=> CAST(NULL AS DATE)"]
)
def test_a_cast_that_may_raise_is_not_lost_beside_null(text: str) -> None:
    """`s <=> CAST(NULL AS INT)` casts s, which raises where it is no number."""
    compiled = ri.compile_rules([(1, text)], SCHEMA, engine="scan")
    if not compiled.derived:
        compiled.match(pa.table({"s": ["x", None]}))
    assert len(compiled.derived) == 1 or compiled.errors == {1: 1}


@pytest.mark.parametrize(
    ("interval", "is_plain"),
    [("'-1' DAY", True), ("-2 hours 3 MINUTES", True), ("- '+1' DAY", False), ("1.5 SECONDS", False),
     ("'1:2' HOUR TO MINUTE", False), ("999999999 WEEKS 999999999 WEEKS", False)],
)  # fmt: skip
def test_intervals_of_whole_units_need_no_spark(interval: str, is_plain: bool) -> None:
    compiled = ri.compile_rules([(1, f"ts + INTERVAL {interval} > ts")], SCHEMA, engine="scan")
    assert len(compiled.derived) == (0 if is_plain else 1)


def test_a_cast_that_is_sure_needs_no_spark_beside_null() -> None:
    assert len(ri.compile_rules([(1, "t <=> CAST(NULL AS INT)")], SCHEMA, engine="scan").derived) == 0


@pytest.mark.parametrize(
    "text",
    [
        "n < '999999-01-01'",
        "n < DATE'299999-01-01'",
        *(f"ts < '2024-01-01 00:00:00{offset}'" for offset in ("+800", "+80000", "+08:0:00", "+8:00:0", "+1:2:3")),
        "d = CAST('0e38' AS DECIMAL(5,2))",
        "d = CAST('0e39' AS DECIMAL(38,0))",
    ],
)
def test_constants_at_which_spark_raises_are_left_to_it(text: str) -> None:
    """Out of range, or of no form that Spark reads: the rule is unknown on every row, and its errors are counted."""
    formula = compile_expression(text, SCOPE)
    assert isinstance(formula, Predicate) and isinstance(formula.attribute, Leaf) and formula.attribute.text == text


@pytest.mark.parametrize("offset", ["+8", "-08", "+08:00", "+8:5", "+0800", "+080000", "+08:00:00", "GMT+0", "UTC-3"])
def test_offsets_that_spark_reads_need_no_spark(offset: str) -> None:
    formula = compile_expression(f"ts < '2024-01-01 00:00:00{offset}'", SCOPE)
    assert isinstance(formula, Predicate) and formula.attribute == Leaf("ts", SCHEMA.field("ts").type)


def test_names_are_compared_as_spark_does() -> None:
    columns = pa.schema(
        [("s", pa.int32()), ("\u017f", pa.int32()), ("stra\u00dfe", pa.int32()), ("\u03c3", pa.int32())]
    )
    scope = Scope(columns)
    for text in ("s = 1", "S = 1", "`\u017f` = 1", "`STRA\u1e9eE` = 1", "`\u03a3` = 1"):
        compile_expression(text, scope)
    for text in ("`STRASSE` = 1", "`\u03c2` = 1"):
        with pytest.raises(RuleError) as caught:
            compile_expression(text, scope)
        assert caught.value.error == "UNKNOWN_COLUMN"
    fields = Scope(pa.schema([("st", pa.struct([("s", pa.int32()), ("\u017f", pa.int32())]))]))
    with pytest.raises(RuleError) as caught:
        compile_expression("st.s = 1", fields)
    assert caught.value.error == "AMBIGUOUS_COLUMN"
    rules = [(1, "s = 1"), (2, "`\u017f` = 1")]
    rows = {"s": pa.array([1, 2], pa.int32()), "\u017f": pa.array([2, 1], pa.int32())}
    compiled = ri.compile_rules(rules, columns)
    assert compiled.match(pa.table(rows)).to_pylist() == [[1], [2]]


def test_a_field_and_a_column_of_the_same_path() -> None:
    """`a.b` is the field b of a, and the column of that name stands in back-quotes."""
    fields = pa.struct([("b", pa.int32()), ("s", pa.struct([("c", pa.int32())]))])
    schema = pa.schema([("a", fields), ("a.b", pa.int32()), ("a.s.c", pa.int32())])
    rows = [
        {"a": {"b": 5, "s": {"c": 1}}, "a.b": 1, "a.s.c": 5},
        {"a": {"b": 1, "s": {"c": 5}}, "a.b": 5, "a.s.c": 1},
    ]
    table = pa.Table.from_pylist(rows, schema)
    rules = [
        (1, "a.b > 3"),
        (2, "`a.b` > 3"),
        (3, "a.s.c > 3"),
        (4, "`a.s.c` > 3"),
        (5, "(a.s).c > 3"),
        (6, "a['b'] > 3"),
    ]
    compiled = ri.compile_rules(rules, schema)
    assert compiled.match(table).to_pylist() == [[1, 4, 6], [2, 3, 5]]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        # Spark casts a text beside a condition, and none of two beside each other, which it alone can tell
        ("elt(1, s, u) AND elt(2, s, u)", ["(elt(1, s, u)) AND (elt(2, s, u))"]),
        ("elt(1, s, u) OR s", ["(elt(1, s, u)) OR (s)"]),
        ("NULL OR elt(1, '{}', s)", ["(NULL) OR (elt(1, '{}', s))"]),
        ("b AND (elt(1, s, u) AND s)", ["(elt(1, s, u)) AND (s)"]),
        ("elt(1, s, u) AND b AND elt(2, s, u)", ["(elt(1, s, u)) AND TRUE", "(elt(2, s, u)) AND TRUE"]),
        ("elt(1, s, u) AND (b AND elt(2, s, u))", ["(elt(1, s, u)) AND TRUE", "(elt(2, s, u)) AND TRUE"]),
        ("elt(1, s, u) AND NOT elt(2, s, u)", ["(elt(1, s, u)) AND TRUE", "(elt(2, s, u)) AND TRUE"]),
        ("b AND s", []),
    ],
)
def test_operands_that_may_both_be_texts_are_left_to_spark(text: str, wanted: list[str]) -> None:
    compiled = ri.compile_rules([(1, text)], SCHEMA)
    assert sorted(leaf.text for leaf in compiled.derived) == sorted(wanted)
