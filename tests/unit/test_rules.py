"""Rules arrive as tables or pairs; what of a row is wrong is told, and touches no other row."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.compiling.fingerprint import fingerprint, rule_digests
from rules_index.compiling.rule_columns import RuleColumns, Rules, read_rules
from rules_index.index.annotate import Annotate
from rules_index.language.typed import Leaf


def read(rules: Rules, zone: str = "UTC") -> tuple[dict[Any, str], list[tuple[Any, str]]]:
    """The accepted rules in their order, and (id, error) of the others."""
    columns, rejects = read_rules(rules, zone)
    accepted = dict(zip(columns.ids.to_pylist(), columns.expressions.to_pylist(), strict=True))
    return accepted, sorted(((row[0], row[1]) for row in rejects.rows), key=str)


def forms(rows: list[tuple[Any, str | None]]) -> Iterable[Rules]:
    ids, texts = zip(*rows, strict=True)
    table = pa.table({"rule_id": pa.array(ids), "expression": pa.array(texts, pa.string())})
    yield rows
    yield iter(rows)
    yield table
    yield pa.concat_tables([table.slice(0, 1), table.slice(1)])
    yield table.to_batches()[0]
    yield pl.DataFrame(pl.from_arrow(table))
    for data_type in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        yield table.set_column(1, "expression", table["expression"].cast(data_type))
    # as Arrow gets the categories of a Polars frame
    yield pa.table([_categories(table[name]) for name in table.column_names], table.column_names)


def _categories(column: pa.ChunkedArray) -> pa.Array:
    codes = column.combine_chunks().dictionary_encode()
    if not pa.types.is_string(column.type):
        return codes
    return pa.DictionaryArray.from_arrays(codes.indices, codes.dictionary.cast(pa.string_view()))


@pytest.mark.parametrize("convert", [str, int])
def test_each_row_that_is_refused_is_told_apart(convert: type) -> None:
    texts = [("3", "c"), ("1", "a"), ("2", "x"), ("2", "y"), ("2", "x"), (None, "n"), ("5", None), ("4", "d")]
    rows = [(None if rule_id is None else convert(rule_id), text) for rule_id, text in texts]
    for rules in forms(rows):
        accepted, refused = read(rules)
        assert list(accepted.items()) == [(convert("1"), "a"), (convert("3"), "c"), (convert("4"), "d")]
        assert refused == sorted(
            [(convert("2"), "DUPLICATE_ID")] * 3 + [(convert("5"), "NO_EXPRESSION"), (None, "NO_ID")], key=str
        )


def test_an_id_that_is_too_long_refuses_its_own_rule() -> None:
    longest = "\U0001f600" * 1_000
    for rules in forms([("a", "x"), (longest, "y"), ("b" * 1_001, "z"), (None, "x")]):
        accepted, refused = read(rules)
        assert accepted == {"a": "x", longest: "y"}
        assert refused == [("b" * 1_001, "TOO_LONG"), (None, "NO_ID")]


def test_ids_ascend_by_code_point() -> None:
    names = ["", "a", "B", "é", "😀", "\uffff", "a\0", "aa"]
    assert list(read([(name, "x") for name in names])[0]) == sorted(names)


def test_disabled_rules_do_not_count() -> None:
    table = pa.table({"rule_id": ["a", "a", "b"], "expression": ["x", "y", "z"], "enabled": [True, False, None]})
    assert read(table) == ({"a": "x", "b": "z"}, [])


@pytest.mark.parametrize("ids", [["a", 1], [1.5, 2.5], [True, False], [b"a", b"b"]])
def test_ids_of_other_types_are_refused_as_a_whole(ids: list[Any]) -> None:
    with pytest.raises(ri.RulesIndexError, match="Rule ids must be all strings or all integers"):
        read(zip(ids, ["x", "y"], strict=True))


def test_columns_of_other_types_are_refused_as_a_whole() -> None:
    with pytest.raises(ri.RulesIndexError, match="column expression is int64"):
        read(pa.table({"rule_id": ["a"], "expression": [1]}))
    with pytest.raises(ri.RulesIndexError, match="no column expression"):
        read(pa.table({"rule_id": ["a"]}))
    with pytest.raises(ri.RulesIndexError, match="valid_to is string"):
        read(pa.table({"rule_id": ["a"], "expression": ["x"], "valid_to": ["2024"]}))


def test_half_a_surrogate_pair_refuses_its_own_rule() -> None:
    compiled = ri.compile_rules([("a", "x = 1"), ("b", "x = '\ud800'")], pa.schema([("x", pa.int32())]))
    assert compiled.ids.to_pylist() == ["a"]
    (row,) = compiled.rejects.to_pylist()
    assert (row["rule_id"], row["error"], row["position"]) == ("b", "SYNTAX", 5)


def not_utf8(texts: list[bytes]) -> pa.Array:
    return pa.array(texts, pa.binary()).view(pa.string())


def test_a_text_that_is_no_text_refuses_its_own_rule() -> None:
    ids, texts = not_utf8([b"a", b"\xff", b"c"]), not_utf8([b"x = 1", b"x = 2", b"x = '\xff'"])
    schema = pa.schema([("x", pa.int32())])
    for rules in (
        pa.table({"rule_id": ids, "expression": texts}),
        [("a", "x = 1"), ("\ud800", "x = 2"), ("c", "x = '\ud800'")],
    ):
        compiled = ri.compile_rules(rules, schema)
        assert compiled.ids.to_pylist() == ["a"]
        rejects = [(row["rule_id"], row["error"]) for row in compiled.rejects.to_pylist()]
        assert rejects == [(None, "NO_ID"), ("c", "SYNTAX")]
        newer = ri.compile_rules([("c", "x = 3")], schema).update(rules)
        assert (newer.ids.to_pylist(), newer.rejects.num_rows) == (["a"], 2)


@pytest.mark.parametrize(
    "rules",
    [
        None, 5, "a > 1", b"a > 1", {"a": "x = 1"}, ["a > 1"], ["a>"], [("a",)], [("a", "x = 1", 2)], [5],
        pd.DataFrame({"rule_id": ["a"], "expression": ["x = 1"]}),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_table_and_no_pairs_is_told(rules: Any) -> None:
    schema = pa.schema([("x", pa.int32())])
    compiled = ri.compile_rules([("a", "x = 1")], schema)
    for read_by in (
        lambda: ri.compile_rules(rules, schema),
        lambda: ri.lint(rules, schema),
        lambda: compiled.update(rules),
    ):
        with pytest.raises(ri.RulesIndexError, match=f"pairs .*; these are a {type(rules).__name__}"):
            read_by()


@pytest.mark.parametrize("name", ["rule_id", "expression", "enabled", "valid_from", "priority"])
def test_a_column_that_rules_have_twice_is_told(name: str) -> None:
    columns = {"rule_id": ["a"], "expression": ["x"], "enabled": [True], "valid_from": pa.nulls(1), "priority": [1]}
    table = pa.table(columns)
    with pytest.raises(ri.RulesIndexError, match=f"2 columns {name}"):
        read_rules(table.append_column(name, table.column(name)), "UTC", Annotate())


def test_arguments_of_another_type_are_told() -> None:
    schema = pa.schema([("x", pa.int32())])
    with pytest.raises(ri.RulesIndexError, match=r"must be a pyarrow.Schema, not Schema"):
        ri.compile_rules([], pl.Schema({"x": pl.Int32}))  # type: ignore[arg-type]
    with pytest.raises(ri.RulesIndexError, match="no time zone None"):
        ri.compile_rules([], schema, time_zone=None)  # type: ignore[arg-type]
    with pytest.raises(ri.RulesIndexError, match="column 5 is not in the schema"):
        ri.compile_rules([], schema, event_time=5)  # type: ignore[arg-type]
    with pytest.raises(ri.RulesIndexError, match="annotate must be an Annotate, not bool"):
        ri.compile_rules([], schema, annotate=True)  # type: ignore[arg-type]
    for lists in (["names"], {"names": ["a"]}):
        with pytest.raises(ri.RulesIndexError, match="A list of values is a ValueList, not str"):
            ri.compile_rules([], schema, lists=lists)  # type: ignore[arg-type]
        with pytest.raises(ri.RulesIndexError, match="A list of values is a ValueList, not str"):
            ri.compile_rules([], schema).update([], lists=lists)
    with pytest.raises(ri.RulesIndexError, match="expressions of rules must be strings"):
        ri.compile_rules([("a", "x = '\ud800'"), ("b", 5)], schema)  # type: ignore[list-item]
    with pytest.raises(ri.RulesIndexError, match="more Int128"):
        ri.compile_rules(pl.DataFrame({"rule_id": [1], "expression": ["x = 1"], "more": [1 << 70]}), schema)


def test_ids_may_be_scalars_of_numpy() -> None:
    schema = pa.schema([("x", pa.int32())])
    assert ri.compile_rules([(np.str_("a"), "x = 1")], schema).ids.to_pylist() == ["a"]
    numbered = ri.compile_rules([(np.int64(7), "x = 1")], schema)
    assert numbered.explain({"x": 1}, np.int64(7)).matched


@pytest.mark.parametrize("zone", ["UTC", "+01:00", "-01:00", "Europe/Berlin"])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("own", [None, "UTC"])
def test_bounds_beyond_all_times_bound_nothing_or_everything(zone: str, unit: str, own: str | None) -> None:
    ends = pa.array([-(2**63), 2**63 - 1, None], pa.int64()).cast(pa.timestamp(unit, own))
    rules = pa.table({"rule_id": [1, 2, 3], "expression": ["TRUE"] * 3, "valid_from": ends})
    schema = pa.schema({"t": pa.timestamp("us", "UTC")})
    compiled = ri.compile_rules(rules, schema, event_time="t", time_zone=zone)
    rows = pa.table([pa.array([-(2**62), 0, 2**62], schema.field("t").type)], schema)
    assert compiled.match(rows).to_pylist() == [[1, 3]] * 3


def test_bounds_before_1970_keep_their_fractions() -> None:
    moment = datetime(1960, 1, 1, 12, 0, 0, 250_000)
    columns, _ = read_rules(
        pa.table({"rule_id": ["a"], "expression": ["x"], "valid_from": [moment]}), "America/New_York"
    )
    expected = (moment.replace(tzinfo=ZoneInfo("America/New_York")) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )
    assert columns.validity(0) == (expected, None)


def test_bounds_without_a_zone_are_in_the_rules_zone() -> None:
    noon = datetime(2024, 7, 1, 12)
    for values, hour in (([noon], 10), ([noon.replace(tzinfo=UTC)], 12)):
        rules = pa.table({"rule_id": ["a"], "expression": ["x"], "valid_from": values, "valid_to": [None]})
        for zone in ("Europe/Berlin", "+02:00"):
            columns, _ = read_rules(rules, zone)
            assert columns.validity(0) == (int(datetime(2024, 7, 1, hour, tzinfo=UTC).timestamp()) * 1_000_000, None)
            assert columns.bounded.tolist() == [True]


def test_the_fingerprint_hashes_the_digests_of_a_line_of_json_for_each_rule() -> None:
    random.seed(1)
    pieces = ["a = 1", " ", "\n", "'é'", '"', "\\", "\t", "😀", "\x7f", "\x1f", "\u00a0", "]", "/", "x" * 50]
    texts = ["".join(random.choices(pieces, k=random.randint(0, 4))) for _ in range(3000)]
    moments = [None if random.random() < 0.5 else random.randrange(-(2**62), 2**62) for _ in texts]
    inputs = [Leaf("a", pa.int32()), Leaf("derived_1", pa.bool_(), 'f("é")')]
    settings = [1, "Europe/Berlin", None]
    numbers = list(range(-1500, 1500))
    for ids, array in ((numbers, pa.array(numbers)), ([f"{t}{i}" for i, t in enumerate(texts)], None)):
        names = pa.array(ids) if array is None else array
        for since in (None, pa.array(moments, pa.int64())):
            bounds = [None] * len(texts) if since is None else moments
            lines: list[list[Any]] = [[*settings, 2], *([leaf.name, str(leaf.type), leaf.text] for leaf in inputs)]
            expected = hashlib.sha256("".join(json.dumps(line) + "\n" for line in lines).encode())
            for rule_id, text, at in zip(ids, texts, bounds, strict=True):
                line = json.dumps([rule_id, text.strip(), at, None]) + "\n"
                expected.update(hashlib.sha256(line.encode()).digest()[:16])
            digests = rule_digests(RuleColumns(names, pa.array(texts, pa.large_string()), since, None))
            assert fingerprint([digests], settings, inputs) == expected.hexdigest()
            assert fingerprint([digests[:7], digests[7:]], settings, inputs) == expected.hexdigest()


def test_enabled_is_a_boolean_however_it_is_held() -> None:
    table = {"rule_id": ["a", "b", "c"], "expression": ["TRUE"] * 3}
    for enabled in (pa.array([True, False, None]), pa.array([True, False, None]).dictionary_encode()):
        assert list(read(pa.table({**table, "enabled": enabled}))[0]) == ["a", "c"]
    for wrong in ([1, 0, 1], ["true", "false", "true"]):
        with pytest.raises(ri.RulesIndexError, match="enabled"):
            read(pa.table({**table, "enabled": wrong}))


@pytest.mark.parametrize("ids", [[2**70], pa.array([2**63], pa.uint64())])
def test_ids_beyond_64_bits_are_refused(ids: Any) -> None:
    with pytest.raises(ri.RulesIndexError, match="64 bits"):
        read(pa.table({"rule_id": ids, "expression": ["TRUE"]}) if isinstance(ids, pa.Array) else [(ids[0], "TRUE")])


def test_pairs_may_have_ids_of_numpy_and_must_have_texts() -> None:
    assert list(read([(np.int64(5), "TRUE"), (np.int32(3), "TRUE")])[0]) == [3, 5]
    numbers: Any = [("a", 5)]
    with pytest.raises(ri.RulesIndexError, match="strings"):
        read(numbers)
