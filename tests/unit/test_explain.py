"""Why rules match rows: every verdict is that of `match`, and every near miss matches once it is made."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.index.compiled import dumps
from tests.cases import SOAK
from tests.random_expressions import Grammar
from tests.random_rows import rows
from tests.unit.explained import ROW, SCHEMA, drawn, explained

PAIRS = 10_000 if SOAK else 500
INDEXES, RULES, ROWS = 20, 25, 40


@pytest.mark.slow
def test_every_verdict_is_that_of_match_and_every_near_miss_matches() -> None:
    draw, texts = random.Random(5), Grammar(6)
    verdicts = {True: 0, False: 0, None: 0, "error": 0}
    told = 0
    for number in range(INDEXES):
        table = rows(ROWS, number).drop_columns(["pk"])
        rules = [(f"r{rule}", texts.rule()) for rule in range(RULES)]
        compiled = ri.loads(dumps(ri.compile_rules(rules, table.schema, time_zone="Europe/Berlin")))
        listed = table.to_pylist()
        table = with_derived(compiled, table, listed, draw)
        expected = [set(ids) for ids in compiled.match(table).to_pylist()]
        for pair in range(PAIRS // INDEXES):
            place, rule = draw.randrange(ROWS), draw.choice(compiled.ids.to_pylist())
            found = compiled.explain(listed[place], rule)
            assert found.matched == (rule in expected[place]), str(found)
            assert found.matched == (found.value is True)
            verdicts[found.value] += 1
            if found.matched:
                assert found.near_miss is None
                assert not any(part.stands_alone for part in found.predicates)
            elif pair % 4 == 0 and found.near_miss is not None:
                changes = {change.column: change.after for change in found.near_miss}
                assert 1 <= len(changes) <= 2
                assert rule in compiled.match_one(listed[place] | changes), str(found)
                told += 1
    assert min(verdicts.values()) > PAIRS // 200 and told > PAIRS // 50


def test_a_text_shows_the_parts_that_decide_and_counts_the_others() -> None:
    """A rule of a thousand parts would fill many screens."""
    others = [f"(s = 'x{number}' AND i > {number})" for number in range(1000)]
    compiled = ri.compile_rules(
        [(1, " OR ".join([*others, "s = 'a'"]))], pa.schema({"s": pa.string(), "i": pa.int32()})
    )
    found = compiled.explain({"s": "a", "i": 0}, 1)
    lines = str(found).splitlines()
    assert len(lines) < 70 and len(found.predicates) == 2001
    assert any("true   s = 'a'" in line for line in lines) and lines[-1] == "└─ 981 more: 981 false"
    near = str(compiled.explain({"s": "b", "i": 0}, 1)).splitlines()
    assert len(near) < 70 and any("false  s = 'a'" in line and "to change this alone" in line for line in near)
    every = compiled.explain({"s": "b", "i": 0}, 1).as_dict()
    assert len(every["children"]) == 1001


def with_derived(compiled: Any, table: pa.Table, listed: list[dict[str, Any]], draw: random.Random) -> pa.Table:
    """The rows with what only Spark evaluates made up, in the list of them too."""
    for leaf in compiled.derived:
        values = [drawn(leaf, draw) for _ in listed]
        for row, (value, _) in zip(listed, values, strict=True):
            row[leaf.name] = value
        kind = pa.int8() if pa.types.is_boolean(leaf.type) else pa.struct([pa.field("value", leaf.type)])
        table = table.append_column(leaf.name, pa.array([given for _, given in values], kind))
    return table


CASES: list[tuple[str, dict[str, Any], Any]] = [
    ("i > 2", {}, True),
    ("i > 2", {"i": None}, None),
    ("f = double('NaN')", {"f": float("nan")}, True),
    ("f > 1e308", {"f": float("nan")}, True),
    ("f < double('NaN')", {}, True),
    ("m = 10", {}, True),
    ("m > 10.0005", {}, False),
    ("wide >= 10.00", {}, True),
    ("wide = 12345678901234567890123456.78", {"wide": Decimal("12345678901234567890123456.78")}, True),
    ("d >= DATE'2024-02-29'", {}, False),
    ("i IN (1, 2, NULL)", {}, None),
    ("i IN (3, NULL)", {}, True),
    ("i NOT IN (1, NULL)", {}, None),
    ("NOT (NOT (NOT (i = 3)))", {}, False),
    ("NOT (i = 3 AND NOT (s = 'abc' OR j > 1))", {}, True),
    ("NOT (i = 3 AND j > 1)", {}, None),
    ("CASE WHEN j IS NULL THEN i = 3 ELSE b END", {}, True),
    ("CASE i WHEN 1 THEN FALSE WHEN 3 THEN NULL ELSE TRUE END", {}, None),
    ("i + 2147483647 > 0", {}, "error"),
    ("i + 2147483647 > 0 AND s = 'x'", {}, False),
    ("i + 2147483647 > 0 OR j = 1", {}, "error"),
    ("NOT i + 2147483647 > 0", {}, "error"),
    ("st.x = 1 AND st.`y z` IS NULL", {}, True),
    ("st.x = 1", {"st": None}, None),
    ("list IS NULL", {}, False),
    ("bin = X'01'", {}, True),
    ("`odd.name` <=> NULL", {}, False),
    ("b IS NOT TRUE", {"b": None}, True),
    ("TRUE", {}, True),
    ("1 = 2", {}, False),
    ("NULL AND i = 3", {}, None),
    ("s LIKE 'a%' AND s RLIKE 'c$'", {}, True),
    ("(i, s) IN ((3, 'abc'), (4, 'x'))", {}, True),
]


@pytest.mark.parametrize(("text", "row", "value"), CASES)
def test_a_rule_has_the_value_that_sql_gives_it(text: str, row: dict[str, Any], value: Any) -> None:
    found = explained(text, row)
    assert (found.value, found.matched, found.text) == (value, value is True, text)


def test_the_zone_of_the_rules_decides_what_a_time_is() -> None:
    # clocks in Berlin went from 02:00 to 03:00 at 01:00 UTC of that day
    text = "ts >= TIMESTAMP'2024-03-31 01:30:00'"
    assert explained(text, zone="UTC").value is False
    assert explained(text, zone="Europe/Berlin").value is True
    found = explained("ts > TIMESTAMP'2024-03-31 03:00:00'", zone="Europe/Berlin").near_miss
    assert str(found[0].after) == "2024-03-31 03:00:00.000001+02:00"
    assert explained("ntz = ts", zone="Europe/Berlin").value is False  # 02:30 is 03:30 there


def test_parts_are_the_texts_of_the_author_with_their_values() -> None:
    text = "i  > 5 AND /* why */ (s = 'it''s'\n OR NOT (st.x) < i) -- the end"
    found = explained(text)
    assert [part.text for part in found.children] == ["i  > 5", "s = 'it''s'\n OR NOT (st.x) < i"]
    equal, negation = found.children[1].children
    assert (equal.text, dict(equal.values), equal.value) == ("s = 'it''s'", {"s": "abc"}, False)
    assert (negation.text, negation.operator) == ("NOT (st.x) < i", "NOT")
    (less,) = negation.children
    assert (less.text, dict(less.values), less.value) == ("(st.x) < i", {"st.x": 1, "i": 3}, True)
    assert [part.text for part in found.predicates] == ["i  > 5", "s = 'it''s'", "(st.x) < i"]
    assert found.as_dict()["children"][0] == {"text": "i  > 5", "value": False, "values": {"i": 3}, "children": []}
    assert str(found).splitlines()[:2] == ["rule r does not match", "false  AND"]
    assert "s = 'abc'" in str(found)


def test_what_only_spark_evaluates_is_given_and_told() -> None:
    compiled = ri.compile_rules([("r", "json_array_length(s) = 5 OR find_in_set(s, s) > i")], SCHEMA)
    names = {leaf.text: leaf.name for leaf in compiled.derived}
    row = {**ROW, names["json_array_length(s)"]: ArithmeticError(), names["find_in_set(s, s) > i"]: 1}
    found = compiled.explain(row, "r")
    assert found.matched == (compiled.match_one(row) == ["r"]) and found.matched
    assert found.children[0].value == "error"
    assert dict(found.children[0].computed) == {"json_array_length(s)": "error"}
    assert dict(found.children[1].values) == {"s": "abc", "i": 3}
    with pytest.raises(ri.SchemaError, match="lacks the derived column"):
        compiled.explain(ROW, "r")


def test_a_lambda_reads_columns_and_not_its_own_variables() -> None:
    found = explained("exists(list, i -> i > j)", derived=2)
    assert dict(found.values) == {"list": [1], "j": None} and found.value is None


def bounded(kind: pa.DataType, zone: str) -> Any:
    schema = pa.schema({"t": kind, "x": pa.int32()})
    bounds = {"valid_from": datetime(2024, 1, 1, tzinfo=UTC), "valid_to": datetime(2024, 2, 1, tzinfo=UTC)}
    rules = pa.table(
        {"rule_id": ["r"], "expression": ["x = 1"]}
        | {n: pa.array([b], pa.timestamp("us", "UTC")) for n, b in bounds.items()}
    )
    return ri.loads(dumps(ri.compile_rules(rules, schema, event_time="t", time_zone=zone)))


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "+05:30"])
@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()])
def test_validity_is_a_part_of_the_tree(kind: pa.DataType, zone: str) -> None:
    compiled = bounded(kind, zone)
    moments: list[Any] = [
        datetime(2024, month, day, hour) for month in (1, 2) for day in (1, 2) for hour in (0, 1, 5, 23)
    ]
    moments += [datetime(2023, 12, 31, hour) for hour in (18, 19, 23)]
    if kind == pa.date32():
        moments = [moment.date() for moment in moments]
    elif kind.tz is not None:
        moments = [moment.replace(tzinfo=UTC) for moment in moments]
    values = set()
    for moment in [*moments, None]:
        found = compiled.explain({"t": moment, "x": 1}, "r")
        assert found.matched == (compiled.match_one({"t": moment, "x": 1}) == ["r"])
        rule, since, until = found.children
        assert rule.value is True and dict(since.values) == dict(until.values) == {"t": moment}
        assert since.text.startswith("t >= TIMESTAMP'") and until.text.startswith("t < TIMESTAMP'")
        assert (since.value is None) == (until.value is None) == (moment is None)
        values.add((since.value, until.value))
    assert values >= {(True, True), (False, True), (True, False), (None, None)}


def test_an_unknown_rule_and_a_rejected_one_are_told() -> None:
    compiled = ri.compile_rules([("good", "i > 1"), ("bad", "nothing > 1")], SCHEMA)
    with pytest.raises(ri.UnknownRuleError, match="has no rule 'other'"):
        compiled.explain(ROW, "other")
    with pytest.raises(ri.UnknownRuleError, match=r"did not compile .UNKNOWN_COLUMN"):
        compiled.explain(ROW, "bad")
    for odd in (7, None, True, "\ud800"):
        with pytest.raises(ri.RulesIndexError):
            compiled.explain(ROW, odd)
    numbered = ri.compile_rules([(7, "i > 1")], SCHEMA)
    assert numbered.explain(ROW, 7).matched
    for odd in ("7", 1 << 80, True):
        with pytest.raises(ri.UnknownRuleError):
            numbered.explain(ROW, odd)


def test_an_index_without_texts_matches_and_says_why_it_explains_nothing() -> None:
    compiled = ri.compile_rules([(number, f"i > {number}") for number in range(5_000)], SCHEMA)
    loaded = ri.loads(dumps(compiled))
    for number in (0, 2_047, 2_048, 4_999):
        assert loaded.explain(ROW, number).text == f"i > {number}"
    loaded.texts = None
    bare = ri.loads(dumps(loaded))
    assert bare.match_one(ROW) == [0, 1, 2] == compiled.match_one(ROW)
    with pytest.raises(ri.RulesIndexError, match="compile the rules again"):
        bare.explain(ROW, 1)


def test_bytes_that_are_no_texts_are_an_error_of_the_artifact() -> None:
    compiled = ri.compile_rules([("r", "i > 1")], SCHEMA)
    assert compiled.texts is not None
    for schema, blocks in ((b"", compiled.texts.blocks), (compiled.texts.schema, [b"none"])):
        compiled.texts = type(compiled.texts)(schema, blocks)
        with pytest.raises(ri.ArtifactError, match="is damaged"):
            ri.loads(dumps(compiled)).explain(ROW, "r")
