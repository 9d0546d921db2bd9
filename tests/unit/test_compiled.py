"""The library as its users call it: rules in, lists of ids out, mistakes named one by one."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.index.compiled import dumps
from rules_index.language.typed import Leaf

SCHEMA = pa.schema(
    [
        ("a", pa.int32()),
        ("b", pa.int64()),
        ("s", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("wall", pa.timestamp("us")),
        ("nested", pa.struct([("x", pa.int32())])),
    ]
)


def rows(**columns: object) -> pa.Table:
    given = {name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()}
    return pa.table(given)


def test_ids_ascend_and_rows_without_a_match_have_an_empty_list() -> None:
    compiled = ri.compile_rules([("z", "a > 1"), ("é", "a > 1"), ("B", "a > 2"), ("a", "a > 1")], SCHEMA)
    assert compiled.match(rows(a=[1, 2, 3])).to_pylist() == [[], ["a", "z", "é"], ["B", "a", "z", "é"]]
    assert compiled.match(rows(a=[])).to_pylist() == []


def test_integer_ids_give_lists_of_integers() -> None:
    compiled = ri.compile_rules([(10, "a > 1"), (9, "a > 1")], SCHEMA)
    assert compiled.match(rows(a=[2])).type.value_type == pa.int64()
    assert compiled.match(rows(a=[2])).to_pylist() == [[9, 10]]


@pytest.mark.parametrize("frame", [pa.table, pl.DataFrame])
def test_rules_come_as_tables_too(frame: type) -> None:
    rules = frame({"rule_id": ["on", "off", "unset"], "expression": ["a = 1"] * 3, "enabled": [True, False, None]})
    assert ri.compile_rules(rules, SCHEMA).match(rows(a=[1])).to_pylist() == [["on", "unset"]]


def test_mistakes_of_one_rule_touch_no_other() -> None:
    rules = [
        ("good", "a = 1"),
        ("twice", "a = 1"),
        ("twice", "a = 2"),
        ("unknown", "b = 1 AND aa = 1"),
        ("empty", None),
        ("number", "a + 1"),
    ]
    compiled = ri.compile_rules(rules, SCHEMA)
    assert compiled.match(rows(a=[1], b=[1])).to_pylist() == [["good"]]
    rejects = {(r["rule_id"], r["error"], r["position"]) for r in compiled.rejects.to_pylist()}
    assert rejects == {
        ("twice", "DUPLICATE_ID", None),
        ("unknown", "UNKNOWN_COLUMN", 10),
        ("empty", "NO_EXPRESSION", None),
        ("number", "NOT_BOOLEAN", 0),
    }
    assert compiled.rejects.num_rows == 5


def test_mixed_ids_and_missing_columns_are_refused() -> None:
    with pytest.raises(ri.RulesIndexError, match="all strings or all integers"):
        ri.compile_rules([("a", "a = 1"), (1, "a = 1")], SCHEMA)
    with pytest.raises(ri.RulesIndexError, match="no column expression"):
        ri.compile_rules(pa.table({"rule_id": ["a"]}), SCHEMA)
    with pytest.raises(ri.RulesIndexError, match="Its items are dict"):  # not the pair of the keys
        ri.compile_rules([{"rule_id": "a", "expression": "a = 1"}], SCHEMA)
    with pytest.raises(ri.RulesIndexError, match="no engine"):
        ri.compile_rules([("a", "a = 1")], SCHEMA, engine="magic")


def test_batches_of_another_shape_are_refused() -> None:
    compiled = ri.compile_rules([("a", "a = 1 AND nested.x = 2")], SCHEMA)
    with pytest.raises(ri.SchemaError, match="lacks the column a") as lacking:
        compiled.match(pa.table({"b": range(100)}))
    assert lacking.value.__context__ is None
    with pytest.raises(ri.SchemaError, match="compiled for int32"):
        compiled.match(pa.table({"a": [1], "nested": [{"x": 1}]}))
    with pytest.raises(ri.SchemaError, match="no field x"):
        compiled.match(pa.table({"a": pa.array([1], pa.int32()), "nested": [{"y": 1}]}))


def test_batches_without_rows_must_have_the_columns_too() -> None:
    compiled = ri.compile_rules([("a", "a = 1")], SCHEMA)
    assert compiled.match(pa.table({"a": pa.array([], pa.int32())})).to_pylist() == []
    for batch in (pa.table({"b": pa.array([], pa.int32())}), pa.table({"a": pa.array([], pa.int64())}), pa.table({})):
        with pytest.raises(ri.SchemaError, match="column a"):
            compiled.match(batch)


def test_nested_fields_come_within_their_struct_or_alone() -> None:
    compiled = ri.compile_rules([("r", "nested.x = 2")], SCHEMA)
    whole = pa.table({"nested": pa.array([{"x": 2}, None, {"x": None}], SCHEMA.field("nested").type)})
    alone = pa.table({"nested.x": pa.array([2, None, None], pa.int32())})
    assert compiled.match(whole).to_pylist() == compiled.match(alone).to_pylist() == [["r"], [], []]


def test_nested_columns_are_asked_for_null_whatever_their_items_are_called() -> None:
    schema = pa.schema([("items", pa.list_(pa.field("item", pa.int32())))])
    compiled = ri.loads(dumps(ri.compile_rules([("r", "items IS NULL")], schema)))
    for field in (pa.field("item", pa.int32()), pa.field("element", pa.int32(), nullable=False)):
        column = pa.array([[1], None], pa.list_(field))
        assert compiled.match(pa.table({"items": column})).to_pylist() == [[], ["r"]]
    with pytest.raises(ri.SchemaError, match="compiled for list"):
        compiled.match(pa.table({"items": pa.array([{"x": 1}])}))


@pytest.mark.parametrize("engine", ["auto", "scan", "be_tree"])
@pytest.mark.parametrize("array", ["split(s, ',')", "map_keys(m)", "map_values(m)", "filter(items, x -> x > 1)"])
def test_computed_arrays_are_asked_for_null(engine: str, array: str) -> None:
    fields = {"s": pa.string(), "m": pa.map_(pa.string(), pa.int32()), "items": pa.list_(pa.int32())}
    held = pa.table(
        {"s": ["a,b", None, ""], "m": [[("k", 1)], None, []], "items": [[1, 2], None, [None]]}, pa.schema(fields)
    )
    texts = [f"{array} IS NULL", f"{array} IS NOT NULL", f"isnull({array}) OR size({array}) = 9"]
    compiled = ri.compile_rules(list(enumerate(texts)), held.schema, engine=engine)
    assert not compiled.derived and compiled.match(held).to_pylist() == [[1], [0, 2], [1]]
    assert [compiled.match_one(row) for row in held.to_pylist()] == [[1], [0, 2], [1]]


def test_variants_of_types_and_polars_frames_are_accepted() -> None:
    compiled = ri.compile_rules([("r", "s = 'x'")], SCHEMA)
    for column in (pa.array(["x", "y"], pa.large_string()), pa.array(["x", "y"]).dictionary_encode()):
        assert compiled.match(pa.table({"s": column, "other": [1, 2]})).to_pylist() == [["r"], []]
    assert compiled.match(pl.DataFrame({"s": ["x", "y"]})).to_pylist() == [["r"], []]


@pytest.mark.parametrize(
    ("data_type", "values", "rule"),
    [
        (pa.uint8(), [3, 200], "c > 5"),
        (pa.uint16(), [3, 60_000], "c > 5"),
        (pa.uint32(), [3, 2**32 - 1], "c > 5"),
        (pa.uint64(), [3, 2**64 - 1], "c > 5"),
        (pa.float16(), [0.5, 2.5], "c > 1"),
        (pa.decimal32(5, 2), [Decimal("0.50"), Decimal("2.50")], "c > 1"),
        (pa.decimal256(20, 2), [Decimal("0.50"), Decimal("2.50")], "c > 1"),
        (pa.timestamp("s"), [0, 1_704_067_201], "c > TIMESTAMP_NTZ'2024-01-01'"),
        (pa.timestamp("ms", "UTC"), [0, 1_704_067_200_001], "c > TIMESTAMP'2024-01-01'"),
        (pa.timestamp("ns", "Asia/Tokyo"), [0, 1_704_067_200_000_001_000], "c > TIMESTAMP'2024-01-01'"),
        (pa.date64(), [0, 1_704_153_600_000], "c > DATE'2024-01-01'"),
        (pa.list_(pa.int32(), 2), [None, [1, 2]], "c IS NOT NULL"),
    ],
)
def test_types_that_spark_holds_as_another_are_matched_as_that(data_type: pa.DataType, values: list, rule: str) -> None:
    for kind, wrap, text in (
        (data_type, list, rule),
        (pa.struct([("c", data_type)]), lambda each: [{"c": value} for value in each], rule.replace("c ", "s.c ", 1)),
    ):
        name = "s" if pa.types.is_struct(kind) else "c"
        compiled = ri.compile_rules([("r", text)], pa.schema([(name, kind)]))
        assert not compiled.rejects.num_rows
        assert compiled.match(pa.table({name: pa.array(wrap(values), kind)})).to_pylist() == [[], ["r"]]


def test_what_is_finer_than_a_microsecond_is_refused() -> None:
    compiled = ri.compile_rules([("r", "c > TIMESTAMP_NTZ'2024-01-01'")], pa.schema([("c", pa.timestamp("ns"))]))
    with pytest.raises(ri.SchemaError, match="column c is timestamp"):
        compiled.match(pa.table({"c": pa.array([1], pa.timestamp("ns"))}))


def test_an_unknown_time_zone_is_refused() -> None:
    for zone in ("Nope/Zone", ""):
        with pytest.raises(ri.RulesIndexError, match="no time zone"):
            ri.compile_rules([], SCHEMA, time_zone=zone)
    for zone in ("Europe/Berlin", "+02:00", "UTC", "CET"):
        ri.compile_rules([], SCHEMA, time_zone=zone)


def test_rows_on_which_a_predicate_raised_are_counted_for_each_rule() -> None:
    compiled = ri.compile_rules([("sum", "a + 1 > 0"), ("other", "a > 0"), ("either", "a > 5 OR a + 1 > 0")], SCHEMA)
    assert compiled.match(rows(a=[2**31 - 1, 1, None])).to_pylist() == [
        ["either", "other"],
        ["either", "other", "sum"],
        [],
    ]
    assert compiled.errors == {"sum": 1, "either": 1}
    compiled.match(rows(a=[1]))
    assert compiled.errors == {}


def test_derived_columns_are_asked_for_by_name() -> None:
    compiled = ri.compile_rules(
        [
            ("r", "coalesce(cbrt(a) > 1, a > 7) IS TRUE"),
            ("not", "NOT (coalesce(cbrt(a) > 1, a > 7) IS TRUE)"),
        ],
        SCHEMA,
    )
    (leaf,) = compiled.derived
    plain = pa.table({leaf.name: [True, False, None]})
    assert compiled.match(plain).to_pylist() == [["r"], ["not"], ["not"]]
    coded = pa.table({leaf.name: pa.array([1, 0, 2, 3], pa.int8())})
    assert compiled.match(coded).to_pylist() == [["r"], ["not"], ["not"], []]
    assert compiled.errors == {"not": 1, "r": 1}
    with pytest.raises(ri.SchemaError, match="derived column"):
        compiled.match(pa.table({"b": [1]}))


def test_rules_that_the_analysis_refuses_leave_nothing_behind() -> None:
    ors = " AND ".join(f"(cbrt(a) = {i} OR b = {i} OR a = {i})" for i in range(9))
    rules = [("bad", f"cbrt(b) > 2 AND s = 'x' AND ({ors})"), ("good", "a = 1"), ("other", "cbrt(b) > 3")]
    compiled = ri.compile_rules(rules, SCHEMA, analyse=lambda leaves: ["No such function."] * len(leaves))
    assert [leaf.name for leaf in compiled.inputs] == ["a"]
    assert compiled.match(rows(a=[1, 2])).to_pylist() == [["good"], []]
    rejects = [(r["rule_id"], r["error"], r["message"], r["position"]) for r in compiled.rejects.to_pylist()]
    assert rejects == [("bad", "ANALYSIS", "No such function.", 0), ("other", "ANALYSIS", "No such function.", 0)]
    assert compiled.stats["gates"] == 0


def test_spark_is_not_asked_about_rules_that_are_refused_anyway() -> None:
    asked: list[str] = []

    def analyse(leaves: Sequence[Leaf]) -> list[str | None]:
        asked.extend(leaf.text or "" for leaf in leaves)
        return [None] * len(leaves)

    rules = [("bad", "cbrt(a) > 1 AND missing = 1"), ("good", "cbrt(b) > 1 AND a = 1"), ("same", "cbrt(b) > 1")]
    compiled = ri.compile_rules(rules, SCHEMA, analyse=analyse)
    assert compiled.ids.to_pylist() == ["good", "same"]
    assert asked == ["cbrt(b)"]


def test_a_column_that_cannot_decide_is_not_asked_for() -> None:
    compiled = ri.compile_rules([("never", "a = 1 AND FALSE"), ("same", "b = 1 AND (s = 'x' OR TRUE)")], SCHEMA)
    assert [leaf.name for leaf in compiled.inputs] == ["b"]
    assert compiled.match(rows(b=[1, 2])).to_pylist() == [["same"], []]


@pytest.mark.parametrize("value", ["a / b", "CAST(s AS DOUBLE)", "CAST(to_timestamp(s) AS DATE)"])
def test_try_cast_hides_no_error_of_the_value_that_is_cast(value: str) -> None:
    kind = "DATE" if "DATE" in value else "DOUBLE"
    compiled = ri.compile_rules([("rule", f"coalesce(TRY_CAST({value} AS {kind}) > '1', TRUE)")], SCHEMA)
    assert compiled.match(rows(a=[1], b=[0], s=["x"])).to_pylist() == [[]]
    assert dict(compiled.errors) == {"rule": 1}


def bounded(event_time: str | None, zone: str = "UTC") -> ri.CompiledRules:
    since, until = datetime(2024, 3, 31, 1, tzinfo=UTC), datetime(2024, 3, 31, 2, tzinfo=UTC)
    rules = pa.table(
        {
            "rule_id": ["both", "from", "always"],
            "expression": ["a = 1"] * 3,
            "valid_from": pa.array([since, since, None], pa.timestamp("us", tz="UTC")),
            "valid_to": pa.array([until, None, None], pa.timestamp("us", tz="UTC")),
        }
    )
    return ri.compile_rules(rules, SCHEMA, event_time=event_time, time_zone=zone)


@pytest.mark.parametrize("zone", ["+02:00", "Z", "UTC+1", "GMT-3"])
@pytest.mark.parametrize("kind", ["date", "wall"])
def test_bounds_count_in_zones_of_a_fixed_offset(zone: str, kind: str) -> None:
    """Their local times are those of a region that is as far ahead."""
    region = {"+02:00": "Etc/GMT-2", "Z": "Etc/UTC", "UTC+1": "Etc/GMT-1", "GMT-3": "Etc/GMT+3"}[zone]
    values = pa.array(range(19_800, 19_820), pa.date32())
    if kind == "wall":
        values = pa.array([(19_813 * 24 + hour) * 3_600_000_000 for hour in range(-6, 7)], pa.timestamp("us"))
    schema = pa.schema([("a", pa.int32()), ("at", values.type)])
    table = pa.table({"a": pa.array([1] * len(values), pa.int32()), "at": values})
    since = pa.array([datetime(2024, 3, 31, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    rules = pa.table({"rule_id": [7], "expression": ["a = 1"], "valid_from": since})
    found = [
        ri.compile_rules(rules, schema, event_time="at", time_zone=each).match(table).to_pylist()
        for each in (zone, region)
    ]
    assert found[0] == found[1] and [] in found[0] and [7] in found[0]


def test_a_sample_of_rows_decides_the_engine_and_no_match() -> None:
    """Columns that always agree look selective together, unless rows are seen in which they do."""
    columns = [f"c{i}" for i in range(5)]
    schema = pa.schema([(name, pa.int64()) for name in columns])
    values = np.repeat(np.arange(50), 20)
    rows = pa.table({name: np.tile(values, 5) for name in columns})
    rules = [(i, " AND ".join(f"{name} = {value}" for name in columns)) for i, value in enumerate(values.tolist())]
    guessed = ri.compile_rules(rules, schema)
    sampled = ri.compile_rules(rules, schema, sample=rows.select)
    assert guessed.stats["sampled_rows"] == 0 and sampled.stats["sampled_rows"] == rows.num_rows
    assert guessed.stats["engine_reason"] != sampled.stats["engine_reason"]
    assert sampled.match(rows).equals(guessed.match(rows))
    assert sampled.fingerprint == guessed.fingerprint
    frame = ri.compile_rules(rules, schema, sample=pl.DataFrame(pl.from_arrow(rows)).select)
    assert frame.stats["engine_reason"] == sampled.stats["engine_reason"]


def test_a_sample_lacks_what_only_spark_evaluates() -> None:
    asked: list[list[str]] = []

    def sample(names: list[str]) -> pa.Table | None:
        asked.append(names)
        return pa.table({"a": pa.array(range(100), pa.int32()), "nested": [{"x": 1}] * 100}).cast(
            pa.schema([SCHEMA.field("a"), SCHEMA.field("nested")])
        )

    rules = [("plain", "a > 50 AND nested.x = 1"), ("derived", "soundex(s) = 'A100' AND a < 9")]
    assert ri.compile_rules(rules, SCHEMA, sample=sample).stats["sampled_rows"] == 100
    assert asked == [["a", "nested"]]
    assert ri.compile_rules(rules, SCHEMA, sample=lambda names: None).stats["sampled_rows"] == 0


def test_rows_without_columns_are_as_many_as_they_are() -> None:
    compiled = ri.compile_rules([("all", "TRUE")], pa.schema([("x", pa.int32())]))
    rows = pa.table({"x": pa.array([1, 2], pa.int32())})
    assert compiled.match(rows.select([])).to_pylist() == compiled.match(rows).to_pylist() == [["all"], ["all"]]


def test_validity_is_half_open_on_event_time() -> None:
    at = [datetime(2024, 3, 31, hour, tzinfo=UTC) for hour in (0, 1, 2)]
    found = bounded("at").match(rows(a=[1] * 4, at=[*at, None])).to_pylist()
    assert found == [["always"], ["always", "both", "from"], ["always", "from"], ["always"]]


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_bounds_count_whatever_the_unit_of_the_event_time(unit: str) -> None:
    schema = pa.schema([("a", pa.int32()), ("at", pa.timestamp(unit, "UTC"))])
    since = pa.array([datetime(2024, 3, 31, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    rules = pa.table({"rule_id": ["from"], "expression": ["a = 1"], "valid_from": since})
    compiled = ri.compile_rules(rules, schema, event_time="at")
    at = [datetime(2024, 3, 31, hour, tzinfo=UTC) for hour in (0, 1)]
    assert compiled.match(pa.table({"a": [1, 1], "at": at}).cast(schema)).to_pylist() == [[], ["from"]]
    assert [compiled.explain({"a": 1, "at": each}, "from").matched for each in at] == [False, True]


def test_a_date_stands_for_its_midnight_in_the_time_zone() -> None:
    days = [date(2024, 3, 30), date(2024, 3, 31), date(2024, 4, 1)]
    found = bounded("day", "America/Los_Angeles").match(rows(a=[1] * 3, day=days)).to_pylist()
    assert found == [["always"], ["always", "from"], ["always", "from"]]


def test_a_wall_time_stands_for_its_instant_in_the_time_zone() -> None:
    # clocks in Berlin went from 02:00 to 03:00 at 01:00 UTC; wall times between are an hour later
    walls = [
        datetime(2024, 3, 31, 1, 59),
        datetime(2024, 3, 31, 2, 30),
        datetime(2024, 3, 31, 3, 30),
        datetime(2024, 3, 31, 4),
    ]
    found = bounded("wall", "Europe/Berlin").match(rows(a=[1] * 4, wall=walls)).to_pylist()
    assert found == [["always"], ["always", "both", "from"], ["always", "both", "from"], ["always", "from"]]


@pytest.mark.parametrize("name", ["at.utc", "a`t"])
def test_an_event_time_may_have_any_name(name: str) -> None:
    schema = pa.schema([(name, pa.date32()), ("a", pa.int32())])
    since = pa.array([datetime(2024, 3, 31, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    rules = pa.table({"rule_id": [7], "expression": ["a = 1"], "valid_from": since})
    batch = pa.table({name: [date(2024, 3, 30), date(2024, 3, 31)], "a": [1, 1]}).cast(schema)
    compiled = ri.compile_rules(rules, schema, event_time=name, sample=batch.select)
    for spelling in (name, name.upper()):
        renamed = batch.rename_columns([spelling, "a"])
        assert compiled.match(renamed).to_pylist() == [[], [7]]
        assert [compiled.match_one(row) for row in renamed.to_pylist()] == [[], [7]]
    quoted = name.replace("`", "``")
    assert compiled.match_event(f"`{quoted}` = DATE'2024-03-31' AND a = 1") == [7]


def test_a_bounded_rule_needs_an_event_time() -> None:
    rejects = bounded(None).rejects.to_pylist()
    assert [(r["rule_id"], r["error"]) for r in rejects] == [("both", "NO_EVENT_TIME"), ("from", "NO_EVENT_TIME")]


def test_the_fingerprint_follows_what_decides_a_match() -> None:
    def fingerprint(rules: list[tuple[str, str]], schema: pa.Schema = SCHEMA, zone: str = "UTC") -> str:
        return ri.compile_rules(rules, schema, time_zone=zone).fingerprint

    rules = [("a", "a = 1"), ("b", "b = 1")]
    same = fingerprint(rules)
    assert fingerprint(rules[::-1]) == same
    assert fingerprint(rules, SCHEMA.append(pa.field("more", pa.string()))) == same
    assert fingerprint([("a", "a = 2"), rules[1]]) != same
    assert fingerprint([("c", "a = 1"), rules[1]]) != same
    assert fingerprint(rules, zone="Asia/Tokyo") != same
    assert fingerprint(rules, SCHEMA.set(0, pa.field("a", pa.int64()))) != same


def test_a_rule_that_always_or_never_holds() -> None:
    compiled = ri.compile_rules(
        [("always", "TRUE"), ("never", "FALSE"), ("null", "NULL"), ("is", "a = a OR TRUE")], SCHEMA
    )
    assert compiled.match(pa.table({"a": pa.array([None, 1], pa.int32())})).to_pylist() == [["always", "is"]] * 2


def test_no_rules_at_all() -> None:
    compiled = ri.compile_rules([], SCHEMA)
    assert compiled.match(pa.table({"a": [1, 2]})).to_pylist() == [[], []]
