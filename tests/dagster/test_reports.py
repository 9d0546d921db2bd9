"""The report of a scope as an asset: the page that it writes, and plots and tables that say the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from assets.definitions import build_definitions
from assets.headless import run_once
from pipelines.settings.configuration import load_configuration
from pipelines.workspace import Workspace
from tests.dagster.small_lake import FLIGHTS, append, make_lake, shown
from tests.lakes import write_rules

RULES = [
    ("late", "flights", "delay > 60", "ann"),
    ("later", "flights", "delay > 80"),
    ("a|b", "flights", "code = 'none' OR delay > 98"),
    ("odd", "flights", "delay >"),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_lake(tmp_path, FLIGHTS, RULES)


def report(workspace: Workspace, instance: dg.DagsterInstance, scope: str) -> dict[str, Any]:
    job = build_definitions(workspace.configuration.path).resolve_job_def("report")
    return shown(job.execute_in_process(instance=instance), f"report/{scope}_report")


def cells(table: str) -> list[list[str]]:
    """The rows of a Markdown table below its head."""
    return [re.sub(r"\\(.)", r"\1", line.strip("| ")).split(" | ") for line in table.splitlines()[2:]]


def test_it_counts_what_sql_counts_and_writes_the_page(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    append(workspace, range(1_000))
    run_once(workspace, instance, ["flights"], quiet=True)
    told = report(workspace, instance, "flights")

    rows = (
        DeltaTable(workspace.lake.uri("flights_tagged")).to_pyarrow_table(columns=["rule_ids"])["rule_ids"].to_pylist()
    )
    matches = {rule: sum(rule in ids for ids in rows) for rule in ("late", "later", "a|b")}
    assert told["rows"] == len(rows) == 900 and told["rules"] == 4 and told["rejected"] == 1
    assert told["matched_rate"] == pytest.approx(sum(map(bool, rows)) / len(rows), rel=1e-3)
    listed = {row[0]: row for row in cells(told["rules_by_matches"])}
    assert list(listed) == [*sorted(matches, key=lambda rule: -matches[rule]), "odd"]
    for rule, number in matches.items():
        assert listed[rule][1] == str(number)
        assert set(listed[rule][3]) <= set("▁▂▃▄▅▆▇█") and "█" in listed[rule][3]
    assert listed["late"][5:] == ["ann", "delay > 60"]

    # of two rules one of which implies the other, all rows of the implying one are common
    pairs = {(row[0], row[1]): row[2:] for row in cells(told["rules_that_match_together"])}
    late, later = matches["late"], matches["later"]
    assert pairs["late", "later"] == [str(later), f"{100 * later / late:.1f} %", "100.0 %"]
    assert told["matches_over_time"].startswith("![matches over time](data:image/png;base64,")
    assert len(told["matches_over_time"]) < 60_000
    page = Path(told["page"].path if hasattr(told["page"], "path") else told["page"])
    assert page == workspace.configuration.path.parent / "report" / "flights.html"
    assert "a|b" in page.read_text()


def test_names_are_no_formulas_and_a_folder_that_cannot_be_made_is_told(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    odd = "a$x_{$|<b>\n日本"
    write_rules(workspace, [(odd, "flights", "delay >= 0")])
    append(workspace, range(1_000))
    assert run_once(workspace, instance, ["flights"], quiet=True).success  # its check plots the rule's matches
    (workspace.configuration.path.parent / "report").write_text("no folder")
    told = report(workspace, instance, "flights")
    assert cells(told["rules_by_matches"])[0][0] == "a$x_{$|<b> 日本"
    assert "matches_over_time" in told
    assert "page" not in told and "cannot be made" in told["notes"]


def test_pages_of_a_web_server_are_linked(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    file = workspace.configuration.path
    file.write_text(file.read_text().replace("[lake]\n", '[lake]\npages_url = "https://pages.example/lake/"\n'))
    run = run_once(Workspace(load_configuration(file)), instance, ["flights"], quiet=True)
    told = [check.metadata["data_docs"] for check in run.get_asset_check_evaluations() if "data_docs" in check.metadata]
    assert dg.MetadataValue.url("https://pages.example/lake/data_docs/rules.html") in told
    assert report(workspace, instance, "flights")["page"] == "https://pages.example/lake/report/flights.html"


def test_edits_are_told(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    write_rules(workspace, [("new", "flights", "delay = 3")])
    DeltaTable(workspace.lake.uri("rules")).delete("rule_id = 'later'")
    newest, inserted, *_ = cells(report(workspace, instance, "flights")["edits"])
    assert (newest[4:7], newest[7]) == (["0", "1", "0"], "-later")
    assert (inserted[4:7], inserted[7]) == (["1", "0", "0"], "+new")


def test_a_scope_without_rows_has_a_report_and_one_that_fails_stops_no_other(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    both = FLIGHTS + '[streams.weather]\nsource = "lake/weather"\nevent_time = "at"\n'
    workspace = make_lake(tmp_path, both, [*RULES, ("cold", "weather", "delay < 0")])
    told = report(workspace, instance, "flights")
    assert told["rows"] == 0 and "No row has been tagged yet" in told["notes"]
    assert "matches_over_time" not in told

    write_deltalake(workspace.lake.uri("flights_tagged"), pa.table({"other": [1]}))  # nothing that deltatag wrote
    job = build_definitions(workspace.configuration.path).resolve_job_def("report")
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not result.success
    assert shown(result, "report/weather_report")["rules"] == 1
