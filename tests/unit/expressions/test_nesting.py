"""Compiling takes time in proportion to the text, however its constructs are nested in one another."""

from __future__ import annotations

import time

import pytest

from rules_index.expressions import compile_expression

from .schemas import SCOPE

EVALUATED_TWICE = (
    "if({} > 3, i, l)",
    "nullif({}, 5)",
    "coalesce({}, 5)",
    "CASE {} WHEN 1 THEN i WHEN 2 THEN l END",
    "if(({} BETWEEN 1 AND 5), i, l)",
    "if(equal_null({}, 5), i, l)",
    "if(({} IS DISTINCT FROM 5), i, l)",
    "if(like(concat({}, 'a'), '%b%'), i, l)",
)


@pytest.mark.parametrize("construct", EVALUATED_TWICE)
def test_an_operand_that_is_looked_at_twice_is_analysed_once(construct: str) -> None:
    text = "i"
    for _ in range(30):
        text = construct.replace("{}", text)
    started = time.process_time()
    compile_expression(f"{text} > 3", SCOPE)
    assert time.process_time() - started < 0.5
