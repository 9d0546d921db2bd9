"""A back-test against brute force over the same rows, and that it writes nothing."""

from __future__ import annotations

import json
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import rules_index as ri
from deltatag.__main__ import main
from pipelines.backtest import Candidate, RuleBacktest, _count, backtest
from pipelines.errors import ConfigurationError, SourceError
from pipelines.explaining.rows import _StoredTable
from pipelines.sources.event_times import bounds
from tests.unit.language.clock import within

ROWS = 5_000
STREAMS = {"s": {"source": "lake/source", "event_time": "t", "key": ["id"]}, "timeless": {"source": "lake/source"}}
JOINS = {"j": {"streams": ["s", "w"], "on": ["id"], "window": "1 hour"}}


def source() -> pl.DataFrame:
    first = datetime(2024, 3, 30, 12, tzinfo=UTC)  # clocks change on the 31st
    return pl.DataFrame(
        {
            "id": range(ROWS),
            "x": [None if i % 17 == 0 else i % 100 for i in range(ROWS)],
            "name": [f"n{i % 7}" for i in range(ROWS)],
            "t": [None if i % 1_000 == 999 else first + timedelta(minutes=i) for i in range(ROWS)],
        }
    )


@pytest.fixture
def workspace(new_workspace):
    streams = STREAMS | {"w": {"source": "lake/source", "event_time": "t"}}
    found = new_workspace(streams, {"time_zone": "Europe/Berlin"}, spark=False, joins=JOINS)
    place = found.configuration.streams["s"].source
    for start in range(0, ROWS, 1_250):
        source()[start : start + 1_250].write_delta(place, mode="append")
    return found


def versions(workspace) -> dict[str, int]:
    return {name: workspace.lake.version(name) for name in ("rules", "rule_index", "rule_rejects", "runs")}


def test_counts_are_those_of_brute_force(workspace, add_rules) -> None:
    add_rules(workspace, ("many", "s", "x > 10"), ("few", "s", "x = 99"), ("spark", "s", "factorial(hour(t)) = 3"))
    before = versions(workspace)
    tried = [Candidate("a", "x > 90 AND name <> 'n3'"), Candidate("b", "x > 50", "x > 40 AND name = 'n1'")]
    found = backtest(workspace, "s", [*tried, Candidate("gone", None, "x = 5"), Candidate("e", "100 DIV x > 20")])
    frame = source()
    a = frame.filter((pl.col("x") > 90) & (pl.col("name") != "n3"))
    new, old = pl.col("x") > 50, (pl.col("x") > 40) & (pl.col("name") == "n1")
    first, second, gone, error = found.rules
    assert (found.rows, found.sampled) == (ROWS, False)
    assert first.cost is not None and 0 < first.cost < 1e6
    assert gone.cost is None
    assert (first.matches, first.gained, first.lost) == (a.height, a.height, 0)
    assert first.overlaps == {"many": a.height, "few": a.filter(pl.col("x") == 99).height}
    hours = a["t"].drop_nulls().dt.convert_time_zone("Europe/Berlin").dt.replace_time_zone(None).dt.truncate("1h")
    assert first.over_time == dict(hours.value_counts().iter_rows())
    assert second.matches == frame.filter(new).height
    assert second.gained == frame.filter(new.fill_null(False) & ~old.fill_null(False)).height
    assert second.lost == frame.filter(old.fill_null(False) & ~new.fill_null(False)).height
    assert (gone.matches, gone.lost) == (0, frame.filter(pl.col("x") == 5).height)
    kept = {row["id"] for row in frame.filter(new | old).to_dicts()}
    assert {example["row"]["id"] for example in second.examples} <= kept
    assert error.error is not None or error.errors == frame.filter(pl.col("x") == 0).height
    assert found.notes and "1 rule that needs Spark" in found.notes[0]
    assert versions(workspace) == before and not workspace.lake.exists("s_tagged")


@pytest.mark.parametrize(
    ("since", "until", "first", "last"),
    [
        ("2024-03-31", "2024-04-01", datetime(2024, 3, 30, 23), datetime(2024, 3, 31, 22)),
        ("2024-03-31T04:00", None, datetime(2024, 3, 31, 2), datetime(9000, 1, 1)),
        (None, "2024-03-31T04:00+00:00", datetime(1, 1, 1), datetime(2024, 3, 31, 4)),
    ],
)
def test_a_range_of_event_times(workspace, since: Any, until: Any, first: datetime, last: datetime) -> None:
    found = backtest(workspace, "s", [Candidate("a", "x > 50")], since, until)
    inside = source().filter((pl.col("t") >= first.replace(tzinfo=UTC)) & (pl.col("t") < last.replace(tzinfo=UTC)))
    assert found.rows == inside.height
    assert found.rules[0].matches == inside.filter(pl.col("x") > 50).height


def test_a_sample_is_spread_over_the_source(workspace) -> None:
    found = backtest(workspace, "s", [Candidate("a", "x IS NOT NULL")], sample=500)
    assert found.sampled and 400 <= found.rows <= 600
    hours = found.rules[0].over_time
    assert max(hours) - min(hours) > timedelta(days=3)
    assert backtest(workspace, "s", [Candidate("a", "TRUE")], sample=ROWS).sampled is False


def test_what_cannot_be_tried_is_told(workspace) -> None:
    candidates = [Candidate("spark", "factorial(hour(t)) = 3"), Candidate("wrong", "x >"), Candidate("right", "x > 98")]
    spark, wrong, right = backtest(workspace, "s", candidates).rules
    assert "factorial(hour(t))" in (spark.error or "") and (wrong.error or "").startswith("SYNTAX")
    assert right.error is None and right.matches > 0
    assert backtest(workspace, "s", candidates[:2]).rows == 0  # nothing is read where no rule can be tried
    for name, options, message in (
        ("j", {}, "is a join"),
        ("nowhere", {}, "nowhere"),
        ("timeless", {"since": "2024-01-01"}, "no event_time"),
        ("s", {"until": "soon"}, "'soon' is not a time"),
        ("s", {"since": "2024-04-01", "until": "2024-03-31"}, "a later time than --from"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            backtest(workspace, name, [Candidate("a", "TRUE")], **options)


def test_partitions_by_a_timestamp_are_left_to_spark(new_workspace) -> None:
    """The value of such a partition is a text without a zone: in the session's for Spark, in UTC for delta-rs."""
    workspace = new_workspace(STREAMS, {"time_zone": "Europe/Berlin"}, spark=False)
    place = workspace.configuration.streams["s"].source
    times = pa.array([datetime(2024, 1, 1, 0, 30, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    write_deltalake(place, pa.table({"id": [1], "t": times, "other": times}), partition_by=["other", "t"])
    with pytest.raises(SourceError, match="partitioned by t, a TIMESTAMP, and time_zone is not UTC"):
        backtest(workspace, "s", [Candidate("a", "hour(t) = 0")])
    assert _StoredTable(workspace, "it", place, False).dataset() is None
    in_utc = new_workspace(STREAMS, spark=False)
    assert [each.matches for each in backtest(in_utc, "s", [Candidate("a", "hour(t) = 0")]).rules] == [1]


@pytest.mark.slow
def test_rules_refused_for_their_severity_match_nothing(new_workspace, add_rules) -> None:
    found = new_workspace({"s": STREAMS["s"] | {"annotations": ["severity"]}}, spark=False)
    source()[:200].write_delta(found.configuration.streams["s"].source)
    labels = {"labels": {"level": "urgent"}}
    add_rules(found, {"rule_id": "off", "scope": "s", "expression": "x > 1", "labels": [("level", "urgent")]})
    tried = [
        Candidate("a", "x > 90"),
        Candidate("b", "x > 90", None, labels),
        Candidate("c", "x > 90", "x > 90", {}, labels),
    ]
    result = backtest(found, "s", tried)
    first, second, third = result.rules
    assert first.matches > 0 and first.overlaps == {} and len(result.notes) == 1
    assert second.error is not None and second.error.startswith("UNKNOWN_SEVERITY")
    assert (third.error, third.gained, third.lost) == (None, first.matches, 0)


@pytest.mark.slow
def test_the_command_line(workspace, add_rules, tmp_path: Path, capsys, monkeypatch) -> None:
    configuration = workspace.configuration.path
    configuration.write_text('[lake]\nroot = "lake"\n[streams.s]\nsource = "lake/source"\nevent_time = "t"\n')
    monkeypatch.setenv("DELTATAG_CONFIG", str(configuration))
    add_rules(workspace, ("a", "s", "x > 90"))
    workspace.lake.delta("rules").update({"expression": "'x > 95'"}, predicate="rule_id = 'a'")
    picture = tmp_path / "plot.png"
    assert main(["backtest", "s", "x > 97", "--plot", str(picture), "--json"]) == 0
    (rule,) = json.loads(capsys.readouterr().out)["rules"]
    assert rule["matches"] == rule["gained"] == source().filter(pl.col("x") > 97).height
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["backtest", "s", "--versions", "1", "2", "--json"]) == 0
    (rule,) = json.loads(capsys.readouterr().out)["rules"]
    assert (rule["rule_id"], rule["gained"]) == ("a", 0)
    assert rule["lost"] == source().filter((pl.col("x") > 90) & (pl.col("x") <= 95)).height
    file = tmp_path / "rules.csv"
    file.write_text("rule_id,scope,expression\na,s,x > 94\nbad,s,y > 1\n")
    assert main(["backtest", "s", "--file", str(file)]) == 1
    told = capsys.readouterr()
    assert "nothing was written" in told.out and "bad is not tried: UNKNOWN_COLUMN" in told.err
    assert main(["backtest", "s", "--versions", "1", "1"]) == 0
    assert "no rule of s is in the file, or differs between the two versions" in capsys.readouterr().out
    assert main(["backtest", "s"]) == main(["backtest", "s", "TRUE", "--file", str(file)]) == 2
    assert main(["backtest", "s", "TRUE", "--plot", str(tmp_path / "none" / "x.png")]) == 2


@pytest.mark.slow
def test_edits_of_other_columns_than_the_text(workspace, add_rules, tmp_path: Path, capsys, monkeypatch) -> None:
    streams = '[streams.s]\nsource = "lake/source"\nevent_time = "t"\n[streams.o]\nsource = "lake/source"\n'
    workspace.configuration.path.write_text(f'[lake]\nroot = "lake"\n{streams}')
    monkeypatch.setenv("DELTATAG_CONFIG", str(workspace.configuration.path))
    add_rules(workspace, *((name, "s", "x > 90") for name in ("off", "moved", "late", "draft")))
    rules, since = workspace.lake.delta("rules"), datetime(2024, 3, 31, 1, tzinfo=UTC)
    rules.update({"enabled": "false"}, predicate="rule_id IN ('off', 'draft')")
    rules.update({"scope": "'o'"}, predicate="rule_id = 'moved'")
    rules.update({"valid_from": f"TIMESTAMP '{since.isoformat()}'"}, predicate="rule_id = 'late'")
    matching = source().filter(pl.col("x") > 90)
    every, before = matching.height, matching.filter(~(pl.col("t") >= since).fill_null(False)).height

    def tried(*arguments: str) -> dict[str, tuple[int, int, int]]:
        """By rule: matches, gained, lost."""
        assert main(["backtest", *arguments, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        notes.extend(told["notes"])
        return {each["rule_id"]: (each["matches"], each["gained"], each["lost"]) for each in told["rules"]}

    notes: list[str] = []
    late = (every - before, 0, before)
    edited = {"draft": (0, 0, every), "late": late, "moved": (0, 0, every), "off": (0, 0, every)}
    assert tried("s", "--versions", "1", "4") == edited
    assert tried("o", "--versions", "1", "4") == {"moved": (every, every, 0)}
    assert tried("s", "--versions", "2", "3") == {"moved": (0, 0, every)}
    file = tmp_path / "rules.jsonl"
    rows = [
        {"rule_id": "off", "scope": "s", "expression": "x > 90", "enabled": True},
        {"rule_id": "late", "scope": "s", "expression": "x > 90", "enabled": False},
        {"rule_id": "draft", "scope": "s", "expression": "x > 80", "enabled": False},
        {"rule_id": "new", "scope": "s", "expression": "x > 90", "valid_to": since.isoformat()},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert not notes
    new = matching.filter(pl.col("t") < since).height
    found = tried("s", "--file", str(file))
    assert found == {"off": (every, every, 0), "late": (0, 0, late[0]), "draft": (0, 0, 0), "new": (new, new, 0)}
    assert notes == ["Disabled rules match nothing: draft."]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"expression": "x > 90"}', "has no column rule_id, which"),
        ('{"rule_id": "a"}', "has no column expression, which"),
        ('{"rule_id": "a", "expression": "x > 90"}\n{}', "rule 2: it has no rule_id, which"),
    ],
)
def test_a_file_without_ids_or_expressions_is_refused(
    workspace, tmp_path: Path, capsys, monkeypatch, text: str, told: str
) -> None:
    workspace.configuration.path.write_text('[lake]\nroot = "lake"\n[streams.s]\nsource = "lake/source"\n')
    monkeypatch.setenv("DELTATAG_CONFIG", str(workspace.configuration.path))
    (tmp_path / "rules.jsonl").write_text(text)
    assert main(["backtest", "s", "--file", str(tmp_path / "rules.jsonl")]) == 1
    assert told in capsys.readouterr().err


def test_the_values_of_examples_are_shown_as_in_sql(new_workspace, capsys, monkeypatch) -> None:
    found = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    found.configuration.path.write_text('[lake]\nroot = "lake"\n[streams.s]\nsource = "lake/source"\n')
    monkeypatch.setenv("DELTATAG_CONFIG", str(found.configuration.path))
    rows = pl.DataFrame({"x": [1, 1], "name": [None, "a b, c"], "raw": [b"\xff", b""], "note": ["", "n" * 1_000]})
    rows.write_delta(found.configuration.streams["s"].source)
    assert main(["backtest", "s", "x = 1 AND (name IS NULL OR raw = X'' OR note = '')"]) == 0
    first, second = (line for line in capsys.readouterr().out.splitlines() if ": gained: " in line)
    assert first.endswith(": x = 1, name = NULL, raw = X'ff', note = ''")
    assert ": x = 1, name = 'a b, c', raw = X'', note = 'nnn" in second and len(second) < 300


def test_a_text_that_never_compiled_is_corrected(workspace) -> None:
    wrong = ["x >", "y > 1", "x > 'a'", "x IN LIST('none')"]
    tried = [Candidate(text, "x > 90", text) for text in [*wrong, "factorial(hour(t)) = 3"]]
    *corrected, spark = backtest(workspace, "s", tried).rules
    every = source().filter(pl.col("x") > 90).height
    assert [(each.error, each.gained, each.lost) for each in corrected] == [(None, every, 0)] * len(wrong)
    assert spark.error is not None and spark.error.startswith("ANALYSIS")


def test_an_event_time_in_another_case(new_workspace) -> None:
    found = new_workspace({"s": {**STREAMS["s"], "event_time": "T"}}, spark=False)
    source().write_delta(found.configuration.streams["s"].source)
    (rule,) = backtest(found, "s", [Candidate("a", "x > 5")], since="2024-03-31").rules
    assert rule.matches == sum(rule.over_time.values()) > 0


@pytest.mark.parametrize("hours", [0, 1, 24 * 366 * 8_000], ids=["last year", "year 10000 in the zone", "year 18000"])
def test_times_that_python_lacks_are_counted_and_shown(workspace, hours: int) -> None:
    """In Berlin the last second of the year 9999 in UTC is one of the year 10000."""
    last = 253_402_300_799_000_000 - 3_600_000_000 + hours * 3_600_000_000
    more = pl.DataFrame({"id": [-1], "x": [200], "name": ["n"], "t": pl.Series([last]).cast(pl.Datetime("us", "UTC"))})
    more.write_delta(workspace.configuration.streams["s"].source, mode="append")
    (rule,) = backtest(workspace, "s", [Candidate("a", "x = 200")]).rules
    assert (rule.matches, sum(rule.over_time.values())) == (1, int(hours == 0))
    assert [example["row"]["id"] for example in rule.examples] == [-1]


@pytest.mark.parametrize("edge", [{"since": "0001-01-01"}, {"until": "9999-12-31T23:59-05:00"}])
def test_a_bound_at_the_edge_of_the_years(workspace, edge: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="there is no bound"):
        backtest(workspace, "s", [Candidate("a", "x > 5")], **edge)


def test_a_time_of_day_is_no_day() -> None:
    day, zone = pa.date32(), ZoneInfo("Europe/Berlin")
    assert bounds("2024-03-31", "2024-03-31T22:00Z", day, zone) == (date(2024, 3, 31), date(2024, 4, 1))
    with pytest.raises(ConfigurationError, match=r"and '2024-03-31T12:00' is a time of a day; give a day"):
        bounds("2024-03-31T12:00", None, day, zone)


def test_bars_of_all_rules_cover_the_same_periods(workspace, tmp_path: Path, capsys, monkeypatch) -> None:
    configuration = workspace.configuration.path
    configuration.write_text(
        '[lake]\nroot = "lake"\n[rules]\ntime_zone = "Europe/Berlin"\n'
        '[streams.s]\nsource = "lake/source"\nevent_time = "t"\n'
    )
    monkeypatch.setenv("DELTATAG_CONFIG", str(configuration))
    file = tmp_path / "rules.csv"
    file.write_text("rule_id,scope,expression\nlate,s,id >= 2500 AND id < 4000\nnever,s,x > 500\nall,s,TRUE\n")
    assert main(["backtest", "s", "--file", str(file)]) == 0
    told = capsys.readouterr().out
    assert "over time: 2024-03-30 13:00 to 2024-04-03 01:59, 2 hours a bar" in told  # 85 hours, local in Berlin
    bars = {
        line.split()[0]: line.split()[7:] for line in told.splitlines() if line.startswith(("late", "never", "all"))
    }
    assert bars["never"] == [] and len(bars["all"][0]) == 43
    assert len(bars["late"][0]) == 13  # 26 of these hours
    assert "of the first" not in told
    file.write_text("rule_id,scope,expression\n" + "".join(f"r{number},s,id < {number}\n" for number in range(7)))
    assert main(["backtest", "s", "--file", str(file)]) == 0
    assert "those of the first 6 rules" in capsys.readouterr().out


def test_few_far_times_do_not_flatten_the_bars(workspace, capsys, monkeypatch) -> None:
    configuration = workspace.configuration.path
    configuration.write_text('[lake]\nroot = "lake"\n[streams.s]\nsource = "lake/source"\nevent_time = "t"\n')
    monkeypatch.setenv("DELTATAG_CONFIG", str(configuration))
    source = workspace.configuration.streams["s"].source
    far = [datetime(9999, 12, 31, tzinfo=UTC), datetime(1900, 1, 1, tzinfo=UTC)]
    rows = pl.read_delta(source).head(2)
    rows.with_columns(id=pl.Series([0, 1]), t=pl.Series(far, dtype=rows["t"].dtype)).write_delta(source, mode="append")
    assert main(["backtest", "s", "TRUE"]) == 0
    told = capsys.readouterr().out
    assert "over time: 2024-03-30 12:00 to 2024-04-02 23:59; 2 matches far outside of it, 2 hours a bar" in told
    monkeypatch.chdir(configuration.parent)
    assert main(["backtest", "s", "id < 100", "--plot", "few.png"]) == 0
    told = capsys.readouterr().out
    assert "; only few.png was written\n" in told
    assert "over time: 1900-01-01 00:00 to 9999-12-31 00:59," in told, "of a hundred matches, two are not few"


def test_overlaps_and_examples_are_counted_of_as_many_rules_as_are_wanted(workspace, add_rules) -> None:
    """If each row matches hundreds of rules, their overlaps take minutes."""
    add_rules(workspace, ("many", "s", "x > 10"))
    tried = [Candidate("bad", "nothing > 1"), Candidate("a", "x > 90"), Candidate("b", "x > 50")]
    whole, part = backtest(workspace, "s", tried), backtest(workspace, "s", tried, in_full=1)
    for one, two in zip(whole.rules, part.rules, strict=True):
        assert (one.matches, one.gained, one.over_time, one.error) == (
            two.matches,
            two.gained,
            two.over_time,
            two.error,
        )
    assert [bool(each.overlaps and each.examples) for each in whole.rules] == [False, True, True]
    assert [bool(each.overlaps or each.examples) for each in part.rules] == [False, True, False]


def test_a_rule_that_matches_nothing_costs_next_to_nothing_beside_thousands() -> None:
    rows = pa.table({"x": pa.array([-1], pa.int32())})
    texts = [(f"{kind}{number}", f"x = {number}") for number in range(4_000) for kind in "tn"]
    compiled = ri.compile_rules(texts, rows.schema)
    started = time.process_time()
    found = [RuleBacktest(str(number)) for number in range(4_000)]
    _count(found, set(map(id, found)), compiled, rows, None, ZoneInfo("UTC"))
    assert within(0.4, time.process_time() - started)  # with a look at each rule for each other one: 1.3 seconds
