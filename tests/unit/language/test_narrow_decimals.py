"""Decimals that fit 64 bits are computed as all others are, at every bound, and in no other way for 18 digits."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rules_index.language.evaluation import decimal_division, decimals, narrow_decimals
from tests.cases import cases

EXACT = Context(prec=120, rounding=ROUND_HALF_UP)
EDGES = [
    *(0, 1, 5, 9, 2**31, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, 2**64, 2**100, 10**38 - 1),
    *(10**digits + more for digits in (1, 2, 9, 10, 17, 18, 19, 20, 37) for more in (-1, 0, 1)),
    *(5 * 10**digits + more for digits in (1, 2, 8, 17, 18) for more in (-1, 0, 1)),
]


def numbers(draw: np.random.Generator, count: int, precision: int, scale: int) -> pa.Array:
    """Numbers at bounds and anywhere between, of every magnitude, some of them NULL."""

    def unscaled() -> int | None:
        kind = draw.integers(4)
        if kind == 0:
            return None
        found = (
            EDGES[draw.integers(len(EDGES))]
            if kind == 1
            else int(draw.integers(1 << 62)) * int(draw.integers(1 << 62)) >> int(draw.integers(124))
        )
        return int(draw.choice([-1, 1])) * (found % 10**precision)

    values = [
        None if each is None else Decimal(each).scaleb(-scale, EXACT) for each in (unscaled() for _ in range(count))
    ]
    return pa.array(values, pa.decimal128(precision, scale))


@pytest.fixture
def with_limbs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Calls a function while all rows are left to the kernels with limbs."""

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        with monkeypatch.context() as patch:
            for name in ("operate", "change_sign", "divide"):
                patch.setattr(narrow_decimals, name, lambda *_: None)
            return function(*arguments)

    return call


def outcome(found: tuple[pa.Array, Any]) -> tuple[list[Any], list[bool]]:
    return found[0].to_pylist(), found[1].tolist()


def types(draw: np.random.Generator) -> tuple[int, int]:
    precision = int(draw.choice([1, 5, 9, 10, 12, 18, 19, 20, 30, 38]))
    return precision, int(draw.integers(0, precision + 1))


def results(left: pa.Array, right: pa.Array, target: pa.DataType) -> list[Any]:
    """What sums, differences, negatives, absolute values and other types of the numbers are."""
    found = [decimals.operate(name, left, right, target) for name in ("add", "subtract")]
    found += [decimals.negative_or_absolute(name, left) for name in ("negate", "abs")]
    return [outcome(each) for each in (*found, decimals.rescale(left, target))]


def test_sums_differences_and_signs_are_those_with_limbs(with_limbs: Callable[..., Any]) -> None:
    for seed in range(cases(400)):
        draw = np.random.default_rng(seed)
        left, right = (numbers(draw, 60, *types(draw)) for _ in range(2))
        target = pa.decimal128(*types(draw))
        assert results(left, right, target) == with_limbs(results, left, right, target), seed


def test_quotients_are_those_with_limbs(with_limbs: Callable[..., Any]) -> None:
    tried = 0
    for seed in range(cases(800)):
        draw = np.random.default_rng(seed)
        one, other, target = (pa.decimal128(*types(draw)) for _ in range(3))
        whole = one.precision - one.scale + other.scale
        scale = min(38 - whole, max(target.scale, one.scale - other.scale))
        if scale < max(0, one.scale - other.scale) or whole + scale < 1:
            continue
        result = pa.decimal128(whole + scale, scale)
        if not decimal_division.is_exact(one, other, result):
            continue
        tried += 1
        left, right = (numbers(draw, 60, each.precision, each.scale) for each in (one, other))
        found = outcome(decimal_division.divide(left, right, result))
        assert outcome(with_limbs(decimal_division.divide, left, right, result)) == found, seed
    assert tried > cases(800) // 20


def test_numbers_of_eighteen_digits_need_no_limbs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise AssertionError("computed with limbs")

    for module, name in ((decimals, "_operate"), (decimals, "_change_sign"), (decimal_division, "_divide")):
        monkeypatch.setattr(module, name, refused)
    amounts = pa.array([Decimal("-9999999999.99"), Decimal("0.05"), None, Decimal("9999999999.99")])
    amounts = amounts.cast(pa.decimal128(18, 2))
    assert decimals.rescale(amounts, pa.decimal128(18, 1))[0].to_pylist()[1] == Decimal("0.1")
    assert decimals.operate("add", amounts, amounts, pa.decimal128(19, 2))[0].to_pylist()[0] == Decimal(
        "-19999999999.98"
    )
    assert decimals.negative_or_absolute("abs", amounts)[0].to_pylist()[0] == Decimal("9999999999.99")
    divisor = pa.array([Decimal(3)] * 4, pa.decimal128(10, 0))
    prices = pa.array([Decimal("0.01"), Decimal("-9999999999.98"), None, Decimal("99999.99")], pa.decimal128(12, 2))
    quotient, _ = decimal_division.divide(prices, divisor, pa.decimal128(23, 13))
    assert quotient.to_pylist()[:2] == [Decimal("0.0033333333333"), Decimal("-3333333333.3266666666667")]
    assert (
        decimals.operate("add", pa.nulls(3, amounts.type), pa.nulls(3, amounts.type), amounts.type)[0].null_count == 3
    )
