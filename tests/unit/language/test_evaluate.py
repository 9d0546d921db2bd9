from __future__ import annotations

import hashlib
import itertools
import math
import random
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.language.evaluation.decimals import to_decimal
from rules_index.language.evaluation.evaluate import OPERATIONS, evaluate
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.typed import Constant, Expression, Leaf, Operation

BOOL, INT, LONG = pa.bool_(), pa.int32(), pa.int64()
EXACT = Context(prec=200)


def run(tree: Expression, **columns: pa.Array | Evaluated) -> list[Any]:
    """The value of each row, "raised" where it raised."""
    inputs = {name: c if isinstance(c, Evaluated) else Evaluated(c) for name, c in columns.items()}
    rows = len(next(iter(inputs.values())).values)
    result = evaluate(tree, inputs, rows)
    assert result.values.type == tree.type
    assert len(result.values) == rows
    raised = np.zeros(rows, bool) if result.raised is None else result.raised
    assert not any(r and v is not None for r, v in zip(raised, result.values.to_pylist(), strict=True))
    return ["raised" if r else v for r, v in zip(raised, result.values.to_pylist(), strict=True)]


@pytest.mark.parametrize("data_type", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply"])
def test_integers_overflow_on_their_row_only(name: str, data_type: pa.DataType) -> None:
    bounds = np.iinfo(data_type.to_pandas_dtype())
    low, high = int(bounds.min), int(bounds.max)
    rng = random.Random(1)
    some = [None, 0, 1, -1, 2, -2, low, low + 1, high, high - 1, math.isqrt(high), -math.isqrt(high) - 1]
    some += [rng.randint(low, high) for _ in range(6)]
    left, right = zip(*itertools.product(some, some), strict=True)
    exact = {"add": int.__add__, "subtract": int.__sub__, "multiply": int.__mul__}[name]
    wanted = []
    for a, b in zip(left, right, strict=True):
        value = None if a is None or b is None else exact(a, b)
        wanted.append(value if value is None or low <= value <= high else "raised")
    tree = Operation(name, (Leaf("a", data_type), Leaf("b", data_type)), data_type)
    assert run(tree, a=pa.array(left, data_type), b=pa.array(right, data_type)) == wanted


@pytest.mark.parametrize("name", ["add", "subtract"])
@pytest.mark.parametrize(
    "types", [((38, 10), (38, 10), (38, 6)), ((10, 2), (5, 5), (16, 7)), ((38, 38), (38, 0), (38, 6))]
)
def test_decimals_are_exact_and_rounded_half_up(name: str, types: tuple[tuple[int, int], ...]) -> None:
    left_type, right_type, target = (pa.decimal128(*each) for each in types)
    rng = random.Random(2)

    def some(data_type: pa.DataType) -> list[Decimal]:
        digits = [rng.randrange(1, data_type.precision + 1) for _ in range(200)]
        return [to_decimal(rng.choice([1, -1]) * rng.randrange(10**d), data_type.scale) for d in digits]

    left, right = some(left_type), some(right_type)
    exact = {"add": EXACT.add, "subtract": EXACT.subtract}[name]
    wanted: list[Any] = []
    for a, b in zip(left, right, strict=True):
        value = exact(a, b).quantize(Decimal(1).scaleb(-target.scale), ROUND_HALF_UP, EXACT)
        wanted.append(value if abs(value) < Decimal(10) ** (target.precision - target.scale) else "raised")
    tree = Operation(name, (Leaf("a", left_type), Leaf("b", right_type)), target)
    assert run(tree, a=pa.array(left, left_type), b=pa.array(right, right_type)) == wanted


def test_floats_order_nan_highest_and_zeros_equal() -> None:
    order = [-math.inf, -1.5, 0.0, 2.5, math.inf, math.nan]
    left, right = zip(*itertools.product(range(6), range(6)), strict=True)
    columns = {"a": pa.array([order[i] for i in left]), "b": pa.array([-0.0 if i == 2 else order[i] for i in right])}
    a, b = Leaf("a", pa.float64()), Leaf("b", pa.float64())
    for name, holds in {"=": int.__eq__, "<": int.__lt__, ">=": int.__ge__, "<>": int.__ne__}.items():
        assert run(Operation(name, (a, b), BOOL), **columns) == [holds(i, j) for i, j in zip(left, right, strict=True)]


@pytest.mark.parametrize(
    ("value", "target", "wanted"),
    [
        (127.9, pa.int8(), 127),
        (-128.9, pa.int8(), -128),
        (128.0, pa.int8(), "raised"),
        (2.0**63, LONG, 2**63 - 1),
        (2.0**64, LONG, "raised"),
        (math.nan, INT, "raised"),
        (math.nan, pa.decimal128(10, 2), None),
        (1.005, pa.decimal128(10, 2), Decimal("1.01")),
        (1e10, pa.decimal128(5, 2), "raised"),
        (math.nan, BOOL, True),
        (-0.0, BOOL, False),
        (0.1, pa.float32(), float(np.float32(0.1))),
    ],
)
def test_casts_of_doubles(value: float, target: pa.DataType, wanted: Any) -> None:
    assert run(Operation("cast", (Leaf("a", pa.float64()),), target), a=pa.array([value])) == [wanted]


def test_only_plain_letters_spell_an_infinity() -> None:
    """The Turkish letters whose other case is a plain i do not: they raise, and only on their rows."""
    texts = pa.array(["iNf", "-İnf", "ınf", "Infınıty"])
    cast = Operation("cast", (Leaf("s", pa.string()),), pa.float64())
    assert run(cast, s=texts) == [math.inf, "raised", "raised", "raised"]


def failing(value: Any = None) -> Evaluated:
    """One row: a BOOLEAN that raised, or a value."""
    return (
        Evaluated(pa.array([None], BOOL), np.array([True])) if value == "raised" else Evaluated(pa.array([value], BOOL))
    )


STATES = [True, False, None, "raised"]


def and_(a: Any, b: Any) -> Any:
    if a is False or a == "raised":
        return a
    if b is False or b == "raised":
        return b
    return None if None in (a, b) else True


def or_(a: Any, b: Any) -> Any:
    if a is True or a == "raised":
        return a
    if b is True or b == "raised":
        return b
    return None if None in (a, b) else False


@pytest.mark.parametrize(("p", "q", "r"), [*itertools.product(STATES, repeat=3)])
def test_logic_over_values_that_may_have_raised(p: Any, q: Any, r: Any) -> None:
    leaves = tuple(Leaf(name, BOOL) for name in "pqr")
    columns = {"p": failing(p), "q": failing(q), "r": failing(r)}
    negated = p if p in (None, "raised") else not p
    first_not_null = next((v for v in (p, q, r) if v is not None), None)
    in_list = None if p is None else p
    if p not in (None, "raised"):
        in_list = "raised" if q == "raised" else True if q == p else "raised" if r == "raised" else None
        in_list = in_list or (True if r == p else None if None in (q, r) else False)
    wanted = {
        "and": and_(and_(p, q), r),
        "or": or_(or_(p, q), r),
        "case": p if p == "raised" else q if p is True else r,
        "coalesce": first_not_null,
        "in": in_list,
    }
    for name, value in wanted.items():
        assert run(Operation(name, leaves, BOOL), **columns) == [value], name
    assert run(Operation("not", leaves[:1], BOOL), **columns) == [negated]
    assert run(Operation("is_null", leaves[:1], BOOL), **columns) == [p if p == "raised" else p is None]


@pytest.mark.parametrize(
    ("name", "kind", "found"), [("concat", pa.string(), None), ("hash", INT, 42), ("contains", BOOL, None)]
)
def test_arguments_behind_a_null_are_evaluated_where_spark_does(name: str, kind: pa.DataType, found: Any) -> None:
    """`concat(NULL, CAST('x' AS ...))` raises, and `contains(NULL, ...)` does not."""
    texts = pa.array([None, None], pa.string())
    later = Evaluated(texts, np.array([True, False]))
    tree = Operation("call", (Leaf("a", pa.string()), Leaf("b", pa.string())), kind, (name, "UTC"))
    assert run(tree, a=texts, b=later) == ["raised" if name != "contains" else None, found]


@pytest.mark.parametrize("name", ["try_divide", "try_remainder"])
def test_a_dividend_beside_a_divisor_of_0_is_not_evaluated(name: str) -> None:
    """`try_divide(CAST('x' AS DOUBLE), 0)` is NULL in Spark."""
    kind = pa.float64()
    dividend = Evaluated(pa.array([None] * 5, kind), np.array([True] * 4 + [False]))
    divisor = Evaluated(pa.array([0.0, -0.0, 2.0, None, None], kind), np.array([False] * 4 + [True]))
    tree = Operation(name, (Leaf("a", kind), Leaf("b", kind)), kind)
    assert run(tree, a=dividend, b=divisor) == [None, None, "raised", None, "raised"]


def test_a_shared_part_is_evaluated_once_per_batch() -> None:
    shared = Operation("add", (Leaf("a", INT), Constant(1, INT)), INT)
    tree = Operation("=", (shared, shared), BOOL)
    cache: dict[Expression, Evaluated] = {}
    evaluate(tree, {"a": Evaluated(pa.array([1], INT))}, 1, cache)
    assert set(cache) == {tree, shared, Constant(1, INT)}


@pytest.mark.parametrize("rows", [0, 1])
def test_empty_batches_keep_their_types(rows: int) -> None:
    a, s = Leaf("a", pa.decimal128(20, 3)), Leaf("s", pa.string())
    inputs = {"a": Evaluated(pa.array([None] * rows, a.type)), "s": Evaluated(pa.array([None] * rows, s.type))}
    trees = [
        Operation("subtract", (a, a), pa.decimal128(38, 6)),
        *(Operation("cast", (a,), target) for target in (INT, pa.float32(), BOOL, pa.decimal128(5, 1))),
        Operation("negate", (a,), a.type),
        Operation("in", (a, a), BOOL),
        Operation("like", (s,), BOOL, ("%a_", "\\", True)),
        Operation("rlike", (s,), BOOL, ("a$",)),
    ]
    for tree in trees:
        result = evaluate(tree, inputs, rows)
        assert (result.values.type, result.values.to_pylist()) == (tree.type, [None] * rows)


def test_every_operation_of_the_language_is_there() -> None:
    assert {"add", "cast", "<=>", "and", "is_null", "in", "case", "coalesce", "like", "rlike"} <= set(OPERATIONS)


NOT_UTF8 = [b"a\xff", b"\xc3", b"ok", None, b"\xed\xa0\x80", b"\xf5\x80\x80\x80"]
"""What Spark may store in a STRING, as of `CAST(X'61FF' AS STRING)`."""


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("upper(s) = 'A\ufffd'", [0]),
        ("lower(s) = 'ok'", [2]),
        ("s ILIKE 'A%'", [0]),
        ("length(s) = 1", [1, 4]),
        ("length(s) = 4", [5]),
        ("trim(s) = 'ok'", [2]),
        ("left(s, 1) = 'a'", [0]),
        ("right(s, 1) = 'k'", [2]),
        ("substring(s, -2, 1) = 'a'", [0]),
        ("instr(s, 'k') = 2", [2]),
        ("lpad(s, 3, 'x') = 'xok'", [2]),
        ("substring_index(s, 'k', 1) = 'o'", [2]),
        ("split_part(s, 'k', 1) = 'o'", [2]),
        ("translate(s, 'o', 'x') = 'xk'", [2]),
        ("startswith(s, u)", [0, 1, 2, 4, 5]),
        (f"md5(s) = '{hashlib.md5(b'a' + bytes([255])).hexdigest()}'", [0]),
        (f"sha2(s, 256) = '{hashlib.sha256(bytes([195])).hexdigest()}'", [1]),
        ("concat(s, u) = 'okok'", [2]),
        ("TRY_CAST(s AS DOUBLE) IS NULL", [0, 1, 2, 3, 4, 5]),
        ("TRY_CAST(s AS DATE) IS NULL", [0, 1, 2, 3, 4, 5]),
        ("TRY_CAST(s AS DECIMAL(5, 2)) IS NULL", [0, 1, 2, 3, 4, 5]),
        ("TRY_CAST(s AS TIMESTAMP) IS NULL", [0, 1, 2, 3, 4, 5]),
        ("to_timestamp(s) > TIMESTAMP'2024-01-01'", []),
    ],
)
def test_bytes_that_are_no_text_stop_no_row(text: str, matches: list[int]) -> None:
    column = pa.array(NOT_UTF8, pa.binary()).view(pa.string())
    schema = pa.schema({"s": pa.string(), "u": pa.string()})
    compiled = ri.compile_rules([(1, text)], schema)
    assert not compiled.rejects.num_rows and not compiled.derived
    for each in (column, column.cast(pa.large_string()), column.dictionary_encode()):
        found = compiled.match(pa.table({"s": each, "u": each})).to_pylist()
        assert [row for row, ids in enumerate(found) if ids] == matches


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("s / i > 1", [1]),
        ("s / 2 > 1", [1]),
        ("s / 2D > 1", [0, 1, 3]),
        ("i / s < 1", [1]),
        ("translate(s, '2.', '\\0x') = 'x5'", [0]),
        ("s = 1 || 2", [1]),
        ("s LIKE 1 || '_'", [1]),
        ("s < 'x' || -5", [0, 1, 3]),
    ],
)
def test_texts_are_cast_and_joined_as_in_spark(text: str, matches: list[int]) -> None:
    table = pa.table({"s": ["2.5", "12", "x-5", "9223372036854775808", None], "i": [2, 2, 2, 2, 2]})
    compiled = ri.compile_rules([(1, text)], table.schema)
    assert not compiled.rejects.num_rows and not compiled.derived
    assert [row for row, ids in enumerate(compiled.match(table).to_pylist()) if ids] == matches


@pytest.mark.parametrize(
    ("text", "is_left"),
    [
        ("CAST(CAST(s AS DECIMAL(18,17)) AS INT) = 1", True),
        ("TRY_CAST(coalesce(m, 0.5) AS TINYINT) = 1", True),
        ("CAST(CAST(s AS DECIMAL(18,17)) AS BIGINT) = 1", False),
        ("CAST(CAST(s AS DECIMAL(16,15)) AS INT) = 1", False),
        ("CAST(m AS INT) = 1", False),
        ("s = DATE'2024-01-31' || ''", True),
    ],
)
def test_what_is_left_to_spark(text: str, is_left: bool) -> None:
    """Spark casts a computed DECIMAL to DOUBLE on its way to an INT: 0.99999999999999999 becomes 1."""
    compiled = ri.compile_rules([(1, text)], pa.schema({"s": pa.string(), "m": pa.decimal128(18, 17)}))
    assert not compiled.rejects.num_rows and bool(compiled.derived) == is_left
