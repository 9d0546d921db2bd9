"""Compiling takes time in proportion to the text, however its constructs are nested and however long they are."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.compiling.compile import flatten
from rules_index.compiling.rule_columns import read_rules
from rules_index.errors import RuleError
from rules_index.language.analyser import Analyser
from rules_index.language.build_formula import Splitter
from rules_index.language.compiler import compile_expression
from rules_index.language.parser import parse
from rules_index.language.tokens import Tokens
from rules_index.language.typed import Expression, Operation
from rules_index.work_budget import MOST_STEPS
from tests.cases import SOAK, quick_first

from .clock import heap_of_its_own, within
from .schemas import SCHEMA, SCOPE


@pytest.fixture(autouse=True, scope="module")
def without_others() -> Iterator[None]:
    """What tests of other files have left is not looked through while time is taken here."""
    with heap_of_its_own():
        yield


@pytest.fixture(autouse=True)
def nothing_is_left(without_others: None) -> None:
    """Nor is what the test before has left; all else is frozen, so that this takes no time."""
    gc.collect()


NUMBERS = (
    "if({} > 3, i, l)",
    "nullif({}, 5)",
    "coalesce({}, 5)",
    "CASE {} WHEN 1 THEN i WHEN 2 THEN l END",
    "CASE WHEN {} > 1 THEN i ELSE {} END",
    "if({} BETWEEN 1 AND {}, i, l)",
    "if(equal_null({}, 5), i, l)",
    "if({} IS DISTINCT FROM 5, i, l)",
    "if({} IN (1, l, {}), i, l)",
    "if(({}, i) IN ((1, 2), (i, l)), i, l)",
    "if(({}, i) = (1, 2), i, l)",
    "if(like(concat({} :: string, 'a'), '%b%'), i, l)",
    "if((CAST({} AS STRING)) RLIKE 'a', i, l)",
    "if({} IS NULL, i, l)",
    "if(({} = 1) IS TRUE, i, l)",
    "if(NOT ({} = 1 AND b OR {} = 2), i, l)",
    "abs({})",
    "negative({})",
    "(- {})",
    "({} + 1)",
    "({} * {} - 1)",
    "CAST({} AS BIGINT)",
    "({}) :: int",
    "array({})[0]",
    "greatest({}, 1)",
    "nvl2({}, 1, {})",
    "struct({}, 1).col1",
    "element_at(array({}), 1)",
)


def nested(constructs: list[str], fill: bool) -> str:
    """Constructs one in another; `fill` puts what is nested into the first hole alone."""
    text = "i"
    for construct in constructs:
        first, *others = construct.split("{}")
        text = first + text + others[0] + "".join(("i" if fill else text) + part for part in others[1:])
    return f"{text} > 3"


@pytest.mark.parametrize("levels", [10, 30, 100])
def test_constructs_nested_in_one_another(levels: int) -> None:
    """Each in itself, and many of them at random: compiled or refused in under a second."""
    choice = random.Random(levels)
    chains = [[construct] * levels for construct in NUMBERS]
    chains += [choice.choices(NUMBERS, k=levels) for _ in range(200 if SOAK else 20)]
    for chain in chains:
        text = nested(chain, True)
        started = time.process_time()
        rejects = _flattened(text)
        assert within(1, time.process_time() - started), text
        assert rejects in ([], ["TOO_DEEP"], ["TOO_COSTLY"], ["NOT_ALLOWED"]), (rejects, text)


def test_conditions_nested_in_one_another() -> None:
    """The condition of IF is IF again: of what a rule is, not of what it compares."""
    text = "b"
    for level in range(16):
        text = f"if({text}, i > {level}, b)"
    started = time.process_time()
    assert _flattened(text) == []
    assert within(1, time.process_time() - started)


@pytest.mark.slow
def test_two_holes_double_the_text_only() -> None:
    """What a construct holds twice doubles its text with each level, and the time no faster."""
    for construct in NUMBERS:
        text = nested([construct] * 10, False)
        if len(text) <= 100_000:
            started = time.process_time()
            _flattened(text)
            assert within(1, time.process_time() - started), construct


@pytest.mark.slow
def test_trees_stay_in_proportion_to_their_text() -> None:
    """What is evaluated without Spark holds a part twice at most a few times over, and is stored as it is."""
    for construct in NUMBERS:
        for levels in (1, 2, 3, 5, 8, 13, 21, 34):
            text = nested([construct] * levels, True)
            compiled = ri.compile_rules([(1, text)], SCHEMA, engine="scan")
            for attribute in compiled.attributes:
                assert _size(attribute) <= max(512, 8 * len(text))


def _size(expression: Expression) -> int:
    return 1 + sum(map(_size, expression.operands)) if isinstance(expression, Operation) else 1


Chain = Callable[[int], str]


def joined(separator: str, part: str) -> Chain:
    return lambda count: separator.join(part.replace("#", str(k)) for k in range(count))


def around(before: str, chain: Chain, behind: str) -> Chain:
    return lambda count: before + chain(count) + behind


FLAT: dict[str, Chain] = {
    "and": joined(" AND ", "i > #"),
    "or": joined(" OR ", "i = #"),
    "and of ors": joined(" AND ", "(i > # OR l < #)"),
    "or of ands": joined(" OR ", "(i > # AND l < #)"),
    "derived": joined(" AND ", "hypot(i, #) > 0"),
    "computed": joined(" AND ", "i + l > #"),
    "and to the right": lambda count: "i = 1 AND (" * count + "l = 2" + ")" * count,
    "or to the right": lambda count: "i = 1 OR (" * count + "l = 2" + ")" * count,
    "and to the left": lambda count: "(" * count + "l = 2" + " AND i = 1)" * count,
    "alternating": lambda count: "i = 1 OR (l = 2 AND (" * count + "b" + "))" * count,
    "brackets": lambda count: "(" * count + "i = 1" + ")" * count,
    "plus": around("", joined("+", "i"), " > 1"),
    "strings": around("", joined("||", "'aaaaaaaaaa'"), " > s"),
    "in": around("i IN (", joined(",", "#"), ")"),
    "in, out of range": around("t IN (", joined(",", "1#"), ")"),
    "in, other type": around("l IN (", joined(",", "#.5D"), ")"),
    "in, wide": around("w IN (", joined(",", "#.5D"), ")"),
    "in, texts": around("s IN (", joined(",", "'v#'"), ")"),
    "in, columns": around("i IN (", joined(",", "l"), ")"),
    "in, far": around("f IN (", joined(",", "'1e-999#'"), ")"),
    "in, dates": around("dt IN (", joined(",", "'2024-01-01'"), ")"),
    "rows": around("(i, l) IN (", joined(",", "(#, #)"), ")"),
    "row": lambda count: "(" + "i," * count + "i) = (" + "1," * count + "1)",
    "case": around("CASE ", joined(" ", "WHEN i = # THEN #"), " END > 3"),
    "case of": around("CASE i + l ", joined(" ", "WHEN # THEN #"), " END > 3"),
    "coalesce": around("coalesce(", joined(", ", "i + #"), ") > 3"),
    "concat_ws": around("concat_ws('a', ", joined(", ", "s"), ") > 's'"),
    "not": lambda count: "NOT " * count + "b",
    "signs": lambda count: "- " * count + "i > 1",
    "digits": lambda count: "1" * count + "_ = 1",
    "digits behind a dot": lambda count: "i > 1." + "1" * count + "_",
    "a long number": lambda count: "i = " + "1" * count,
    "a long exponent": lambda count: "x = 1e" + "1" * count,
    "a long name": lambda count: "b" * count + " = 1",
    "a path": lambda count: "st" + ".p" * count + " = 1",
    "fields": lambda count: "struct(i)" + ".p" * count + " = 1",
    "subscripts": lambda count: "arr" + "[0]" * count + " = 1",
    "casts": lambda count: "i" + "::int" * count + " = 1",
    "quotes": lambda count: "s = " + "'" * count,
    "backslashes": lambda count: "s = '" + "\\" * count,
    "comments": lambda count: "/*" * count + "*/" * count + "b",
    "types": lambda count: "CAST(i AS " + "ARRAY<" * count + "INT" + ">" * count + ") IS NULL",
    "fields of a type": around("CAST(i AS STRUCT<", joined(",", "a#:INT"), ">) IS NULL"),
    "a precision": lambda count: "CAST(i AS DECIMAL(" + "1" * count + ")) > 1",
    "a function": lambda count: "a" * count + "(i) > 1",
    "comparisons": joined(" = ", "b"),
    "a lambda": lambda count: "exists(arr, (" + "q, " * count + "q) -> b)",
    "between": joined(" AND ", "i BETWEEN # AND 1#"),
    "is": lambda count: "(" * count + "b" + " IS TRUE)" * count,
    "multiplied": lambda count: (
        " AND ".join(f"(i = {k} OR l = {k})" for k in range(5)) + "".join(f" AND hash({k}) = 1" for k in range(count))
    ),
    "multiplied and nested": lambda count: (
        "(" * 60
        + "b"
        + "".join(
            f" OR l = {k} AND nanvl(i, {k}) = 0) AND (c OR t = {k % 9})"
            + "".join(f" AND find_in_set('{k}, {j}', s) = 1" for j in range(count // 60))
            for k in range(60)
        )
    ),
}  # fmt: skip


def of_length(chain: Chain, length: int) -> str:
    grown = len(chain(220)) - len(chain(120))
    return chain(max(1, length * 100 // grown))


def _flattened(text: str) -> list[str]:
    """The errors of one rule, all the way to its conjunctions."""
    rules, rejects = read_rules([(1, text)], "UTC")
    flatten(rules, SCOPE, None, rejects).finish()
    return [error for _, error, _, _ in rejects.rows]


def _steps(text: str) -> int:
    """Steps of work that reading a text takes, with those of the text that was refused for them."""
    found: list[Tokens] = []

    try:
        node, tokens = parse(text, "UTC")
        found.append(tokens)
        Splitter(Analyser(tokens, SCOPE)).rule(node)
    except RuleError as error:
        if error.error == "TOO_COMPLEX":
            return MOST_STEPS
    return MOST_STEPS - found[0].work.left if found else 0


@pytest.mark.parametrize("name", quick_first(3, FLAT))
def test_long_chains(name: str) -> None:
    """100,000 characters are compiled or refused in about a second, half of them in less, a million in little more."""
    for length in (100_000, 1_000_000) if SOAK else (50_000,):
        text = of_length(FLAT[name], length)
        compile_expression("b", SCOPE)
        # the second that a rule's work may take, and one for the text's length, since other tests run beside this one
        limit = 1 + min(1, length / 100_000)
        for _ in range(3):  # other processes may slow down one of these
            with heap_of_its_own():
                started = time.process_time()
                errors = _flattened(text)
                seconds = time.process_time() - started
            assert "INTERNAL" not in errors
            if within(limit, seconds):
                break
        assert within(limit, seconds), (length, seconds, errors)


@pytest.mark.parametrize("name", FLAT)
def test_work_is_in_proportion_to_the_text(name: str) -> None:
    """Four times the text takes at most five times the work, or is refused for it."""
    some, more = (_steps(of_length(FLAT[name], length)) for length in ((5_000, 20_000) if SOAK else (2_500, 10_000)))
    assert more <= 5 * some + 1_000


@pytest.mark.slow
def test_the_work_of_a_rule_does_not_hang_on_the_machine() -> None:
    """The same steps are counted each time, and a text at the limit is refused wherever it stands."""
    text = of_length(FLAT["and"], 900_000)
    assert _steps(text) == _steps(text)
    rules = [(1, "i = 1"), (2, text), (3, "i = 2")]
    compiled = ri.compile_rules(rules, SCHEMA)
    assert compiled.rejects.column("error").to_pylist() == ["TOO_COMPLEX"]
    assert compiled.match(pa.table({"i": pa.array([1, 2], pa.int32())})).to_pylist() == [[1], [3]]
