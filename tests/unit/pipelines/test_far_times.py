"""Rules with bounds beyond the year 2262 in files that Spark has written: its INT96 timestamps have no such limit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from deltatag.__main__ import main
from pipelines.authoring.exchange import import_rules
from pipelines.compile import compile_scopes
from pipelines.errors import NeedsSparkError, TableError
from pipelines.join import join_streams
from pipelines.lake.python_values import values_of
from pipelines.lake.reading import as_dataset
from pipelines.lint import lint_scopes
from pipelines.local_sql.statement import execute
from pipelines.rule_set import read_rules
from pipelines.workspace import Workspace

FAR = datetime(9999, 12, 31, tzinfo=UTC)
YEAR_0 = -62_135_600_008_000_000
"""The start of the year 1 in Berlin, in microseconds since 1970; delta-rs gives statistics of the year 0, too."""
MERGE = (
    "MERGE INTO rules r USING (SELECT * FROM VALUES ('a', 'b') AS v (id, o)) w ON w.id = r.rule_id "
    "WHEN MATCHED THEN UPDATE SET r.owner = w.o"
)


def write_as_spark(workspace: Workspace, bounds: list[datetime | None]) -> None:
    """Append the rules a, b, ... to the table, each with a `valid_to`."""
    kind = pa.timestamp("us", "UTC")
    ids = pa.array("abcdef"[: len(bounds)])
    rows = pa.table({"rule_id": ids, "scope": ["s"] * len(bounds), "expression": ["x > 1"] * len(bounds)})
    rows = rows.append_column("valid_to", pa.array(bounds, kind))
    file = Path(workspace.lake.uri("rules")) / "spark.parquet"
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True, store_schema=False)
    table = workspace.lake.writable("rules")
    add = AddAction(file.name, file.stat().st_size, {}, 0, True, "{}")
    table.create_write_transaction([add], "append", table.schema())


@pytest.fixture
def workspace(new_workspace, tmp_path: Path) -> Workspace:
    found: Workspace = new_workspace({"s": {"source": str(tmp_path / "source")}}, spark=False)
    write_deltalake(str(tmp_path / "source"), pa.table({"x": [1.0, 2.0], "t": [datetime(2026, 1, 1, tzinfo=UTC)] * 2}))
    return found


def bounds_of(workspace: Workspace) -> list[datetime | None]:
    return read_rules(workspace.lake, ["s"]).of_scope("s")["valid_to"].to_list()


def test_a_bound_is_read_as_it_is(workspace: Workspace) -> None:
    write_as_spark(workspace, [FAR, datetime(1, 1, 1, tzinfo=UTC), None])
    assert bounds_of(workspace) == [FAR, datetime(1, 1, 1, tzinfo=UTC), None]


@pytest.mark.parametrize(
    "statement", ["UPDATE rules SET owner = 'me' WHERE rule_id = 'a'", "DELETE FROM rules WHERE rule_id = 'a'", MERGE]
)
def test_spark_rewrites_rows_with_such_a_bound(workspace: Workspace, statement: str) -> None:
    write_as_spark(workspace, [None, FAR])
    execute(workspace, "INSERT INTO rules (rule_id, scope, expression) VALUES ('z', 's', 'x > 2')")
    with pytest.raises(NeedsSparkError, match="after 2261"):
        execute(workspace, statement)
    assert bounds_of(workspace) == [None, FAR, None]


def test_an_import_changes_no_such_bound(workspace: Workspace, tmp_path: Path) -> None:
    write_as_spark(workspace, [None, FAR])
    file = tmp_path / "rules.csv"
    file.write_text("rule_id,scope,expression\nnew,s,x > 3\n")
    assert import_rules(workspace, file).added == ("new",)
    file.write_text("rule_id,scope,expression\na,s,x > 3\n")
    with pytest.raises(TableError, match="Write NULL"):
        import_rules(workspace, file)
    assert bounds_of(workspace) == [None, FAR, None]


def test_rows_with_other_bounds_are_rewritten_here(workspace: Workspace) -> None:
    soon = datetime(2031, 1, 1, tzinfo=UTC)
    write_as_spark(workspace, [None, soon])
    execute(workspace, "UPDATE rules SET owner = 'me' WHERE rule_id = 'a'")
    assert bounds_of(workspace) == [None, soon]


@pytest.mark.slow
def test_a_bound_in_the_year_10000_is_shown_and_exported(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last second of 9999 in New York is one of the year 10000 in UTC, which Python does not have."""
    (tmp_path / "deltatag.toml").write_text('[lake]\nroot = "lake"\n[streams.s]\nsource = "source"\nevent_time = "t"\n')
    monkeypatch.chdir(tmp_path)
    kind = pa.timestamp("us", "UTC")
    bound = pa.scalar(253_402_318_799_000_000, pa.int64()).cast(kind)
    rule = {"rule_id": ["a"], "scope": ["s"], "expression": ["x > 1 AND x < 1"], "valid_to": pa.array([bound], kind)}
    write_deltalake(workspace.lake.uri("rules"), pa.table(rule), mode="append", schema_mode="merge")
    (tmp_path / "b.csv").write_text("rule_id,scope,expression\na,s,x > 2\n")
    for command in ("export a.csv", "history a", "diff 0 1", "import b.csv"):
        assert main(["rules", *command.split()]) == 0, command
    assert "9999-12-31T23:59:59.999999Z" in (tmp_path / "a.csv").read_text()
    assert main(["lint"]) == main(["report"]) == main(["backtest", "s", "--versions", "0", "1"]) == 0
    capsys.readouterr()


def test_values_outside_the_years_of_python_are_texts() -> None:
    times = pa.array([253_402_318_799_000_000, None], pa.timestamp("us", "America/New_York"))
    assert values_of(pa.chunked_array([times])) == ["9999-12-31 23:59:59.000000-0500", None]
    assert values_of(pa.chunked_array([pa.array([10_000_000], pa.date32())])) == ["29349-01-26"]
    nested = pa.StructArray.from_arrays([pa.array([1, 2]), times], ["n", "t"])
    assert values_of(pa.chunked_array([nested]))[0] == {"n": 1, "t": "9999-12-31 23:59:59.000000-0500"}


def test_floats_are_shown_by_few_digits() -> None:
    floats = pa.array([1.1, -0.0, float("inf"), 1e-45, None], pa.float32())
    assert values_of(pa.chunked_array([floats])) == [1.1, -0.0, float("inf"), 1e-45, None]
    assert repr(values_of(pa.chunked_array([floats.slice(1)]))) == "[-0.0, inf, 1e-45, None]"
    texts = pa.array([b"\xff", b"a", b"b", b"c", b"d"], pa.binary()).view(pa.string())
    both = pa.StructArray.from_arrays([floats, texts], ["f", "t"])
    assert values_of(pa.chunked_array([both]))[:2] == [{"f": 1.1, "t": "\ufffd"}, {"f": 0.0, "t": "a"}]
    maps = pa.array([[("k", 1.1), ("l", None)], None], pa.map_(pa.string(), pa.float32()))
    assert values_of(pa.chunked_array([maps])) == [{"k": 1.1, "l": None}, None]


def test_bytes_that_are_not_utf8_are_shown_as_replaced() -> None:
    texts = pa.array([b"a\xff", b"\xc3\xbc", None], pa.binary()).view(pa.string())
    shown = ["a\ufffd", "ü", None]
    assert values_of(pa.chunked_array([texts])) == shown
    times = pa.array([253_402_318_799_000_000, 0, None], pa.timestamp("us", "America/New_York"))
    mixed = pa.StructArray.from_arrays([texts, times], ["s", "t"])
    assert [row["s"] for row in values_of(pa.chunked_array([mixed]))] == shown
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3, 3], pa.int32()), texts)
    assert values_of(pa.chunked_array([lists])) == [shown[:2], [None], []]
    maps = pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), texts[:2], texts[1:])
    assert values_of(pa.chunked_array([maps])) == [{"a\ufffd": "ü", "ü": None}]
    # Arrow meets a key of a STRUCT, which is no key in Python, before the first text that is not UTF-8
    keys = pa.MapArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pa.StructArray.from_arrays([texts[:2].take([1, 0])], ["s"]), texts[1:]
    )
    assert values_of(pa.chunked_array([keys])) == [[({"s": "ü"}, "ü")], [({"s": "a\ufffd"}, None)]]
    assert values_of(pa.chunked_array([pa.array([b"\xff", None])])) == [b"\xff", None]


@pytest.mark.parametrize("by", [[], ["p"], ["p", "d"]])
def test_bounds_of_years_that_python_lacks_do_not_stop_readers(tmp_path: Path, by: list[str]) -> None:
    days = pa.array([-800_000, 0, None, 10_000_000], pa.int32()).cast(pa.date32())
    times = pa.array([253_402_318_799_000_000, -62_200_000_000_000_000, None, 0], pa.timestamp("us", "UTC"))
    rows = pa.table({"n": [1, 2, 3, 4], "p": ["a b/c=%", None, "ü", "ü"], "d": days, "t": times})
    write_deltalake(str(tmp_path), rows, partition_by=by or None)
    read = as_dataset(DeltaTable(str(tmp_path)))
    assert read.to_table(rows.schema.names).sort_by("n").cast(rows.schema).equals(rows)
    where = (pc.field("p") == "ü") & (pc.field("n") < 4)
    assert read.to_table(["n"], where)["n"].to_pylist() == [3]


def test_rules_are_tried_on_times_of_the_year_10000(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    times = pa.array([253_402_318_799_000_000, -62_200_000_000_000_000], pa.timestamp("us", "UTC"))
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, pa.table({"x": [1, 2], "t": times}), mode="overwrite", schema_mode="overwrite")
    (tmp_path / "deltatag.toml").write_text(f'[lake]\nroot = "lake"\n[streams.s]\nsource = "{source}"\n')
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == main(["backtest", "s", "x > 1"]) == 0
    assert "2 rows" in capsys.readouterr().out


def test_a_source_of_the_year_minus_221_can_be_linted(workspace: Workspace, add_rules) -> None:
    days = pa.array([-800_000, 20_000], pa.int32()).cast(pa.date32())
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, pa.table({"t": days}), mode="overwrite", schema_mode="overwrite")
    add_rules(workspace, ("late", "s", "t > DATE'2100-01-01'"))
    (found,) = lint_scopes(workspace, ["s"])
    assert (found.error, [each.kind for each in found.findings]) == (None, ["out_of_range"])


@pytest.mark.parametrize("zone", ["UTC", None])
def test_earlier_rows_of_the_year_0_are_joined(new_workspace, add_rules, zone: str | None) -> None:
    streams = {name: {"source": f"lake/{name}", "event_time": "t"} for name in "ab"}
    join = {"streams": ["a", "b"], "on": ["k"], "window": "1 second"}
    workspace = new_workspace(streams, joins={"j": join}, runner="local", spark=False)
    times = pa.array([253_402_318_799_000_000, YEAR_0, 0], pa.timestamp("us", zone))
    for name in ("a", "b"):
        rows = pa.table({"k": [1, 2, 3], "t": times, "other": times.take([1, 0, 2])})
        write_deltalake(workspace.configuration.streams[name].source, rows)
    add_rules(workspace, ("all", "j", "TRUE"))
    compile_scopes(workspace, ["j"])
    assert join_streams(workspace, "j").joined == 3
    write_deltalake(workspace.configuration.streams["a"].source, rows, mode="append")
    assert join_streams(workspace, "j").joined == 3
