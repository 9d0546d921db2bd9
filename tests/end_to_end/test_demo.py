"""The demonstration, run whole: what it leaves, what it says, and whether Spark agrees with every tag."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from deltatag.demo.place import DAGSTER_HOME, PLOT, SQL_FILES, make_place, remember
from deltatag.demo.statements import read_statements
from deltatag.demo.story import Story
from pipelines.errors import ConfigurationError
from pipelines.local_sql.statement import local_result
from pipelines.report import report_scopes
from pipelines.reporting.contents import contents
from pipelines.settings.configuration import load_configuration
from pipelines.sql import statement_result
from pipelines.workspace import Workspace
from tests.cases import SOAK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)
FLIGHTS = 336_776
"""Rows of the published table of flights."""


@dataclass(frozen=True)
class Demonstration:
    folder: Path
    output: str
    errors: str
    status: int


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Demonstration:
    """The demonstration, run once by the command line in a process of its own, in which Spark cannot start."""
    folder = tmp_path_factory.mktemp("demonstration") / "demo"
    command = [sys.executable, "-m", "deltatag", "demo", str(folder)]
    without_spark = {**os.environ, "DELTATAG_JARS": str(folder.parent / "none")}
    run = subprocess.run(command, env=without_spark, capture_output=True, text=True, timeout=1100)
    return Demonstration(folder, run.stdout, run.stderr, run.returncode)


@pytest.fixture(scope="module")
def workspace(shown: Demonstration, spark: SparkSession) -> Workspace:
    from pipelines.sql import register_tables

    opened = Workspace.open(shown.folder / "deltatag.toml", spark)
    register_tables(opened)
    return opened


def rows(workspace: Workspace, statement: str) -> list[Any]:
    return workspace.spark.sql(statement).collect()


def test_it_ends_well_and_quietly(shown: Demonstration) -> None:
    assert shown.status == 0, shown.errors
    told = r"deltatag: .+ \(\d+ s\)|deltatag: .+ \(\d+ min \d\d s\)"
    assert [line for line in shown.errors.splitlines() if not re.fullmatch(told, line)] == []


def test_every_flight_is_tagged_once_and_unchanged(shown: Demonstration) -> None:
    source = pl.read_delta(load_configuration(shown.folder / "deltatag.toml").streams["flights"].source)
    passed = pl.read_delta(shown.folder / "lake" / "flights_tagged").select(source.columns)
    assert passed.height == source["flight_id"].n_unique() == FLIGHTS
    assert passed.sort("flight_id").equals(source.sort("flight_id"))


def test_it_leaves_what_it_names(shown: Demonstration, workspace: Workspace) -> None:
    for name in (PLOT, "deltatag.toml", *SQL_FILES):
        assert (shown.folder / name).stat().st_size > 0
        assert name in shown.output or name in ("edits.sql", "queries.sql")
    assert (shown.folder / PLOT).read_bytes().startswith(b"\x89PNG")
    for table in ("rules", "rule_rejects", "rule_index", "runs", "flights_tagged", "flights_matches"):
        assert workspace.lake.exists(table), table
    assert {row.state for row in rows(workspace, "SELECT state FROM runs")} == {"done"}
    assert f"DAGSTER_HOME={shown.folder / DAGSTER_HOME} DELTATAG_CONFIG=" in shown.output
    assert "http://localhost:3000" in shown.output


def test_the_wrong_edit_is_shown_with_its_place(shown: Demonstration, workspace: Workspace) -> None:
    (reject,) = rows(
        workspace,
        "SELECT j.rule_id, j.error, j.message, j.position, r.expression FROM rule_rejects AS j "
        "JOIN rules AS r ON j.rule_id = r.rule_id",
    )
    assert reject.error == "UNKNOWN_COLUMN"
    assert reject.expression[reject.position :].startswith("arr_dely ")
    assert f"{reject.rule_id}: {reject.error}: {reject.message}" in shown.output
    lines = shown.output.splitlines()
    mark = next(number for number, line in enumerate(lines) if line.strip() == "^")
    assert lines[mark - 1][lines[mark].index("^") :].startswith("arr_dely ")


def test_spark_agrees_with_every_tag(workspace: Workspace) -> None:
    """For each version of the rules, every rule as a plain SQL condition over the rows which it tagged: over one row in
    eight, and over all of them in `make soak`."""
    some = "" if SOAK else " AND flight_id % 8 = 0"
    versions = [row[0] for row in rows(workspace, "SELECT DISTINCT rules_version FROM flights_tagged ORDER BY 1")]
    assert len(versions) == 2
    rejected = {row.rule_id for row in rows(workspace, "SELECT rule_id FROM rule_rejects")}
    for version, without in zip(versions, (set(), rejected), strict=True):
        rules = [rule for rule in enabled_rules(workspace, version) if rule["rule_id"] not in without]
        assert len(rules) > 30
        columns = ", ".join(
            f"count_if(array_contains(rule_ids, '{rule['rule_id']}') <> {condition(rule)}) AS `{rule['rule_id']}`"
            for rule in rules
        )
        known = ", ".join(f"'{rule['rule_id']}'" for rule in rules)
        (found,) = rows(
            workspace,
            f"SELECT {columns}, count_if(size(array_except(rule_ids, array({known}))) > 0) AS `unknown ids` "
            f"FROM flights_tagged WHERE rules_version = {version}{some}",
        )
        assert {name: count for name, count in found.asDict().items() if count} == {}


def enabled_rules(workspace: Workspace, version: int, scope: str = "flights") -> list[dict[str, Any]]:
    table = workspace.lake.frame("rules", version).where(f"enabled IS NOT FALSE AND scope = '{scope}'")
    text = "CAST({0} AS STRING) AS {0}".format
    return [
        row.asDict()
        for row in table.selectExpr("rule_id", "expression", text("valid_from"), text("valid_to")).collect()
    ]


def condition(rule: dict[str, Any]) -> str:
    """What a person would write as the rule's WHERE clause, with its bounds; a division by zero is unknown."""
    expression = rule["expression"].replace("arr_delay / dep_delay", "try_divide(arr_delay, dep_delay)")
    parts = [f"({expression})"]
    if rule["valid_from"]:
        parts.append(f"scheduled_at >= TIMESTAMP'{rule['valid_from']}'")
    if rule["valid_to"]:
        parts.append(f"scheduled_at < TIMESTAMP'{rule['valid_to']}'")
    return f"coalesce({' AND '.join(parts)}, false)"


def test_the_report_counts_what_sql_counts(shown: Demonstration, workspace: Workspace, tmp_path: Path) -> None:
    results = report_scopes(workspace, None, tmp_path)
    assert {each.scope: each.error for each in results} == {"flights": None, "weather": None, "flights_weather": None}
    found = contents(workspace, "flights")
    counts = rows(workspace, "SELECT rule_id, count(*) AS n FROM flights_matches GROUP BY rule_id")
    assert {each["id"]: each["matches"] for each in found["rules"] if each["matches"]} == {
        row.rule_id: row.n for row in counts if row.rule_id in {each["id"] for each in found["rules"]}
    }
    weeks = rows(
        workspace,
        "SELECT date_format(date_trunc('WEEK', scheduled_at), 'yyyy-MM-dd HH:mm') AS week, count(*) AS n "
        "FROM flights_tagged GROUP BY week ORDER BY week",
    )
    assert found["unit"] == "1w"
    assert list(zip(found["starts"], found["rows_over_time"], strict=True)) == [(row.week, row.n) for row in weeks]


def test_matches_hold_the_same_pairs_as_tagged_rows(workspace: Workspace) -> None:
    pairs = "SELECT flight_id, rules_version, explode(rule_ids) AS rule_id FROM flights_tagged"
    matches = "SELECT flight_id, rules_version, rule_id FROM flights_matches"
    assert rows(workspace, f"SELECT count(*) FROM ({pairs}) EXCEPT SELECT count(*) FROM ({matches})") == []
    assert rows(workspace, f"({pairs}) EXCEPT ({matches})") == []


# tests/spark/test_join.py compares joined rows with Spark too, and test_spark_agrees_with_every_tag these rules
@pytest.mark.soak
def test_spark_agrees_with_every_joined_row(workspace: Workspace) -> None:
    """Every rule of the join as a plain SQL condition over all pairs of a flight and the weather before it."""
    ((version,),) = rows(workspace, "SELECT max(rules_version) FROM flights_weather_tagged")
    rules = enabled_rules(workspace, version, "flights_weather")
    assert len(rules) > 5
    # The weather was observed at full hours, by which Spark finds it without trying all pairs.
    assert rows(workspace, "SELECT * FROM weather WHERE observed_at <> date_trunc('HOUR', observed_at)") == []
    ids = ", ".join(f"IF({condition(rule)}, '{rule['rule_id']}', NULL)" for rule in rules)
    expected = (
        f"SELECT flights.flight_id, weather.observed_at, array_sort(array_compact(array({ids}))) AS rule_ids "
        "FROM (SELECT *, explode(sequence(0, 3)) AS hours FROM flights) AS flights "
        "JOIN weather ON flights.origin = weather.origin AND "
        "weather.observed_at = date_trunc('HOUR', flights.scheduled_at) - make_dt_interval(0, flights.hours) "
        "WHERE weather.observed_at >= flights.scheduled_at - INTERVAL 3 HOURS"
    )
    pairs = workspace.spark.sql(expected).where("size(rule_ids) > 0").collect()
    assert len(pairs) > 10_000
    found = "SELECT flights.flight_id, weather.observed_at, rule_ids FROM flights_weather_tagged"
    assert Counter((*row[:2], *row[2]) for row in rows(workspace, found)) == Counter(
        (*row[:2], *row[2]) for row in pairs
    )


def test_the_second_run_of_the_join_takes_the_last_month_alone(workspace: Workspace) -> None:
    late = "(SELECT count(*) FROM {0} WHERE month({1}) = 12)".format
    expected = rows(workspace, f"SELECT {late('flights', 'scheduled_at')} + {late('weather', 'observed_at')}")[0][0]
    taken = rows(workspace, "SELECT rows FROM runs WHERE scope = 'flights_weather' ORDER BY batch")
    assert len(taken) == 2
    assert taken[-1].rows == expected


def test_the_impossible_wind_is_in_quarantine(shown: Demonstration, workspace: Workspace) -> None:
    ((reason,),) = rows(workspace, "SELECT reason FROM quarantine_weather")
    assert "possible_wind" in reason
    assert "possible_wind" in shown.output


def test_rules_on_flights_and_weather_are_shown(shown: Demonstration, workspace: Workspace) -> None:
    chapter = shown.output.split("Flights and the weather before them")[1].split("\n7. ")[0]
    for rule in enabled_rules(workspace, workspace.lake.version("rules"), "flights_weather"):
        assert rule["rule_id"] in chapter


# tests/spark/test_local_sql.py::test_random_queries compares answers with Spark too
@pytest.mark.soak
def test_questions_are_answered_as_spark_answers_them(shown: Demonstration, workspace: Workspace) -> None:
    configuration = load_configuration(shown.folder / "deltatag.toml")
    local = Workspace(replace(configuration, lake=replace(configuration.lake, runner="local")))
    for query in read_statements("queries.sql"):
        found = local_result(local, query.text)
        assert found is not None, query.title
        assert found.to_pylist() == statement_result(workspace, query.text).to_pylist(), query.title
        assert query.title in shown.output
    for query in read_statements("more_queries.sql"):
        assert local_result(local, query.text) is None
        assert statement_result(workspace, query.text).num_rows >= 4, query.title


def test_rows_on_which_a_rule_raised_are_counted(shown: Demonstration, workspace: Workspace) -> None:
    (zero,) = rows(workspace, "SELECT count(*) FROM flights WHERE dep_delay = 0 AND arr_delay IS NOT NULL")
    (counted,) = rows(workspace, "SELECT sum(errors['snowball']) FROM runs")
    assert counted[0] == zero[0] > 0


def test_what_changed_is_shown(shown: Demonstration) -> None:
    chapter = shown.output.split("What changed with the edit")[1].split("\n6. ")[0]
    for edit in ("added", "deleted", "changed", "changed, rejected", "switched on"):
        assert edit in chapter


def test_a_second_demonstration_takes_the_place_of_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    assert make_place(folder) is False
    (folder / "lake").mkdir()
    (folder / "lake" / "old").touch()
    (folder / "my_notes.txt").touch()
    assert make_place(folder) is True
    assert not (folder / "lake").exists()
    assert (folder / "my_notes.txt").exists()
    assert (folder / DAGSTER_HOME).is_dir()


@pytest.mark.parametrize("edit", ["rule", "configuration", "own table", "nothing"])
def test_an_edited_demonstration_stays_unless_its_owner_lets_it_go(tmp_path: Path, edit: str) -> None:
    import polars as pl

    folder = tmp_path / "demo"
    make_place(folder)
    rules = pl.DataFrame({"rule_id": ["a"]})
    for table in ("rules", "runs"):
        rules.write_delta(folder / "lake" / table)
    remember(folder)
    rules.write_delta(folder / "lake" / "runs", mode="append")
    if edit == "rule":
        rules.write_delta(folder / "lake" / "rules", mode="append")
    elif edit == "configuration":
        (folder / "deltatag.toml").write_text("[lake]\nroot = 'lake'\n", encoding="utf-8")
    elif edit == "own table":
        (folder / "lake" / "mine").mkdir()
    told = {"rule": "the table rules changed", "configuration": "deltatag.toml changed", "own table": "mine added"}
    if edit != "nothing":
        with pytest.raises(ConfigurationError, match=told[edit]):
            make_place(folder)
        assert (folder / "lake" / "rules").is_dir()
    seen: list[list[str]] = []
    assert make_place(folder, lambda edits: not seen.append(edits)) is True
    assert len(seen) == (edit != "nothing")
    assert not (folder / "lake").exists()


@pytest.mark.parametrize("answer", ["y", "", "n"])
def test_whoever_sits_at_a_terminal_is_asked_whether_edits_may_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or answer)
    for terminal in (False, True):
        for stream in ("stdin", "stdout"):
            monkeypatch.setattr(f"sys.{stream}.isatty", lambda terminal=terminal: terminal)
        assert Story(tmp_path)._may_remove(["the table rules changed"]) == (terminal and answer == "y")
        assert Story(tmp_path, force=True)._may_remove(["the table rules changed"])
    (question,) = asked
    assert "the table rules changed" in question


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    with pytest.raises(ConfigurationError, match="is not empty"):
        make_place(tmp_path)
    assert (tmp_path / "lake").is_dir()


@pytest.mark.parametrize("name", SQL_FILES)
def test_each_statement_has_a_title_and_no_semicolon(name: str) -> None:
    statements = read_statements(name)
    assert statements
    for statement in statements:
        assert statement.title
        assert not statement.text.endswith(";")
