"""Bounds of what Spark needs for a part of a rule: bombs are refused at their place, ordinary rules pass."""

from __future__ import annotations

import time

import pytest

from rules_index.errors import RuleError
from rules_index.language.analyser import Analyser
from rules_index.language.compiler import compile_expression
from rules_index.language.costs.bounder import Bounder
from rules_index.language.costs.table import BY_NAME, TIMES
from rules_index.language.function_signatures import FUNCTIONS
from rules_index.language.parser import parse

from .clock import within
from .schemas import SCOPE


def nested(depth: int, form: str, seed: str) -> str:
    for _ in range(depth):
        seed = form.replace("{}", seed)
    return seed


def doubling(depth: int) -> str:
    """Each lambda's variable is twice as long as the one around it."""
    text = "TRUE"
    for level in range(depth, 0, -1):
        outer = "s" if level == 1 else f"v{level - 1}"
        text = f"exists(array(concat({outer}, {outer})), v{level} -> {text})"
    return text


def loops(count: int, depth: int) -> str:
    text = "TRUE"
    for level in range(depth, 0, -1):
        text = f"exists(sequence(1, {count}), v{level} -> {text})"
    return text


MANY_ARRAYS = "transform(sequence(1, 10000), v -> array(v))"
COSTLY = {
    "doubling": doubling(30),
    "long items": f"size(transform(sequence(1, 10000), v -> concat(s, '{'x' * 200_000}'))) > 1",
    "join": "replace(array_join(array_repeat('x', 10000), repeat('y', 10000)), 'y', repeat('z', 10000)) = s",
    "distance": "levenshtein(repeat(s, 10000), repeat(u, 10000)) = 1",
    "six loops": loops(100, 6),
    "three loops": loops(2000, 3),
    "nested set": f"size(array_except({MANY_ARRAYS}, {MANY_ARRAYS})) = 1",
    "copied plan": nested(30, "nullif({}, 7)", "i") + " = 1",
    "copied zero": nested(30, "nullifzero({})", "i") + " = 1",
    "copied case": nested(20, "CASE {} WHEN 1 THEN 2 WHEN 3 THEN 4 ELSE length(upper(s)) END", "hash(i)") + " = 1",
    "copied match": nested(20, "regexp_substr({}, '(?m)^a')", "s") + " = 'a'",
}
DISGUISES = (
    "{}",
    "NOT ({})",
    "(({}) IS UNKNOWN)",
    "if(b, {}, c)",
    "if({}, b, c)",
    "CASE WHEN b THEN {} ELSE c END",
    "CASE WHEN {} THEN b END",
    "coalesce(c, {}, b)",
    "map('k', {})['k']",
    "named_struct('k', {}).k",
    "array({})[0]",
    "exists(array(1), w -> {})",
    "forall(arr, w -> {} OR w > 1)",
    "aggregate(arr, FALSE, (acc, w) -> acc OR {})",
)


@pytest.mark.parametrize("form", DISGUISES)
@pytest.mark.parametrize("name", COSTLY)
def test_costly(name: str, form: str) -> None:
    """Wherever it stands, a bomb is refused at its own place, with its bound and the limit."""
    text = form.replace("{}", COSTLY[name])
    start = time.process_time()
    with pytest.raises(RuleError) as caught:
        compile_expression(text, SCOPE)
    assert within(1, time.process_time() - start)
    assert caught.value.error == "TOO_COSTLY"
    assert caught.value.position is not None
    assert "at most" in caught.value.message or "more than" in caught.value.message


REFUSED_ARGUMENTS = [
    "from_csv(s, 'a int', map('maxColumns', '2000000000')).a = 1",
    "from_csv(s, 'a int', map('MAXCOLUMNS', '2000000000')).a = 1",
    "from_csv(s, 'a int', map('max\\u0043olumns', '2000000000')).a = 1",
    "from_csv(s, 'a int', map('maxCol' || 'umns', '2000000000')).a = 1",
    "from_csv(s, 'a int', map('maxCol' 'umns', '2000000000')).a = 1",
    "from_csv(s, 'a int', map(concat('maxCol', 'umns'), '2000000000')).a = 1",
    "from_csv(s, 'a int', map('mode', 'PERMISSIVE', 'maxColumns', '2000000000')).a = 1",
    "from_csv(s, 'a int', map('inputBufferSize', '2000000000')).a = 1",
    "from_csv(s, 'a int', map(\"INPUTBUFFERSIZE\", r'2000000000')).a = 1",
    "from_csv(s, 'a int', map_concat(map('maxColumns', '2000000000'), map('mode', 'PERMISSIVE'))).a = 1",
    "from_csv(s, 'a int', if(true, map('maxColumns', '2000000000'), map('a', 'b'))).a = 1",
    "from_csv(s, 'a int', str_to_map('maxColumns:2000000000')).a = 1",
    "to_csv(st, map('nullValue', repeat('x', 1000))) = s",
    "to_json(st, map('pretty', 'true')) = s",
    f"from_json(s, '{'array<' * 2000}int{'>' * 2000}') IS NULL",
    f"from_json(s, '{'array<' * 1000}int{'>' * 1000}') IS NULL",
    "from_json(s, repeat('array<', 2000)) IS NULL",
    "parse_url(s, 'QUERY', '(a+)+$') = 'b'",
    "date_format(ts, repeat('[', 10000)) = s",
    "date_format(ts, s) = s",
]


@pytest.mark.parametrize("text", REFUSED_ARGUMENTS, ids=lambda text: text[:70])
def test_arguments(text: str) -> None:
    """Options, schemas, formats and keys are from lists, short, or constant."""
    with pytest.raises(RuleError) as caught:
        compile_expression(text, SCOPE)
    assert caught.value.error == "NOT_ALLOWED"
    assert caught.value.position


ORDINARY = [
    "levenshtein(s, u) < 3",
    "levenshtein(s, u, 5) < 3",
    "contains(s, u)",
    "exists(split(s, ','), v -> upper(trim(v)) = 'A')",
    "exists(arr, v -> exists(arr, w -> v = w))",
    "concat(s, s, concat(u, s), upper(lower(trim(s)))) = 'a'",
    nested(5, "concat({}, {})", "s") + " = 'a'",
    "size(array_distinct(transform(split(left(s, 1000), ','), v -> concat(v, '-', left(u, 20))))) > 2",
    "regexp_replace(s, '[0-9]+x', '$0-') = 'a'",
    "regexp_extract(concat(s, s, s), '([a-z]+)-([0-9]+)', 1) = 'a'",
    "from_json(s, 'a INT, b ARRAY<STRUCT<x: INT, y: STRING>>').a > 1",
    "from_csv(s, 'a int', map('sep', '|', 'mode', 'FAILFAST')).a = 1",
    "date_format(ts, 'yyyy-MM-dd') = s",
    "date_format(ts, left(s, 50)) = s",
    "to_json(named_struct('a', s, 'b', arr)) = s",
    "replace(replace(replace(replace(s, 'a', 'aa'), 'b', 'bb'), 'c', 'cc'), 'd', 'dd') = u",
    "repeat(left(s, 100), 1000) = 'x'",
    "exists(sequence(1, 100), k -> substring(s, k, 1) = 'x')",
    nested(4, "nullif({}, 7)", "i") + " = 1",
    "startswith(s, CAST(bin AS STRING))",
    "endswith(s, CAST(bin AS STRING))",
    "contains(s, CAST(bin AS STRING))",
    "regexp_replace(CAST(bin AS STRING), '[a-b]', 'z') = 'z'",
]


@pytest.mark.parametrize("text", ORDINARY, ids=lambda text: text[:70])
def test_ordinary(text: str) -> None:
    """What people write of rows as they are is not refused."""
    compile_expression(text, SCOPE)


def test_every_function_has_its_cost() -> None:
    """None is allowed without bounds, and no bound is of a function that is not allowed."""
    assert set(BY_NAME) == set(FUNCTIONS)
    assert set(TIMES) <= set(FUNCTIONS)


@pytest.mark.parametrize("text", ORDINARY, ids=lambda text: text[:70])
def test_bounds_grow_with_the_row(text: str) -> None:
    """A larger row never needs less."""
    node, tokens = parse(text)
    analyser = Analyser(tokens, SCOPE)
    analyser.value(node)
    before = (0.0, 0.0)
    for row in (10.0, 100.0, 1_000.0):
        bound = Bounder(analyser, row).bound(node)
        found = (bound.steps.most, bound.memory.most)
        assert found[0] >= before[0] and found[1] >= before[1]
        before = found


@pytest.mark.parametrize(
    "form",
    ["repeat(s, {})", "lpad(s, {}, '*')", "array_repeat(s, {})", "space({})", "sequence(1, {})", "left(s, {})"],
)
def test_bounds_grow_with_a_constant(form: str) -> None:
    """A larger constant never needs less."""
    before = 0.0
    for count in (0, 1, 5, 10, 50, 100):
        node, tokens = parse(f"hash({form.replace('{}', str(count))})")
        analyser = Analyser(tokens, SCOPE)
        analyser.value(node)
        steps = Bounder(analyser, 1_000.0).bound(node).steps.most
        assert steps >= before
        before = steps


def test_texts_that_are_encoded_several_times_are_no_larger_than_they_are() -> None:
    for text in ("base64(encode(repeat(s, 30), 'utf-8')) = u", "hex(base64(unhex(hex(repeat(s, 15))))) = u"):
        compile_expression(text, SCOPE)
    with pytest.raises(RuleError, match="may need"):
        compile_expression("base64(encode(repeat(s, 90), 'utf-8')) = u", SCOPE)
