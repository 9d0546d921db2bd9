"""Quotients of decimals against Python's, with Spark's two roundings."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa

from rules_index.language.evaluation.decimal_division import divide, is_exact
from tests.quotients import decimals, pairs, quotient, quotient_type

BIGINT = pa.decimal128(20, 0)


def test_quotients_are_rounded_twice() -> None:
    choice, compared = random.Random(3), 0
    for _ in range(600):
        digits = choice.randint(1, 38)
        left, right = pa.decimal128(digits, choice.randint(0, digits)), BIGINT
        if choice.random() < 0.5:
            digits = choice.randint(1, 18)
            right = pa.decimal128(digits, choice.randint(0, digits))
        result = quotient_type(left, right)
        if not is_exact(left, right, result, right == BIGINT):
            continue
        dividends, divisors = zip(*pairs(choice, left, right, 20), strict=True)
        given = decimals(dividends, left), decimals(divisors, right)
        found, failed = divide(*given, result)
        assert not failed.any()
        both = zip(*(each.to_pylist() for each in given), strict=True)
        assert found.to_pylist() == [quotient(*each, result.scale) for each in both], (left, right)
        compared += len(found)
    assert compared > 5_000


def test_a_divisor_of_zero_fails() -> None:
    kind = pa.decimal128(10, 2)
    found, failed = divide(
        pa.array([Decimal(1), Decimal(1), None], kind), pa.array([0, None, 0], BIGINT), quotient_type(kind, BIGINT)
    )
    assert found.null_count == 3
    assert failed.tolist() == [True, False, False]
