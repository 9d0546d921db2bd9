"""What is told of rules that need Spark."""

from __future__ import annotations

import re

import pyarrow as pa

import rules_index as ri
from pipelines.runners.spark_required import of_derived

SCHEMA = pa.schema({"x": pa.int64(), "s": pa.string()})


def compiled_of(*expressions: str) -> ri.CompiledRules:
    rules = [(f"r{number}", expression) for number, expression in enumerate(expressions)]
    return ri.compile_rules(rules, SCHEMA, analyse=lambda leaves: [None] * len(leaves))


def test_each_part_is_named_with_a_rule_up_to_ten_of_them() -> None:
    assert of_derived(compiled_of("x > 1", "s = 'a'")) is None
    one = of_derived(compiled_of("x > 1", "soundex(s) = 'a'", "soundex(s) = 'b' AND x > 2"))
    assert one == "only Spark evaluates soundex(s), of the rule r1 (and 1 more rule)"
    many = of_derived(compiled_of(*(f"hash(s, {width}) > 5" for width in range(3, 15))))
    assert many is not None and many.endswith("; and 2 other parts")
    named = re.findall(r"hash\(s, (\d+)\), of the rule r(\d+);", many)
    assert len(named) == 10 and all(int(width) == int(rule) + 3 for width, rule in named)
