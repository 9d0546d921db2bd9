"""Texts that nobody would write are refused with their reason, or compiled, in less than a second each.

DELTATAG_MUTATIONS sets how many are tried: 50,000 take about three minutes.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.errors import RuleError
from rules_index.language.compiler import compile_expression
from rules_index.language.scope import Scope
from tests.cases import cases
from tests.mutated_expressions import Mutator
from tests.random_expressions import Grammar
from tests.random_rows import rows
from tests.spark.expressions_rows import rows as rows_of_cases

from .clock import within

COUNT = cases(4000, "DELTATAG_MUTATIONS")
SEED = 23
AT_ONCE = 250
"""Rules of one set."""
CASES = [
    line
    for line in (Path(__file__).parents[2] / "spark" / "expressions.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


def random_texts() -> tuple[list[str], pa.Schema]:
    grammar = Grammar(SEED, variety=0.4)
    return [grammar.rule() for _ in range(1000)], rows(1, SEED).schema


def written_texts() -> tuple[list[str], pa.Schema]:
    return CASES, rows_of_cases().schema


@pytest.mark.timeout(120 + COUNT // 10)
@pytest.mark.parametrize("texts", [random_texts, written_texts])
def test_each_is_refused_with_its_reason_or_compiled_in_time(texts: object) -> None:
    base, schema = texts()  # type: ignore[operator]
    scope, mutator = Scope(schema), Mutator(base, SEED)
    mutated = [mutator.text() for _ in range(COUNT // 2)]
    slowest = (0.0, "")
    codes: Counter[str] = Counter()
    refused = []
    for text in mutated:
        started = time.process_time()
        try:
            compile_expression(text, scope)
            codes["accepted"] += 1
            refused.append(None)
        except RuleError as error:
            assert error.message
            assert error.position is None or 0 <= error.position <= len(text), text
            codes[error.error] += 1
            refused.append(error.error)
        slowest = max(slowest, (time.process_time() - started, text))
    print(codes, slowest)
    assert within(1, slowest[0]), slowest
    assert codes["accepted"] > COUNT // 20
    for start in range(0, len(mutated), AT_ONCE):
        chosen = range(start, min(start + AT_ONCE, len(mutated)))
        compiled = ri.compile_rules([(number, mutated[number]) for number in chosen], schema, engine="scan")
        rejects = {each["rule_id"]: each["error"] for each in compiled.rejects.to_pylist()}
        assert rejects == {number: refused[number] for number in chosen if refused[number] is not None}
