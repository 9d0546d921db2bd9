"""Rows in any of Arrow's representations match as they do in the plain one."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rules_index as ri
from rules_index.index.compiled import dumps
from rules_index.index.inputs import find_column
from rules_index.index.single_rows import value_in
from rules_index.language.typed import Leaf

LEG = pa.struct({"delay": pa.int32(), "to": pa.string()})
SCHEMA = pa.schema(
    {
        "s": pa.string(),
        "x": pa.binary(),
        "items": pa.list_(pa.int32()),
        "tags": pa.list_(pa.string()),
        "counts": pa.map_(pa.string(), pa.int32()),
        "legs": pa.list_(LEG),
    }
)
RULES = [
    ("s", "s >= 'b'"),
    ("upper", "upper(s) = 'A'"),
    ("x", "x > X'61'"),
    ("first", "items[0] > 1"),
    ("last", "element_at(items, -1) = 2"),
    ("size", "size(items) = 2"),
    ("contains", "array_contains(items, 2)"),
    ("tag", "exists(tags, tag -> tag LIKE 'a%')"),
    ("overlap", "arrays_overlap(tags, array('a', 'b'))"),
    ("count", "counts['a'] > 1"),
    ("key", "map_contains_key(counts, 'b')"),
    ("late", "exists(legs, leg -> leg.delay > 1)"),
    ("all", "forall(legs, leg -> leg.to = 'a')"),
    ("none", "items IS NULL"),
]
ROWS: list[dict[str, Any]] = [
    {"s": "a", "x": b"a", "items": [2, 3], "tags": ["a", None], "counts": [("a", 2), ("b", None)],
     "legs": [{"delay": 2, "to": "a"}]},
    {"s": "", "x": b"", "items": [], "tags": [], "counts": [], "legs": []},
    {"s": None, "x": None, "items": None, "tags": None, "counts": None, "legs": None},
    {"s": "b", "x": b"\xff", "items": [None, 2], "tags": [None, "ab"], "counts": [("a", 1)],
     "legs": [None, {"delay": None, "to": "a"}]},
]  # fmt: skip
TABLE = pa.Table.from_pylist(ROWS * 3, SCHEMA)


@pytest.fixture(scope="module")
def compiled() -> ri.CompiledRules:
    found = ri.compile_rules(RULES, SCHEMA)
    assert not found.rejects.num_rows and not found.derived
    return found


def encoded(values: pa.DataType) -> pa.DataType:
    return pa.dictionary(pa.int8(), values)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("s", encoded(pa.string_view())),
        ("x", encoded(pa.binary_view())),
        ("items", pa.large_list(pa.int32())),
        ("items", pa.list_view(pa.int32())),
        ("items", pa.large_list_view(encoded(pa.int32()))),
        ("tags", pa.list_(pa.string_view())),
        ("tags", pa.list_view(encoded(pa.large_string()))),
        ("counts", pa.map_(pa.string_view(), pa.int32())),
        ("counts", pa.map_(encoded(pa.string()), pa.int32())),
        ("legs", pa.list_(pa.struct({"to": pa.string_view(), "delay": encoded(pa.int32()), "more": pa.int8()}))),
        ("legs", pa.large_list(pa.struct({"To": pa.string(), "DELAY": pa.int32()}))),
    ],
    ids=str,
)
@pytest.mark.parametrize("first", [0, 3])
def test_variants_of_a_column_match_alike(
    column: str, kind: pa.DataType, first: int, compiled: ri.CompiledRules
) -> None:
    varied = _as(TABLE.column(column).to_pylist(), kind)
    table = TABLE.set_column(SCHEMA.get_field_index(column), column, varied).slice(first)
    assert compiled.match(table).to_pylist() == compiled.match(TABLE).to_pylist()[first:]


def _as(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind) and not pa.types.is_integer(kind.value_type):
        distinct = [None, *{value for value in values if value is not None}]
        places = pa.array([distinct.index(value) if value is not None else None for value in values], kind.index_type)
        return pa.DictionaryArray.from_arrays(places, pa.array(distinct, kind.value_type))
    if pa.types.is_map(kind) and pa.types.is_dictionary(kind.key_type):
        plain = pa.array(values, SCHEMA.field("counts").type)
        keys = pc.dictionary_encode(plain.keys).cast(kind.key_type)
        return pa.MapArray.from_arrays(plain.offsets, keys, plain.items, mask=plain.is_null())
    if values[0] and isinstance(values[0][0], dict):
        item = kind.value_type
        spelled = [{name.lower(): name for name in item.names}.get(name.lower(), name) for name in ("delay", "to")]
        values = [
            each and [leg and dict(zip(spelled, (leg["delay"], leg["to"]), strict=True)) for leg in each]
            for each in values
        ]
    return pa.array(values, kind)


@pytest.mark.parametrize("kind", [pa.list_view, pa.large_list_view, pa.large_list])
def test_rules_may_be_compiled_for_any_kind_of_list(kind: Any) -> None:
    items = pa.array([[1, 2], [], None], kind(pa.int32()))
    compiled = ri.compile_rules([(1, "items[0] = 1"), (2, "items IS NULL")], pa.schema({"items": items.type}))
    assert compiled.match(pa.table({"items": items})).to_pylist() == [[1], [], [2]]


@pytest.mark.parametrize("function", ["upper", "lower", "reverse", "trim"])
def test_texts_may_begin_within_their_buffer(function: str) -> None:
    texts = pa.array(["a", "bb", None, "Ccc"] * 5, pa.large_string())
    compiled = ri.compile_rules([(1, f"{function}(s) IN ('BB', 'bb')")], SCHEMA)
    # a slice from a whole byte of validity bits, which Arrow casts to texts without an offset
    assert compiled.match(pa.table({"s": texts.slice(8)})).to_pylist() == [[], [1], [], []] * 3
    assert compiled.match(pl.DataFrame({"s": texts.slice(8)})).to_pylist() == [[], [1], [], []] * 3


def test_arrays_of_a_fixed_size_match_alike() -> None:
    compiled = ri.compile_rules([(1, "items[1] = 2"), (2, "array_contains(items, 3)"), (3, "items IS NULL")], SCHEMA)
    fixed = pa.FixedSizeListArray.from_arrays(
        pa.array([1, 2, 3, 3, 5, None], pa.int32()), 2, mask=pa.array([False, True, False])
    )
    assert compiled.match(pa.table({"items": fixed})).to_pylist() == [[1], [3], []]


def test_a_null_array_may_have_items_behind_it(compiled: ri.CompiledRules) -> None:
    items = pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), pa.array([2, 2, 3, 2], pa.int32()))
    hidden = pa.ListArray.from_arrays(items.offsets, items.values, mask=pa.array([True, False]))
    table = TABLE.slice(1, 2).set_column(2, "items", hidden)
    expected = pa.array([None, [3, 2]], items.type)
    assert compiled.match(table).equals(compiled.match(table.set_column(2, "items", expected)))
    frame = pl.DataFrame({"tags": [["a"], ["a"]], "keep": [True, False]}).select(pl.when("keep").then("tags"))
    rules = ri.compile_rules([(1, "exists(tags, tag -> tag = 'a')"), (2, "array_contains(tags, 'a')")], SCHEMA)
    assert rules.match(frame).to_pylist() == [[1, 2], []]


def test_a_null_map_may_have_entries_behind_it() -> None:
    rules = [(1, "size(map_keys(counts)) = 1"), (2, "array_contains(map_values(counts), 9)")]
    kind = SCHEMA.field("counts").type
    counts = pa.array([[("a", 1)], [("z", 9)], [("c", 3)]], kind)
    hidden = pa.MapArray.from_arrays(counts.offsets, counts.keys, counts.items, mask=pa.array([False, True, False]))
    assert ri.compile_rules(rules, SCHEMA).match(pa.table({"counts": hidden})).to_pylist() == [[1], [], [1]]
    within = pa.StructArray.from_arrays([counts], ["counts"], mask=pa.array([False, True, False]))
    rules = [(number, text.replace("counts", "st.counts")) for number, text in rules]
    compiled = ri.compile_rules(rules, pa.schema({"st": within.type}))
    assert compiled.match(pa.table({"st": within})).to_pylist() == [[1], [], [1]]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("items", pa.nulls(1)),
        ("items", pa.array([[1.5]])),
        ("items", pa.array([[1]], pa.list_(pa.int64()))),
        ("items", pa.array([["1"]])),
        ("items", pa.array([[[1]]])),
        ("counts", pa.array([[("a", "1")]], pa.map_(pa.string(), pa.string()))),
        ("counts", pa.array([[(1, 1)]], pa.map_(pa.int32(), pa.int32()))),
        ("legs", pa.array([[{"delay": "1"}]], pa.list_(pa.struct({"delay": pa.string()})))),
    ],
)
def test_items_of_another_type_are_refused(column: str, values: pa.Array, compiled: ri.CompiledRules) -> None:
    table = TABLE.slice(0, 1).set_column(SCHEMA.get_field_index(column), column, values)
    with pytest.raises(ri.SchemaError, match=f"column {column} is"):
        compiled.match(table)


def test_chunks_may_have_more_values_together_than_their_dictionaries_can_count(compiled: ri.CompiledRules) -> None:
    texts = [str(number) for number in range(200)]
    halves = [pa.array(half).dictionary_encode().cast(encoded(pa.string())) for half in (texts[:100], texts[100:])]
    alone = ri.compile_rules([(1, "s >= '15'")], SCHEMA)
    within = ri.compile_rules([(1, "st.s >= '15'")], pa.schema({"st": pa.struct({"s": pa.string()})}))
    expected = [[1] if text >= "15" else [] for text in texts]
    assert alone.match(pa.table({"s": pa.chunked_array(halves)})).to_pylist() == expected
    structs = [pa.StructArray.from_arrays([half], ["s"]) for half in halves]
    assert within.match(pa.table({"st": pa.chunked_array(structs)})).to_pylist() == expected


def test_columns_of_a_frame_that_no_rule_reads_may_have_types_that_arrow_lacks() -> None:
    frame = pl.DataFrame({"S": ["a", "b"], "wide": [1, 2], "any": [object(), object()]})
    frame = frame.with_columns(pl.col("wide").cast(pl.Int128))
    assert ri.compile_rules([(1, "s = 'b'")], SCHEMA).match(frame).to_pylist() == [[], [1]]
    assert ri.compile_rules([(1, "TRUE")], SCHEMA).match(frame.select("wide").lazy()).to_pylist() == [[1], [1]]
    wide = pa.schema({"wide": pa.int64()})
    with pytest.raises(ri.SchemaError, match="wide Int128"):
        ri.compile_rules([(1, "wide = 1")], wide).match(frame)


@pytest.mark.parametrize("column", ["s", "x"])
def test_addresses_of_python_objects_are_no_values(column: str) -> None:
    alone = ri.compile_rules([(1, f"{column} IS NOT NULL")], SCHEMA)
    frame = pl.DataFrame({column: pl.Series([b"a", None], dtype=pl.Object)})
    with pytest.raises(ri.SchemaError, match=f"column {column} has Python objects"):
        alone.match(frame)


def test_a_field_that_items_of_older_rows_lack_is_null() -> None:
    rules = [("late", "exists(legs, leg -> leg.delay > 1)"), ("unknown", "exists(legs, leg -> leg.to IS NULL)")]
    compiled = ri.compile_rules(rules, SCHEMA)
    legs = pa.array([[{"delay": 2}, None], [], None], pa.list_(pa.struct({"delay": pa.int32()})))
    assert compiled.match(pa.table({"legs": legs})).to_pylist() == [["late", "unknown"], [], []]


def test_a_field_may_have_a_name_that_is_a_path_to_arrow() -> None:
    table = pa.table({"st": [{".x": 1, "[0]": 2}]})
    compiled = ri.compile_rules([(1, "st.`.x` = 1"), (2, "st.`[0]` = 2")], table.schema)
    assert compiled.match(table).to_pylist() == [[1, 2]]


def test_columns_and_fields_may_have_any_name() -> None:
    names = ["", "*", "^.*$", "a.b", "a`b", "İ", "ſ", "s\n"]
    schema = pa.schema(
        [*((name, pa.int32()) for name in names), ("st", pa.struct([(name, pa.int32()) for name in names]))]
    )
    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    rules = [*((place, f"{name} = {place}") for place, name in enumerate(quoted))]
    rules += [(place + 100, f"st.{name} + 1 = {place + 1}") for place, name in enumerate(quoted)]
    row = {name: place for place, name in enumerate(names)}
    row["st"] = dict(row)
    table = pa.Table.from_pylist([row], schema)
    frame = pl.DataFrame(row | {"st": [row["st"]]}, dict.fromkeys(names, pl.Int32) | {"st": pl.Struct})
    frame = frame.cast({"st": pl.Struct(dict.fromkeys(names, pl.Int32))})
    compiled = ri.compile_rules(rules, schema)
    for index in (compiled, ri.loads(dumps(compiled))):
        for batch in (table, frame):
            assert index.match(batch).to_pylist() == [[rule_id for rule_id, _ in rules]]
        assert index.match_one(row) == [rule_id for rule_id, _ in rules]
        assert all(index.explain(row, rule_id).matched for rule_id, _ in rules)


@pytest.mark.parametrize("names", [["s", "s"], ["S", "S"], ["S", "s", "s"]])
def test_a_column_that_a_batch_has_several_times_is_told(names: list[str]) -> None:
    table = pa.Table.from_arrays([pa.array(["a"])] * len(names), names=names)
    with pytest.raises(ri.SchemaError, match="several columns s"):
        ri.compile_rules([(1, "s = 'a'")], SCHEMA).match(table)


@pytest.mark.parametrize("kind", [pa.decimal128(5, -2), pa.decimal128(3, 5), pa.decimal256(40, 2)], ids=str)
def test_decimals_that_spark_lacks_are_left_to_it(kind: pa.DataType) -> None:
    compiled = ri.compile_rules([(1, "d > 1")], pa.schema({"d": kind}))
    assert [leaf.text for leaf in compiled.derived] == ["d > 1"]


def zeros(lengths: list[int], kind: pa.DataType) -> pa.Array:
    """Texts of so many NUL characters, which take memory only where they are read."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    width = np.int64 if kind == pa.large_string() else np.int32
    buffers = [None, pa.py_buffer(offsets.astype(width)), pa.py_buffer(np.zeros(offsets[-1], np.uint8))]
    return pa.Array.from_buffers(kind, len(lengths), buffers)


def test_a_batch_may_have_more_texts_than_an_array_can_hold() -> None:
    compiled = ri.compile_rules([("some", "s IS NOT NULL"), ("none", "s IS NULL")], pa.schema({"s": pa.string()}))
    half = zeros([1 << 29, 1 << 29], pa.string())
    rows = pa.table({"s": pa.chunked_array([half, half])})
    assert compiled.match(rows).to_pylist() == [["some"]] * 4


def test_rows_may_lie_behind_more_texts_than_an_array_can_hold() -> None:
    compiled = ri.compile_rules([("two", "length(s) = 2")], pa.schema({"s": pa.string()}))
    rows = pa.table({"s": zeros([1 << 31, 2, 3], pa.large_string())})
    assert compiled.match(rows.slice(1)).to_pylist() == [["two"], []]


def test_finding_a_column_does_not_take_longer_in_a_wide_table() -> None:
    names = [f"c{number}" for number in range(2_000)]
    row = dict.fromkeys(names, 1)
    wide = pa.table({name: [1] for name in names})
    nested = pa.table({"s": wide.to_struct_array().combine_chunks()})
    started = time.process_time()
    for name in names:
        assert find_column(wide, Leaf(f"`{name}`", pa.int64())).equals(pa.array([1]))
        assert find_column(nested, Leaf(f"s.`{name}`", pa.int64())).equals(pa.array([1]))
        assert (
            value_in(row, Leaf(f"`{name}`", pa.int64())) == value_in({"s": row}, Leaf(f"s.`{name}`", pa.int64())) == 1
        )
    # listing the names for each of them takes 20 s
    assert time.process_time() - started < 2


def test_chunks_may_hold_dictionaries_of_half_floats() -> None:
    half = pa.float16()
    first = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array([0.5, 2.5], half))
    second = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), pa.array([2.5, 0.5], half))

    def lists(items: pa.Array) -> pa.Array:
        return pa.ListViewArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array([1, 1, 1], pa.int32()), items)

    for rule, plain, form in (
        ("v = 0.5D", half, lambda items: items),
        ("v.f = 0.5D", pa.struct({"f": half}), lambda items: pa.StructArray.from_arrays([items], ["f"])),
        ("array_contains(v, CAST(0.5 AS FLOAT))", pa.list_(half), lists),
    ):
        compiled = ri.compile_rules([(1, rule)], pa.schema({"v": plain}))
        assert not compiled.derived
        table = pa.table({"v": pa.chunked_array([form(first), form(second)])})
        assert compiled.match(table).to_pylist() == [[1], [], []] * 2, rule


def test_structs_may_be_dictionary_encoded() -> None:
    structs = pa.array([{"a": 1}, {"a": 2}, None], pa.struct({"a": pa.int32()}))
    encoded_structs = pa.DictionaryArray.from_arrays(pa.array([1, 0, 2, None], pa.int8()), structs)
    compiled = ri.compile_rules([(1, "st.a = 2"), (2, "st IS NULL")], pa.schema({"st": structs.type}))
    assert compiled.match(pa.table({"st": encoded_structs})).to_pylist() == [[1], [], [2], [2]]


def test_structs_in_a_list_may_hold_large_lists() -> None:
    narrow, wide = (pa.list_(pa.struct({"a": kind})) for kind in (pa.list_(pa.int32()), pa.large_list(pa.int32())))
    compiled = ri.compile_rules([(1, "size(legs) = 1")], pa.schema({"legs": narrow}))
    legs = [[{"a": [1, 2]}], None, []]
    assert compiled.match(pa.table({"legs": pa.array(legs, wide)})).to_pylist() == [[1], [], []]
