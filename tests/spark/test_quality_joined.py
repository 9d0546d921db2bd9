"""Joins beside everything else: their gates, `run`, `status` and `sql` over a small lake with two streams."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import functions as f

from deltatag.__main__ import main
from pipelines.compile import compile_scopes
from pipelines.due import join_is_due, tag_is_due
from pipelines.errors import StatementError
from pipelines.join import join_streams
from pipelines.run import run_due
from pipelines.sql import statement_result
from pipelines.status import status
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from quality.findings import ERROR, WARNING, GateResult
from quality.gates import QualityGates, joined_gate, tagged_gate
from tests.cases import soak_rest, some_of
from tests.java import INTERPRETED
from tests.lakes import make_tables, write_rules

CONFIGURATION = """
[lake]
root = "lake"
[streams.orders]
source = "sources/orders"
key = ["id"]
event_time = "at"
checks = { sane = "amount >= 0" }
max_quarantine_share = 0.25
[streams.payments]
source = "sources/payments"
key = ["id"]
event_time = "at"
max_quarantine_share = 0.0
[joins.paid]
streams = ["orders", "payments"]
on = { orders = ["customer"], payments = ["payer"] }
window = { orders = "0 s", payments = "10 min" }
"""
LATE = '[joins.punctual]\nstreams = ["orders", "payments"]\non = ["id"]\nwindow = "1 hour"\nlateness = "1 min"\n'
RULE_TEXTS = [
    ("large", "paid", "orders.amount > 50"),
    ("less", "paid", "payments.paid < orders.amount - 20"),
    ("soon", "paid", "timestampdiff(MINUTE, payments.at, orders.at) < 3 AND payments.paid > 30"),
    ("alone", "orders", "amount > 10"),
]
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def moments(minutes: list[int]) -> pa.Array:
    return pa.array([START + datetime.timedelta(minutes=n) for n in minutes], pa.timestamp("us", "UTC"))


def orders(start: int, stop: int) -> pa.Table:
    """One a minute, customers 0 to 4 in turn."""
    n = list(range(start, stop))
    columns = {"id": n, "customer": [i % 5 for i in n], "amount": [i * 37 % 100 for i in n]}
    return pa.table({**columns, "at": moments(n)})


def payments(start: int, stop: int) -> pa.Table:
    n = list(range(start, stop))
    columns = {"id": n, "payer": [i * 3 % 5 for i in n], "paid": [i * 53 % 100 for i in n]}
    return pa.table({**columns, "at": moments(n)})


def pairs(first: pa.Table, second: pa.Table) -> set[tuple[int, int, tuple[str, ...]]]:
    """What the join `paid` should find, pair by pair."""
    found = set()
    for order in first.to_pylist():
        for payment in second.to_pylist():
            behind = order["at"] - payment["at"]
            if order["customer"] != payment["payer"] or not datetime.timedelta() <= behind <= datetime.timedelta(
                minutes=10
            ):
                continue
            rules = {
                "large": order["amount"] > 50,
                "less": payment["paid"] < order["amount"] - 20,
                "soon": behind < datetime.timedelta(minutes=3) and payment["paid"] > 30,
            }
            if any(rules.values()):
                found.add((order["id"], payment["id"], tuple(sorted(name for name, holds in rules.items() if holds))))
    return found


EITHER = pytest.mark.parametrize("runner", soak_rest(1, ("local", "auto")))
"""What is due and what is told are the same for both runners: here by this process, and in `make soak` by Spark too."""


@pytest.fixture
def open_lake(tmp_path: Path, spark: Any) -> Callable[..., Workspace]:
    """A lake with 60 orders and 60 payments, and rules that are not compiled yet."""

    settings = "\n".join(f'"{name}" = "{value}"' for name, value in INTERPRETED.items())

    def make(configuration: str = CONFIGURATION, runner: str = "auto") -> Workspace:
        configuration = configuration.replace("[lake]\n", f'[lake]\nrunner = "{runner}"\n')
        (tmp_path / "deltatag.toml").write_text(f"{configuration}[spark]\n{settings}\n")
        opened = Workspace.open(tmp_path / "deltatag.toml", spark)
        make_tables(opened)
        append(opened, orders(0, 60), payments(0, 60))
        write_rules(opened, RULE_TEXTS)
        return opened

    return make


def append(workspace: Workspace, first: pa.Table | None, second: pa.Table | None) -> None:
    for name, rows in (("orders", first), ("payments", second)):
        if rows is not None:
            write_deltalake(workspace.configuration.stream(name).source, rows, mode="append")


def failed(result: GateResult) -> dict[str, str]:
    return {finding.expectation: finding.severity for finding in result.findings if not finding.success}


def tagged(workspace: Workspace) -> list[tuple[int, int, tuple[str, ...]]]:
    rows = workspace.lake.arrow("paid_tagged").to_pylist()
    return sorted((row["orders"]["id"], row["payments"]["id"], tuple(row["rule_ids"])) for row in rows)


@EITHER
def test_a_run_does_what_is_due_judges_it_and_then_finds_nothing_to_do(open_lake, runner: str) -> None:
    workspace, gates = open_lake(runner=runner), QualityGates()
    report = run_due(workspace, gates)
    assert report.failures == {}
    assert [result.gate for result in gates.results] == [
        "rules", "orders", "orders_tagged", "payments", "paid_tagged"
    ]  # fmt: skip
    expected = sorted(pairs(orders(0, 60), payments(0, 60)))
    assert tagged(workspace) == expected
    (joined,), judged = report.joined, gates.results[-1]
    assert (joined.rows, joined.joined, joined.matches) == (120, len(expected), sum(len(ids) for *_, ids in expected))
    assert failed(judged) == {}
    assert judged.measures["tagged_rows"] == len(expected)
    assert dict(judged.counts) == {rule: sum(rule in ids for *_, ids in expected) for rule in ("large", "less", "soon")}
    assert judged.measures["sampled_rules"] == 3 and judged.measures["sampled_rows"] > 10
    assert not join_is_due(workspace, "paid")
    again = run_due(workspace, QualityGates())
    assert (again.compiled, again.tagged, again.joined, again.failures) == ([], [], [], {})

    # New rows on one side only: the other stream is not tagged, and only its source is judged for the join.
    append(workspace, None, payments(60, 70))
    append(workspace, orders(60, 80), None)
    gates = QualityGates()
    report = run_due(workspace, gates)
    assert report.failures == {}
    assert tagged(workspace) == sorted(pairs(orders(0, 80), payments(0, 70)))
    assert gates.results[-1].measures["new_rows"] == 30
    append(workspace, orders(80, 90), None)
    gates = QualityGates()
    report = run_due(workspace, gates)
    assert [result.stream for result in report.tagged] == ["orders"]
    assert [result.gate for result in gates.results] == ["orders", "orders_tagged", "payments", "paid_tagged"]


@EITHER
def test_a_shut_source_keeps_the_join_from_running_and_stops_nothing_else(open_lake, runner: str) -> None:
    workspace = open_lake(runner=runner)
    bad = orders(60, 90).set_column(2, "amount", pa.array([-1] * 30))
    append(workspace, bad, None)
    report = run_due(workspace, QualityGates())
    assert set(report.failures) == {"orders", "paid"}
    assert "at most 0.25 is allowed" in report.failures["paid"]
    assert report.tagged == report.joined == [] and not workspace.lake.exists("paid_tagged")


FAULTS: list[tuple[str, Callable[[Any], Any]]] = [
    ("row_count", lambda frame: frame.limit(3)),
    ("rule_ids_not_null", lambda frame: _with_ids(frame, "orders.id = 20", "NULL")),
    ("rule_ids_not_empty", lambda frame: _with_ids(frame, "orders.id = 20", "array()")),
    ("rule_ids_ascending", lambda frame: _with_ids(frame, "size(rule_ids) > 1", "reverse(rule_ids)")),
    ("rule_ids_ascending", lambda frame: _with_ids(frame, "orders.id = 20", "array('large', 'large')")),
    ("ids_exist", lambda frame: _with_ids(frame, "orders.id = 20", "array('alone')")),
    ("versions_recorded", lambda frame: frame.withColumn("rules_version", f.lit(0))),
    ("versions_recorded", lambda frame: frame.withColumn("index_fingerprint", f.lit("another"))),
    ("matches_recorded", lambda frame: _with_ids(frame, "size(rule_ids) > 1", "slice(rule_ids, 1, 1)")),
    ("keys_equal", lambda frame: _with_field(frame, "orders", "customer", "customer + 1")),
    ("keys_equal", lambda frame: _with_field(frame, "payments", "payer", "CAST(NULL AS BIGINT)")),
    ("times_in_window", lambda frame: _with_field(frame, "payments", "at", "at - INTERVAL 11 MINUTES")),
    ("times_in_window", lambda frame: _with_field(frame, "payments", "at", "at + INTERVAL 11 MINUTES")),
    ("sample_agrees", lambda frame: _with_field(frame, "orders", "amount", "100 - amount")),
]


def _with_ids(frame: Any, where: str, ids: str) -> Any:
    return frame.withColumn("rule_ids", f.expr(f"IF({where}, CAST({ids} AS array<string>), rule_ids)"))


def _with_field(frame: Any, stream: str, field: str, expression: str) -> Any:
    inner = expression.replace(field, f"{stream}.{field}")
    return frame.withColumn(stream, f.col(stream).withField(field, f.expr(inner)))


def test_every_fault_of_joined_rows_is_found(open_lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate sees the table as if joining had gone wrong in one way."""
    workspace = open_lake()
    compile_scopes(workspace)
    join_streams(workspace, "paid")
    assert 20 in {order for order, *_ in tagged(workspace)}
    assert failed(joined_gate(workspace, "paid")) == {}
    from quality import spark_written

    read = spark_written.frame
    for expectation, spoil in some_of(FAULTS, 2):
        monkeypatch.setattr(spark_written, "frame", lambda of, name, spoil=spoil: spoil(read(of, name)))
        judged = joined_gate(workspace, "paid")
        assert failed(judged).get(expectation) == ERROR, (expectation, failed(judged))
        assert not judged.passed
        assert str(judged.reason).startswith("The quality gate of paid_tagged is closed. Expected: ")


def test_joined_rows_with_the_same_keys_are_a_warning(open_lake, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = open_lake()
    compile_scopes(workspace)
    join_streams(workspace, "paid")
    from quality import spark_written

    read = spark_written.frame
    monkeypatch.setattr(spark_written, "frame", lambda of, name: read(of, name).union(read(of, name).limit(2)))
    judged = joined_gate(workspace, "paid")
    assert failed(judged)["rows_unique"] == WARNING
    assert judged.measures["repeated_rows"] == 2


# tests/spark/test_quality.py::test_only_the_newest_micro_batches_are_judged has it for a stream
@pytest.mark.soak
def test_only_the_newest_micro_batches_of_a_join_are_judged(open_lake) -> None:
    workspace = open_lake()
    compile_scopes(workspace)
    join_streams(workspace, "paid")
    assert joined_gate(workspace, "paid").passed
    append(workspace, orders(60, 75), payments(60, 75))
    join_streams(workspace, "paid")
    new = pairs(orders(0, 75), payments(0, 75)) - pairs(orders(0, 60), payments(0, 60))
    assert joined_gate(workspace, "paid").measures["tagged_rows"] == len(new)
    both = joined_gate(workspace, "paid", 2)
    assert (both.measures["new_rows"], failed(both)) == (150, {})
    assert both.measures["tagged_rows"] == len(pairs(orders(0, 75), payments(0, 75)))


@EITHER
def test_rows_that_come_too_late_are_counted_as_a_warning(open_lake, runner: str) -> None:
    workspace = open_lake(CONFIGURATION + LATE, runner=runner)
    compile_scopes(workspace)
    join_streams(workspace, "punctual")
    assert failed(joined_gate(workspace, "punctual")) == {}
    append(workspace, orders(0, 9), orders(60, 80).rename_columns(["id", "payer", "paid", "at"]))
    result = join_streams(workspace, "punctual")
    judged = joined_gate(workspace, "punctual")
    assert (result.rows, result.quarantined, judged.measures["quarantined_rows"]) == (29, 9, 9)
    assert failed(judged) == {"quarantine_share": WARNING}
    assert judged.passed


@EITHER
def test_a_stream_that_only_a_join_needs_is_not_copied(open_lake, runner: str) -> None:
    workspace = open_lake(runner=runner)
    assert run_due(workspace, QualityGates()).failures == {}
    assert workspace.lake.exists("orders_tagged") and not workspace.lake.exists("payments_tagged")
    assert not tag_is_due(workspace, "payments")
    standing = {one.scope: one for one in status(workspace)}["payments"]
    assert (standing.lag_versions, standing.problem) == (None, None)
    (told,) = standing.notices
    assert told.startswith("payments has no rule, and is read only by the join paid: it is not copied")
    assert tag_stream(workspace, "payments").notices == (told,)
    assert failed(tagged_gate(workspace, "payments")) == {}

    # its first rule has all of it tagged, and what is tagged goes on when the last rule goes
    write_rules(workspace, [("paid", "payments", "paid > 50")])
    report = run_due(workspace, QualityGates())
    assert report.failures == {} and [(each.stream, each.rows) for each in report.tagged] == [("payments", 60)]
    workspace.lake.delta("rules").delete("scope = 'payments'")
    append(workspace, None, payments(60, 65))
    report = run_due(workspace, QualityGates())
    assert report.failures == {} and [(each.stream, each.rows) for each in report.tagged] == [("payments", 5)]


@EITHER
def test_a_stream_that_only_a_join_needs_is_copied_for_the_asking(open_lake, runner: str) -> None:
    workspace = open_lake(runner=runner)
    compile_scopes(workspace)
    assert tag_stream(workspace, "payments", restart=True).rows == 60
    append(workspace, None, payments(60, 65))
    assert tag_stream(workspace, "payments").rows == 5


def test_a_join_that_has_nothing_to_show_passes(open_lake) -> None:
    workspace = open_lake(CONFIGURATION + LATE)
    assert failed(joined_gate(workspace, "punctual")) == {}


@EITHER
def test_the_status_of_a_join_is_that_of_its_last_run(open_lake, runner: str) -> None:
    workspace = open_lake(runner=runner)
    compile_scopes(workspace)
    join_streams(workspace, "paid")
    standing = {one.scope: one for one in status(workspace)}["paid"]
    assert (standing.lag_versions, standing.lag_rows, standing.last_rows, standing.last_state) == (0, 0, 120, "done")
    assert (standing.rules, standing.problem, standing.notices) == (3, None, ())
    append(workspace, orders(60, 65), payments(60, 62))
    append(workspace, orders(65, 70), None)
    standing = {one.scope: one for one in status(workspace)}["paid"]
    assert (standing.lag_versions, standing.lag_rows) == (3, 12)


def test_the_tables_of_a_join_go_by_name(open_lake) -> None:
    workspace = open_lake()
    with pytest.raises(StatementError, match="deltatag join paid"):
        statement_result(workspace, "SELECT * FROM paid_tagged")
    compile_scopes(workspace)
    join_streams(workspace, "paid")
    query = "SELECT count(*) AS n FROM paid_tagged AS p JOIN orders AS o ON o.id = p.orders.id WHERE payments.paid >= 0"
    assert statement_result(workspace, query).to_pylist() == [{"n": len(tagged(workspace))}]
    names = {row["tableName"] for row in statement_result(workspace, "SHOW TABLES").to_pylist()}
    assert "paid_tagged" in names and "quarantine_paid" not in names


@EITHER
def test_the_command_joins_begins_anew_and_says_what_it_did(
    open_lake, monkeypatch: pytest.MonkeyPatch, capsys, spark, runner: str
) -> None:
    workspace = open_lake(runner=runner)
    path = str(workspace.configuration.path)
    monkeypatch.setattr("pipelines.spark.session._running_session", lambda: spark)
    assert main(["join", "--config", path]) == 1
    assert "deltatag: paid: " in capsys.readouterr().err
    assert main(["compile", "--config", path]) == 0
    capsys.readouterr()
    assert main(["join", "--config", path, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    first = tagged(workspace)
    assert (result["join"], result["rows"], result["joined"]) == ("paid", 120, len(first))
    assert result["source_versions"] == {"orders": 0, "payments": 0}
    assert main(["join", "paid", "--config", path]) == 0
    assert capsys.readouterr().out == "paid: nothing new\n"
    assert main(["join", "paid", "--restart", "--config", path]) == 0
    assert f"paid: 120 rows of orders v0, payments v0, {len(first)} joined rows" in capsys.readouterr().out
    assert tagged(workspace) == first
