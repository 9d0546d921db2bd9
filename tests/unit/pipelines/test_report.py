"""The report's page: what it counts against brute force, and that no text of a rule becomes HTML."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from deltatag.__main__ import main
from pipelines.lake.runs import DONE, MicroBatch, record_plan
from pipelines.report import report_scopes
from pipelines.reporting.counting import TaggedRows, count, together
from pipelines.reporting.page import page

ZONE = "Europe/Berlin"
STREAM = {"s": {"source": "lake/source", "event_time": "t"}}
HOSTILE = "name = '</script><script>alert(1)</script><!-- & \u2028 \"'"


@pytest.fixture
def workspace(new_workspace):
    found = new_workspace(STREAM, spark=False)
    source = pl.DataFrame({"x": [1], "name": ["a"]}).with_columns(t=pl.datetime(2024, 1, 1, time_zone="UTC"))
    source.write_delta(found.configuration.streams["s"].source)
    return found


def write_tagged(workspace, times: list[Any], ids: list[list[str]], kind: pl.DataType) -> None:
    """Two files of rows with a time and the ids of their rules."""
    frame = pl.DataFrame({"t": pl.Series(times, dtype=kind), "rule_ids": pl.Series(ids, dtype=pl.List(pl.String))})
    frame = frame.with_columns(rules_version=pl.lit(1, pl.Int64), source_version=pl.lit(0, pl.Int64))
    half = frame.height // 2
    for part in (frame[:half], frame[half:]):
        part.write_delta(workspace.lake.uri("s_tagged"), mode="append")


def data_of(text: str) -> dict[str, Any]:
    """The data in a page, as the browser reads them."""
    start = text.index('id="data">') + len('id="data">')
    found: dict[str, Any] = json.loads(text[start : text.index("</script>", start)])
    return found


@pytest.mark.parametrize("kind", [pl.Datetime("us", "UTC"), pl.Datetime("us"), pl.Date()], ids=["time", "ntz", "date"])
def test_counts_are_those_of_brute_force(workspace, kind: pl.DataType) -> None:
    draw = random.Random(5)
    first = datetime(2024, 3, 29, tzinfo=UTC)  # clocks change on the 31st
    times: list[Any] = [first + timedelta(minutes=draw.randrange(5 * 1440)) for _ in range(3_000)]
    if isinstance(kind, pl.Date):
        times = [time.date() for time in times]
    elif kind == pl.Datetime("us"):
        times = [time.replace(tzinfo=None) for time in times]
    times[7] = None
    ids = [sorted(draw.sample("abcde", draw.randrange(4))) for _ in times]
    write_tagged(workspace, times, ids, kind)
    rows = TaggedRows(workspace.lake, "s_tagged", [("t",)], ZONE)
    found = count(rows)
    assert (found.rows, found.all_rows, found.outside) == (3_000, 3_000, 1)
    assert found.matches == Counter(rule for row in ids for rule in row)
    assert found.matched == sum(map(bool, ids))

    def start(time: Any) -> str:
        if isinstance(time, datetime):
            local = time.astimezone(ZoneInfo(ZONE)).replace(tzinfo=None) if time.tzinfo else time
            return (
                f"{local:%Y-%m-%d} {local.hour // 6 * 6:02}:00"
                if found.periods.unit == "6h"
                else f"{local:%Y-%m-%d %H}:00"
            )
        return f"{time:%Y-%m-%d} 00:00"

    dated = [(start(time), row) for time, row in zip(times, ids, strict=True) if time is not None]
    starts = found.periods.starts
    assert dict(zip(starts, found.rows_over_time, strict=True)) == {
        each: sum(at == each for at, _ in dated) for each in starts
    }
    assert found.matched_over_time == tuple(sum(at == each and bool(row) for at, row in dated) for each in starts)
    for rule, over_time in found.over_time.items():
        assert over_time.tolist() == [sum(at == each and rule in row for at, row in dated) for each in starts]
    pairs = together(rows, ["b", "e"])
    assert pairs.tolist() == [
        [sum({one, other} <= set(row) for row in ids) for other in ("b", "e")] for one in ("b", "e")
    ]


def test_a_time_far_from_all_others_does_not_flatten_the_plot(workspace) -> None:
    times = [date(2024, 1, 1 + day % 20) for day in range(1_000)] + [date(9999, 12, 31), date(1, 1, 1)]
    write_tagged(workspace, times, [["a"]] * len(times), pl.Date())
    found = count(TaggedRows(workspace.lake, "s_tagged", [("t",)], ZONE))
    assert (found.periods.starts[0][:10], found.periods.starts[-1][:10]) == ("2024-01-01", "2024-01-20")
    assert (found.outside, found.matches) == (2, {"a": 1_002})


@pytest.mark.parametrize("zone", [ZONE, "America/New_York"])
def test_times_of_all_years(workspace, zone: str) -> None:
    times = [datetime(1 + 500 * number, 1, 1, tzinfo=UTC) for number in range(20)] * 5
    write_tagged(workspace, times, [["a"]] * len(times), pl.Datetime("us", "UTC"))
    found = count(TaggedRows(workspace.lake, "s_tagged", [("t",)], zone))
    assert (found.periods.unit, found.periods.starts[0]) == (
        "100y",
        "0070-01-01 00:00" if zone == ZONE else "0470-01-01 00:00",
    )
    assert (found.outside, sum(found.rows_over_time), found.matches) == (5, 95, {"a": 100})


@pytest.mark.parametrize("times", [[], [None, None], [datetime(2024, 1, 1, tzinfo=UTC)] * 2], ids=["no", "NULL", "one"])
def test_few_rows(workspace, times: list[Any]) -> None:
    write_tagged(workspace, times, [["a"]] * len(times), pl.Datetime("us", "UTC"))
    found = count(TaggedRows(workspace.lake, "s_tagged", [("t",)], ZONE))
    assert (found.rows, sum(found.rows_over_time) + found.outside) == (len(times), len(times))
    assert (found.matched, found.matches) == (len(times), {"a": len(times)} if times else {})


def test_a_column_named_like_a_field_is_no_obstacle(workspace) -> None:
    """The log's statistics give both the same name."""
    frame = pl.DataFrame({"t": [datetime(2024, 1, 1, tzinfo=UTC)], "a": [{"b": 1}], "a.b": [2], "rule_ids": [["r"]]})
    frame.with_columns(rules_version=pl.lit(1, pl.Int64)).write_delta(workspace.lake.uri("s_tagged"))
    assert count(TaggedRows(workspace.lake, "s_tagged", [("t",)], ZONE)).matches == {"r": 1}


def test_times_in_another_case(workspace) -> None:
    write_tagged(workspace, [datetime(2024, 3, 29, tzinfo=UTC)] * 4, [["a"]] * 4, pl.Datetime("us", "UTC"))
    assert count(TaggedRows(workspace.lake, "s_tagged", [("T",)], ZONE)).over_time == {"a": [4]}


def test_the_page_of_a_stream(workspace, add_rules, tmp_path: Path) -> None:
    add_rules(workspace, ("a", "s", "x > 3"), ("b", "s", "x > 4"), ("hostile<b>", "s", HOSTILE), ("c", "s", "y = 1"))
    labelled = {"rule_id": "late", "scope": "s", "expression": "x > 9", "labels": [("team", "fraud")], "owner": "me"}
    add_rules(workspace, labelled, ("d", "elsewhere", "x = 1"))
    write_tagged(
        workspace,
        [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3)],
        [["a"], ["a", "b"], []],
        pl.Datetime("us", "UTC"),
    )
    batch = MicroBatch("s", 0, DONE, {"end": {}}, 2, "f", 1, datetime.now(UTC), rows=3, matches=3, quarantined=0)
    record_plan(workspace.lake, batch)
    (result,) = report_scopes(workspace, None, tmp_path / "new" / "pages")
    assert (result.error, result.rules, result.rows) == (None, 5, 3)
    text = Path(result.file or "").read_text("utf-8")
    assert "<script>alert" not in text and text.count("</script>") == 2
    assert not re.search(r"(?:src|href)=.?http|@import|url\(", text)
    found = data_of(text)
    rules = {each["id"]: each for each in found["rules"]}
    assert (rules["late"]["labels"], rules["late"]["owner"]) == ({"team": "fraud"}, "me")
    assert rules["hostile<b>"]["expression"] == HOSTILE
    assert {name: rule["matches"] for name, rule in rules.items()} == {
        "a": 2,
        "b": 1,
        "hostile<b>": 0,
        "c": 0,
        "late": 0,
    }
    assert found["together"] == {"ids": ["a", "b"], "rows": [[2, 1], [1, 1]]}
    assert {(each["rule_id"], each["kind"]) for each in found["findings"]} >= {("b", "implied"), ("c", "rejected")}
    newest = found["edits"][0]
    assert (newest["version"], newest["added"], newest["changed"], newest["removed"]) == (2, 1, 0, 0)
    assert [each["batch"] for each in found["runs"]] == [0]
    assert sorted(each.name for each in (tmp_path / "new" / "pages").iterdir()) == ["s.html"]


@pytest.mark.parametrize("labels", ["red, team=fraud", ["red", None, "team=fraud"], {"red": 0, "team=fraud": 1}, 7])
def test_labels_that_are_no_map_of_texts(workspace, tmp_path: Path, labels: Any) -> None:
    """Whoever may add rules may also replace the column by one of another type."""
    rules = pl.DataFrame({"rule_id": ["a", "b"], "scope": ["s", "s"], "expression": ["x > 3"] * 2})
    rules = rules.with_columns(labels=pl.Series([labels, None]))
    rules.write_delta(workspace.lake.uri("rules"), mode="overwrite", delta_write_options={"schema_mode": "overwrite"})
    (result,) = report_scopes(workspace, ["s"], tmp_path)
    assert result.error is None
    found = data_of(Path(result.file or "").read_text("utf-8"))
    shown = {each["id"]: each["labels"] for each in found["rules"]}
    if isinstance(labels, (str, list)):
        assert shown == {"a": {"red": None, "team=fraud": None}, "b": {}}
    assert shown["a"] and found["edits"][0]["added"] == 2


def test_edits_are_told(workspace, add_rules, tmp_path: Path) -> None:
    add_rules(workspace, ("a", "s", "x > 3"), ("b", "s", "x > 4"))
    table = workspace.lake.delta("rules")
    table.update({"expression": "'x > 5'"}, predicate="rule_id = 'a'")
    table.delete("rule_id = 'b'")
    (result,) = report_scopes(workspace, ["s"], tmp_path)
    deleted, updated, added = data_of(Path(result.file or "").read_text("utf-8"))["edits"][:3]
    assert (deleted["removed"], updated["changed"], added["added"]) == (1, 1, 2)
    (change,) = updated["rules"]
    assert (change["before"], change["expression"], change["others"]) == ("x > 3", "x > 5", "")


def test_commits_that_say_nothing_about_themselves(workspace, add_rules, tmp_path: Path) -> None:
    """A writer may leave commitInfo out, and then the history lacks its commits."""
    add_rules(workspace, ("a", "s", "x > 3"))
    for log in Path(workspace.lake.uri("rules"), "_delta_log").glob("*.json"):
        lines = log.read_text("utf-8").splitlines(keepends=True)
        log.write_text("".join(line for line in lines if "commitInfo" not in line), "utf-8")
    (result,) = report_scopes(workspace, ["s"], tmp_path)
    assert result.error is None and data_of(Path(result.file or "").read_text("utf-8"))["edits"] == []


def test_a_scope_without_rows_and_one_that_is_not_there(workspace, tmp_path: Path, capsys, monkeypatch) -> None:
    (result,) = report_scopes(workspace, ["s"], tmp_path)
    assert result.error is None
    assert data_of(Path(result.file or "").read_text("utf-8"))["notes"] == ["No row has been tagged yet."]
    configuration = workspace.configuration.path
    configuration.write_text('[lake]\nroot = "lake"\n[streams.s]\nsource = "lake/source"\nevent_time = "t"\n')
    monkeypatch.setenv("DELTATAG_CONFIG", str(configuration))
    assert main(["report", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["report", "s", "--output", str(tmp_path / "file")]) == 1
    assert "file" in capsys.readouterr().err


def test_values_that_json_has_not_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        page({"scope": "s", "rows": float("nan")})
