"""`x IN LIST('name')`: as if the list's values stood in the rule, in every type, index, file and update."""

from __future__ import annotations

import math
import random
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.index.compiled import dumps
from rules_index.language.typed import leaves_of
from tests.cases import cases

LEAST, MOST = -(1 << 63), (1 << 63) - 1
VALUES: dict[str, tuple[pa.DataType, pa.DataType, list[Any]]] = {
    "t": (pa.int8(), pa.int64(), [-128, -1, 0, 1, 2, 3, 127, 128, MOST, LEAST]),
    "i": (pa.int32(), pa.int16(), [-5, 0, 1, 2, 3, 70]),
    "l": (pa.int64(), pa.int64(), [LEAST, LEAST + 1, -1, 0, 5, 6, 7, MOST - 1, MOST]),
    "f": (pa.float32(), pa.float64(), [math.nan, math.inf, -math.inf, -0.0, 0.0, 0.5, 0.1, 1e300]),
    "d": (pa.float64(), pa.float32(), [math.nan, math.inf, 0.0, -0.0, 0.5, 3e38]),
    "m": (pa.decimal128(9, 2), pa.decimal64(9, 2), [Decimal("-1.00"), Decimal("0.01"), Decimal("9999999.99")]),
    "w": (pa.decimal128(30, 3), pa.decimal256(30, 3), [Decimal("-1.000"), Decimal("0.001"), Decimal(10) ** 26]),
    "s": (pa.string(), pa.large_string(), ["", "a", "A", "ä", "a ", "\0", "ß" * 40, "z"]),
    "y": (pa.binary(), pa.binary(), [b"", b"\0", b"a", b"\xff"]),
    "c": (pa.date32(), pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
    "n": (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin"), [0, 1, -1, 10**15]),
    "k": (pa.timestamp("us"), pa.timestamp("us"), [0, 1, -1, 10**15]),
    "b": (pa.bool_(), pa.bool_(), [True, False]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _, _) in VALUES.items()])


def rows(seed: int, count: int) -> pa.Table:
    made = random.Random(seed)
    columns = {}
    for name, (kind, _, values) in VALUES.items():
        fitting = [each for each in values if name not in ("t", "d") or fits(each, kind)]
        columns[name] = pa.array([made.choice([*fitting, None]) for _ in range(count)], kind)
    return pa.table(columns)


def fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError):
        return False
    return True


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    return bool(one == other)


@pytest.mark.parametrize("seed", range(cases(40)))
def test_a_row_is_in_a_list_that_holds_its_value(seed: int) -> None:
    made = random.Random(seed)
    table = rows(seed, 60)
    lists, rules, wanted = [], [], {}
    for number, (name, (_, kind, values)) in enumerate(VALUES.items()):
        chosen = [each for each in made.sample(values, made.randint(0, len(values))) if fits(each, kind)]
        held = pa.array([*chosen, None, *chosen], kind)
        lists.append(ri.value_list(name, made.choice([held, pa.chunked_array([held[:1], held[1:]])])))
        rules += [(2 * number, f"{name} IN LIST('{name}')"), (2 * number + 1, f'`{name}` not in list ( "{name}" )')]
        inside = [each.as_py() for each in held if each.is_valid]
        for row, value in enumerate(table[name].to_pylist()):
            found = None if value is None else any(same(value, each) for each in inside)
            wanted[row, 2 * number], wanted[row, 2 * number + 1] = found is True, found is False
    compiled = ri.compile_rules(rules, SCHEMA, made.choice(["auto", "scan", "be_tree"]), lists=lists)
    assert compiled.rejects.num_rows == 0 and compiled.derived == ()
    for each in (compiled, ri.loads(dumps(compiled))):
        matched = each.match(table).to_pylist()
        assert {(row, rule): rule in matched[row] for row, rule in wanted} == wanted
        assert each.match_one(table.slice(seed % 60, 1).to_pylist()[0]) == matched[seed % 60]


PEOPLE = pa.schema([("who", pa.string()), ("n", pa.int32())])
LISTED = ri.value_list("bad", pa.array(["a", "b"]))


@pytest.mark.parametrize(
    ("text", "error", "position"),
    [
        ("who IN LIST('good')", "UNKNOWN_LIST", 7),
        ("n IN LIST('bad')", "TYPE_MISMATCH", 0),
        ("who IN LIST(bad)", "SYNTAX", 7),
        ("who IN LIST('b d')", "SYNTAX", 7),
        ("who IN LIST /* */ ('bad')", "SYNTAX", 7),
        # what Python alone takes for the word or for space: nobody else would see that the rule names a list
        ("who IN LI\u017fT('bad')", "SYNTAX", 9),
        ("who IN LIST\u00a0('bad')", "SYNTAX", None),
        ("who IN LIST\u000b('bad')", "SYNTAX", None),
        ("who IN LIST('bad', 'x')", "SYNTAX", 7),
        ("exists(array(who), x -> x IN LIST('bad'))", "NOT_ALLOWED", 24),
        ("soundex(CASE WHEN who IN LIST('bad') THEN 'x' END) = 'X000'", "NOT_ALLOWED", 18),
        ("who COLLATE UTF8_LCASE IN LIST('bad')", "NOT_ALLOWED", 0),
    ],
)
def test_refusals(text: str, error: str, position: int) -> None:
    compiled = ri.compile_rules([(1, text)], PEOPLE, lists=[LISTED])
    (reject,) = compiled.rejects.to_pylist()
    assert reject["error"] == error and position in (None, reject["position"]), reject


def test_lists_stand_wherever_no_spark_is_needed() -> None:
    rules = [
        ("cased", "CASE WHEN who IN LIST('bad') THEN 1 ELSE 2 END = 1"),
        ("computed", "concat(who, '') IN LIST('bad')"),
        ("is", "(who IN LIST('bad')) IS NOT TRUE"),
        ("null", "NULL IN LIST('bad')"),
        ("text", "who = 'LIST(''bad'')'"),
        ("two", "who IN LIST('bad') AND NOT (who IN LIST('bad') OR n > 1)"),
    ]
    compiled = ri.compile_rules(rules, PEOPLE, lists=[LISTED])
    assert (compiled.rejects.num_rows, compiled.derived, list(compiled.lists)) == (0, (), ["bad"])
    table = pa.table({"who": ["a", "b", None, "c"], "n": pa.array([2, 1, 1, 1], pa.int32())})
    assert compiled.match(table).to_pylist() == [["cased", "computed"], ["cased", "computed"], ["is"], ["is"]]
    # IN and NOT IN, and every rule that names the list, are one attribute
    both = ri.compile_rules([(1, "who IN LIST('bad')"), (2, "n > 1 OR who NOT IN LIST('bad')")], PEOPLE, lists=[LISTED])
    assert len(both.attributes) == 2
    assert {leaf.name for each in both.attributes for leaf in leaves_of(each)} == {"who", "n"}


def test_explain_tells_of_lists() -> None:
    compiled = ri.compile_rules([(1, "who IN LIST('bad') AND n > 1")], PEOPLE, lists=[LISTED])
    told = str(compiled.explain({"who": "c", "n": 2}, 1))
    assert "false  who IN LIST('bad')" in told and "true   n > 1" in told


@pytest.mark.parametrize("many", [0, 3_000])
def test_an_update_changes_the_rules_of_lists_that_have_changed(many: int) -> None:
    """With few rules all are compiled; with many only those that name the list."""
    rules = [*((f"r{number}", f"n = {number}") for number in range(many)), ("listed", "who IN LIST('bad')")]
    rules += [("other", "who IN LIST('other') OR n > 5"), ("text", "who = 'LIST(''bad'')'")]
    other, now = ri.value_list("other", pa.array(["o"])), ri.value_list("bad", pa.array(["c"]))
    before = ri.compile_rules(rules, PEOPLE, lists=[LISTED, other])
    table = pa.table({"who": ["a", "c", "o"], "n": pa.array([-1, -1, -1], pa.int32())})
    assert before.match(table).to_pylist() == [["listed"], [], ["other"]]
    after = before.update([], lists=[now, other])
    whole = ri.compile_rules(rules, PEOPLE, lists=[now, other])
    assert (
        after.match(table).to_pylist() == [[], ["listed"], ["other"]] == ri.loads(dumps(after)).match(table).to_pylist()
    )
    assert after.fingerprint == whole.fingerprint != before.fingerprint
    assert before.update([], lists=[LISTED, other]).fingerprint == before.fingerprint
    again = ri.loads(dumps(after)).update([("more", "who NOT IN LIST('bad')"), ("listed", None)], lists=[now])
    assert again.match(table).to_pylist() == [["more"], [], ["more", "other"]]


def test_a_list_may_come_in_chunks_whose_categories_differ_and_may_be_null() -> None:
    places = pa.array([0, 1])
    chunks = [pa.DictionaryArray.from_arrays(places, pa.array([None, text], pa.string_view())) for text in "az"]
    compiled = ri.compile_rules([(1, "s IN LIST('l')")], SCHEMA, lists=[ri.value_list("l", pa.chunked_array(chunks))])
    assert compiled.match(pa.table({"s": ["a", "b", "z", None]})).to_pylist() == [[1], [], [1], []]


def test_lists_that_cannot_be_made() -> None:
    with pytest.raises(ri.RulesIndexError, match="name"):
        ri.value_list("a b", pa.array([1]))
    with pytest.raises(ri.RulesIndexError, match=r"are a list; make them a pyarrow array"):
        ri.value_list("a", [1])  # type: ignore[arg-type]
    with pytest.raises(ri.RulesIndexError, match="not compared"):
        ri.value_list("a", pa.array([[1]]))
    with pytest.raises(ri.RulesIndexError, match="2 GiB"):
        ri.value_list("a", pa.chunked_array([pa.array(["x" * (1 << 26)])] * 33))
    with pytest.raises(ri.RulesIndexError, match="cannot hold"):
        ri.value_list("a", pa.array([1 << 63], pa.uint64()))


def test_lint_knows_lists() -> None:
    rules = [(1, "who IN LIST('bad')"), (2, "who IN LIST('bad') AND n > 1"), (3, "who IN LIST('bad') AND who IS NULL")]
    found = ri.lint(rules, PEOPLE, lists=[LISTED]).to_pylist()
    assert [(each["rule_id"], each["kind"]) for each in found] == [(2, "implied"), (3, "contradiction")]
    listed, both = [(1, "who IN LIST('bad')"), (2, "n = 3")], [(1, "who IN LIST('bad') AND n > 4"), (2, "n = 3")]
    assert ri.widen(listed, PEOPLE, lists=[LISTED]).sql == "true"
    assert ri.widen(both, PEOPLE, k=1, lists=[LISTED]).sql == "(`n` = 3 OR `n` >= 5)"


@pytest.mark.parametrize(
    "text", ["a IN LIST('x') OR TRUE", "a IN LIST('x') AND FALSE", "a = 1 AND a = 2 AND b IN LIST('x')"]
)
def test_a_list_that_cannot_decide_is_kept(text: str) -> None:
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    lists = [ri.value_list("x", pa.array([1, 2]))]
    compiled = ri.compile_rules([(1, text), (2, "a = 1")], schema, lists=lists)
    expected = ri.compile_rules([(1, text), (2, "a = 2")], schema, lists=lists)
    for each in (compiled, ri.loads(dumps(compiled))):
        assert each.explain({"a": 1, "b": 1}, 1).matched == ("TRUE" in text)
        updated = each.update([(2, "a = 2")])
        assert (updated.rejects.num_rows, updated.fingerprint) == (0, expected.fingerprint)


def test_layers_keep_the_newest_values_of_a_list_that_no_changed_rule_names() -> None:
    schema = pa.schema({"a": pa.int64()})
    rules = [(number, f"a > {number}") for number in range(3000)]
    old, new = (ri.value_list("x", pa.array(values)) for values in ([1], [7]))
    compiled = ri.compile_rules([*rules, (9000, "a IN LIST('x')")], schema, lists=[old])
    layered = ri.loads(dumps(compiled.update([(9000, None)], lists=[new])))
    later = layered.update([(9001, "a IN LIST('x')")])
    expected = ri.compile_rules([*rules, (9001, "a IN LIST('x')")], schema, lists=[new])
    assert later.fingerprint == expected.fingerprint
    assert later.match_one({"a": 7}) == expected.match_one({"a": 7})
