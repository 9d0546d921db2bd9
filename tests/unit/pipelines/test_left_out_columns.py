"""Columns of a stream's or join's tables that their files lack, without a JVM: the source has lost them, annotations
are no longer configured, or somebody has added them. They are NULL in new rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.join import join_streams
from pipelines.lake.table_log import table_log
from pipelines.maintain import maintain
from pipelines.retag import retag
from pipelines.run import run_due
from pipelines.settings.configuration import parse_configuration
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from pipelines.writing.files import layout_of
from quality.gates import QualityGates
from tests.annotated_rows import EDITED, RULES_OF_S, STREAM, append, joined_lake, local, write_rules
from tests.tables import alter, rows_of

pytestmark = pytest.mark.usefixtures("without_spark")
RULES = local(RULES_OF_S)
ADDED = ("rules_version", "index_fingerprint", "source_version", "tagged_at")
ANNOTATIONS = tuple(STREAM["annotations"])


def configured(workspace: Workspace, joins: dict[str, Any] | None = None, **stream: Any) -> Workspace:
    """The lake with other settings of the stream `s`; None removes one."""
    settings = {key: value for key, value in {**STREAM, **stream}.items() if value is not None}
    document: dict[str, Any] = {"lake": {"root": "lake"}, "streams": {"s": settings}}
    return Workspace(parse_configuration(document, workspace.configuration.path), None)


def by_number(workspace: Workspace, name: str = "s_tagged", *without: str) -> dict[int, dict[str, Any]]:
    found = {row["seq"]: {k: v for k, v in row.items() if k not in without} for row in rows_of(workspace, name)}
    assert len(found) == len(rows_of(workspace, name))
    return found


def pairs(workspace: Workspace) -> list[tuple[int, str]]:
    return sorted((row["seq"], row["rule_id"]) for row in rows_of(workspace, "s_matches"))


def compiled(workspace: Workspace) -> None:
    assert [each.error for each in compile_scopes(workspace)] == [None]


@pytest.mark.slow
@pytest.mark.parametrize("output", ["all", "matched"])
@pytest.mark.parametrize("partition_by", [[], ["n"]])
def test_annotations_that_are_configured_no_longer(new_workspace, output: str, partition_by: list[str]) -> None:
    settings = {"output": output, "partition_by": partition_by, "checks": {"known": "seq % 10 <> 4"}}
    annotated = new_workspace({"s": STREAM | settings}, spark=False)
    append(annotated, 0, 40)
    write_rules(annotated, RULES)
    compiled(annotated)
    tag_stream(annotated, "s")
    before = by_number(annotated)
    plain = configured(annotated, annotations=None, **settings)
    append(plain, 40, 80)
    compiled(plain)
    tag_stream(plain, "s")
    now = by_number(plain)
    assert {seq: row for seq, row in now.items() if seq < 40} == before
    assert {row[name] for seq, row in now.items() if seq >= 40 for name in ANNOTATIONS} == {None}
    assert len(rows_of(plain, "quarantine_s")) == 8
    if output == "all":  # what is left out may match now, and nobody knows what it matched without annotations
        assert retag(plain, "s").rows_changed == 0
        write_rules(plain, [rule | {"expression": rule["expression"].replace("> 3", "> 2")} for rule in RULES[:-1]])
        compiled(plain)
        assert retag(plain, "s").rows_changed > 0
    assert [each.error for each in maintain(plain) if each.error] == []
    now, own = by_number(plain), (*ADDED, *ANNOTATIONS)
    assert {row[name] for seq, row in now.items() if seq >= 40 for name in ANNOTATIONS} == {None}
    held = pairs(plain)
    tag_stream(plain, "s", restart=True)
    assert pairs(plain) == held
    assert by_number(plain, "s_tagged", *ADDED) == {
        seq: {name: value for name, value in row.items() if name not in own} for seq, row in now.items()
    }


@pytest.mark.slow
def test_annotations_that_are_configured_again_are_filled_in_by_a_re_tag(new_workspace) -> None:
    annotated = new_workspace({"s": STREAM}, spark=False)
    append(annotated, 0, 40)
    write_rules(annotated, RULES)
    compiled(annotated)
    tag_stream(annotated, "s")
    plain = configured(annotated, annotations=None)
    append(plain, 40, 80)
    tag_stream(plain, "s")  # the index still has the annotations
    append(annotated, 80, 120)
    tag_stream(annotated, "s")
    write_rules(annotated, local(EDITED))
    compiled(annotated)
    retag(annotated, "s")
    now = by_number(annotated, "s_tagged", *ADDED)
    tag_stream(annotated, "s", restart=True)
    assert now == by_number(annotated, "s_tagged", *ADDED)


def lost_column(workspace: Workspace, rows: pa.Table, partition_by: list[str]) -> None:
    """Replace the source by one with other columns, from which all rows are new."""
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, rows, mode="overwrite", schema_mode="overwrite", partition_by=partition_by or None)


def numbers(start: int, stop: int) -> pa.Table:
    """Rows with a STRUCT whose fields are between others."""
    found = range(start, stop)
    return pa.table(
        {
            "seq": pa.array(found, pa.int64()),
            "gone": pa.array([f"g{n}" for n in found]),
            "kind": pa.array([("x", "y")[n % 2] for n in found]),
            "u": pa.array([{"a": n, "gone": n / 2, "b": [{"c": n, "gone": n, "d": n}]} for n in found]),
            "left": pa.array([n * 1.5 for n in found]),
        }
    )


def without_gone(rows: pa.Table) -> pa.Table:
    fields = [
        {"a": row["a"], "b": [{"c": each["c"], "d": each["d"]} for each in row["b"]]} for row in rows["u"].to_pylist()
    ]
    kept = rows.drop_columns(["gone", "left"])
    return kept.set_column(kept.column_names.index("u"), "u", pa.array(fields))


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", [[], ["kind"]])
@pytest.mark.parametrize("many", [False, True])
def test_a_source_that_has_lost_columns_and_fields(
    new_workspace, add_rules, partition_by: list[str], many: bool
) -> None:
    """many: so many rows that their columns are copied."""
    more = 70_000 if many else 100
    settings = {"source": "lake/source", "key": ["seq"], "checks": {"known": "u.a % 10 <> 4"}}
    workspace = new_workspace({"s": settings}, spark=False)
    lost_column(workspace, numbers(0, 50), partition_by)
    add_rules(workspace, ("low", "s", "u.a < 20"), ("x", "s", "kind = 'x' AND u.a % 3 = 0"))
    compiled(workspace)
    tag_stream(workspace, "s")
    lost_column(workspace, without_gone(numbers(0, 1)), partition_by)
    compiled(workspace)
    tag_stream(workspace, "s", skip_changes=True)
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, without_gone(numbers(50, more)), mode="append")
    new = without_gone(numbers(more, more + 10)).append_column("new", pa.array(range(10)))
    write_deltalake(source, new, mode="append", schema_mode="merge")
    compiled(workspace)
    tag_stream(workspace, "s")
    now = by_number(workspace)
    assert len(now) == (more + 10) * 9 // 10
    for seq, row in now.items():
        old = seq < 50
        assert row["gone"] == (f"g{seq}" if old else None) and row["left"] == (seq * 1.5 if old else None)
        half, same = (seq / 2, seq) if old else (None, None)
        assert row["u"] == {"a": seq, "gone": half, "b": [{"c": seq, "gone": same, "d": seq}]}
        assert row["new"] == (seq - more if seq >= more else None)
        assert row["rule_ids"] == ["low"] * (seq < 20) + ["x"] * (seq % 6 == 0)
    refused = rows_of(workspace, "quarantine_s")
    assert {row["seq"] for row in refused} == {seq for seq in range(more + 10) if seq % 10 == 4}
    assert {row["seq"] for row in refused if row["gone"] is None} == {
        seq for seq in range(50, more + 10) if seq % 10 == 4
    }
    bounds = pa.table(workspace.lake.delta("s_tagged").get_add_actions(flatten=True))
    assert pc.sum(bounds["num_records"]).as_py() == len(now) and pc.max(bounds["max.seq"]).as_py() == more + 9
    add_rules(workspace, ("high", "s", "u.a >= 40"))
    compiled(workspace)
    retag(workspace, "s")
    assert [each.error for each in maintain(workspace) if each.error] == []
    for seq, row in by_number(workspace).items():
        ids = ["high"] * (seq >= 40) + now[seq]["rule_ids"]
        assert {**row, **dict.fromkeys(ADDED)} == {**now[seq], "rule_ids": ids, **dict.fromkeys(ADDED)}


def tagged_lake(new_workspace, add_rules) -> Workspace:
    """A lake with one rule and forty tagged rows, whose key is `seq`."""
    workspace: Workspace = new_workspace({"s": {"source": "lake/source", "key": ["seq"]}}, spark=False)
    add_rules(workspace, ("low", "s", "n < 5"))
    append(workspace, 0, 40)
    compiled(workspace)
    tag_stream(workspace, "s")
    return workspace


@pytest.mark.slow
def test_columns_that_somebody_has_added(new_workspace, add_rules) -> None:
    workspace = tagged_lake(new_workspace, add_rules)
    for name in ("s_tagged", "s_matches"):
        added = [column("note"), column("n2", type="long")]
        alter(workspace.lake.uri(name), [*table_log(workspace.lake.uri(name)).latest().fields, *added])
    append(workspace, 40, 80)
    assert run_due(workspace, QualityGates()).failures == {}
    assert {row["note"] for name in ("s_tagged", "s_matches") for row in rows_of(workspace, name)} == {None}
    add_rules(workspace, ("high", "s", "n >= 5"))
    compiled(workspace)
    retag(workspace, "s")
    assert [each.error for each in maintain(workspace) if each.error] == []
    assert {row["note"] for name in ("s_tagged", "s_matches") for row in rows_of(workspace, name)} == {None}
    held, tagged = pairs(workspace), by_number(workspace)
    assert {rule for _, rule in held} == {"low", "high"} and len(tagged) == 80
    assert held == sorted((seq, rule) for seq, row in tagged.items() for rule in row["rule_ids"])
    assert {row["rules_version"] for row in rows_of(workspace, "s_matches")} == {1, 2}


def column(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "type": "string", "nullable": True, "metadata": {}, **changes}


@pytest.mark.parametrize(
    "added",
    [
        column("note", nullable=False),
        column("note", metadata={"delta.generationExpression": "w"}),
        column("note", metadata={"CURRENT_DEFAULT": "'x'"}),
        column("note", metadata={"delta.invariants": "{}"}),
    ],
)
def test_columns_that_may_not_be_null_are_left_to_spark(new_workspace, added: dict[str, Any]) -> None:
    workspace = new_workspace({"s": STREAM}, spark=False)
    append(workspace, 0, 5)
    compiled(workspace)
    tag_stream(workspace, "s")
    folder = workspace.lake.uri("s_tagged")
    fields = table_log(folder).latest().fields
    assert layout_of(workspace.lake, "s_tagged", fields[1:]) is not None
    alter(folder, [*fields, column("plain")])
    assert layout_of(workspace.lake, "s_tagged", fields) is not None
    alter(folder, [*fields, added])
    assert layout_of(workspace.lake, "s_tagged", fields) is None


@pytest.mark.slow
def test_a_join_whose_table_has_more_columns(new_workspace) -> None:
    workspace, _ = joined_lake(new_workspace, spark=False)
    document = {"lake": {"root": "lake"}, "streams": {}, "joins": {}}
    for stream in ("s", "o"):
        document["streams"][stream] = {"source": workspace.configuration.streams[stream].source, "event_time": "t"}
    document["joins"]["j"] = {"streams": ["s", "o"], "on": ["seq"], "window": "1 hour"}
    plain = Workspace(parse_configuration(document, workspace.configuration.path), None)
    before = rows_of(plain, "j_tagged")
    source = plain.configuration.streams["o"].source
    rows = pa.table(DeltaTable(source).to_pyarrow_table()).drop_columns(["n"])
    write_deltalake(source, rows.slice(0, 1), mode="overwrite", schema_mode="overwrite")
    assert compile_scopes(plain, ["j"])[0].error is None
    join_streams(plain, "j", skip_changes=True)
    write_deltalake(source, rows, mode="append")
    write_rules(plain, [{"rule_id": "x", "expression": "o.w = 'x'"}], "j")
    assert compile_scopes(plain, ["j"])[0].error is None
    joined = join_streams(plain, "j").joined
    now = rows_of(plain, "j_tagged")
    new = [row for row in now if row["rule_ids"] == ["x"]]
    assert len(now) == len(before) + joined and len(new) == joined == 17
    assert {row["o"]["n"] for row in new} == {row[name] for row in new for name in ANNOTATIONS} == {None}
    assert {row["o"]["w"] for row in new} == {"x"} and all(row["s"]["seq"] == row["o"]["seq"] for row in new)
    assert [row for row in now if row not in new] == before


@pytest.mark.slow
def test_a_key_that_came_later_and_another_that_went(new_workspace, add_rules) -> None:
    workspace = tagged_lake(new_workspace, add_rules)
    workspace = configured(workspace, annotations=None, key=["w"])
    append(workspace, 40, 80)
    tag_stream(workspace, "s")
    assert {(row["seq"] is None, row["w"] is None) for row in rows_of(workspace, "s_matches")} == {
        (False, True),
        (True, False),
    }
    add_rules(workspace, ("high", "s", "n >= 5"))
    compiled(workspace)
    retag(workspace, "s")
    tagged = by_number(workspace)
    pairs = [row for row in rows_of(workspace, "s_matches") if row["rule_id"] == "high"]
    assert {row["seq"] for row in pairs} == {seq for seq, row in tagged.items() if "high" in row["rule_ids"]}
    for row in pairs:
        held = tagged[row["seq"]]
        assert (row["w"], row["source_version"], row["rules_version"]) == (held["w"], held["source_version"], 2)


def test_rules_read_columns_whole_with_fields_that_are_not_null(new_workspace, add_rules) -> None:
    """The tables have NULL allowed in all fields, as have the columns that an index reads."""
    workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False, runner="local")
    inner = pa.struct([pa.field("y", pa.int64(), nullable=False)])
    rows = pa.table({"l": pa.array([[{"y": 3}], []], pa.list_(inner)), "s": pa.array([{"y": 1}, None], inner)})
    write_deltalake(workspace.configuration.streams["s"].source, rows)
    add_rules(workspace, ("any", "s", "exists(l, each -> each.y = 3)"), ("none", "s", "s IS NULL"))
    compiled(workspace)
    tag_stream(workspace, "s")
    assert sorted(row["rule_ids"] for row in rows_of(workspace, "s_tagged")) == [["any"], ["none"]]
