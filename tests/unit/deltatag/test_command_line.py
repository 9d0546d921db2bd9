"""The command line where no JVM is needed: help, exit statuses, one paragraph for each mistake."""

from __future__ import annotations

import datetime
import json
import re
import shlex
import shutil
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltatag.__main__ import main
from tests.unit.deltatag.small_lake import STREAM, rules


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["tag", "--nonsense"],
        ["join", "--skip"],
        ["validate", "x = 1"],
        ["lint", "--runs", "0"],
        ["lint", "--noisy", "1.5"],
        ["lint", "--noisy", "nan"],
        ["demo", "--json"],
    ],
)
def test_usage_errors_are_two(arguments: list[str]) -> None:
    assert main(arguments) == 2


def test_init_makes_what_is_missing_and_leaves_the_rest(tmp_path: Path, capsys) -> None:
    place = tmp_path / "new"
    assert main(["init", str(place), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)["made"]
    assert made == [str(place / "deltatag.toml"), "rules", "rule_rejects", "rule_index", "runs"]
    (place / "deltatag.toml").write_text('[lake]\nroot = "lake"\n# mine\n')
    assert main(["init", str(place)]) == 0
    assert "# mine" in (place / "deltatag.toml").read_text()
    assert "there already" in capsys.readouterr().out
    assert main(["init", str(tmp_path / "it's new")]) == 0
    _, command = capsys.readouterr().out.strip().split(", then: ")
    assert shlex.split(command) == ["deltatag", "run", "--config", str(tmp_path / "it's new" / "deltatag.toml")]
    shutil.rmtree(place / "lake")
    assert main(["init", str(place)]) == 0
    assert "Next: deltatag run --config" in capsys.readouterr().out


def test_the_template_is_a_whole_configuration_once_its_comments_are_taken_away(tmp_path: Path) -> None:
    from pipelines.initialise import TEMPLATE
    from pipelines.settings.configuration import _STREAM_KEYS, load_configuration

    named = set(re.findall(r"\w+", TEMPLATE))
    assert {*_STREAM_KEYS, "catalog", "severities", "time_limit", "maintenance", "quarantine"} <= named
    _, *lines = TEMPLATE.splitlines()
    text = "\n".join(line.removeprefix("# ") for line in lines)
    text += '\n[streams.weather]\nsource = "lake/weather"\nevent_time = "t"\n'
    (tmp_path / "deltatag.toml").write_text(text)
    found = load_configuration(tmp_path / "deltatag.toml")
    assert set(found.streams) == {"flights", "weather"}
    assert set(found.joins) == {"flights_weather"}


def test_bigint_ids(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path), "--id-type", "bigint"]) == 0
    assert str(DeltaTable(tmp_path / "lake" / "rules").schema().fields[0].type.type) == "long"


def test_ids_of_rules_that_are_there_keep_their_type(tmp_path: Path, capsys) -> None:
    assert main(["init", str(tmp_path)]) == 0
    assert main(["init", str(tmp_path), "--id-type", "bigint"]) == 2
    assert "have ids of type string, not bigint" in capsys.readouterr().err
    assert main(["init", str(tmp_path), "--id-type", "string"]) == 0
    assert main(["init", str(tmp_path), "--config", str(tmp_path / "deltatag.toml")]) == 2
    assert "DIR or --config" in capsys.readouterr().err


def test_compile_reports_and_status_follows(folder: Path, capsys) -> None:
    rules(("a", "s", "x > 1"), ("bad", "s", "y > 1"))
    assert main(["compile", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert (result["state"], result["rules"], result["rejects"]) == ("compiled", 2, 1)
    assert main(["compile"]) == 0
    assert "s: unchanged, 2 rules, 1 rejected" in capsys.readouterr().out
    assert main(["status", "--json"]) == 0
    (standing,) = json.loads(capsys.readouterr().out)
    assert (standing["rules_version"], standing["compile_due"], standing["lag_rows"]) == (1, False, 2)
    assert main(["status"]) == 0
    assert "1 version, 2 rows" in capsys.readouterr().out


def test_validate(folder: Path, capsys) -> None:
    assert main(["validate", "x > 1", "--scope", "s"]) == 0
    assert "indexed: x" in capsys.readouterr().out
    assert main(["validate", "x > 1 AND yy = 2", "--scope", "s"]) == 1
    error = capsys.readouterr().err.splitlines()
    assert error[0].startswith("UNKNOWN_COLUMN")
    assert error[2].index("^") == error[1].index("yy")
    assert main(["validate", "x >", "--scope", "s", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == "SYNTAX"


@pytest.mark.parametrize(
    ("toml", "arguments", "status", "message"),
    [
        (None, ["compile"], 2, "deltatag init"),
        ("[lake", ["compile"], 2, "not valid TOML"),
        ('[lake]\nroot = "lake"\n', ["compile"], 1, "There is no Delta table at"),
        ('[lake]\nroot = "lake"\n', ["run"], 1, "Make it with: deltatag init"),
        (None, ["compile", "--config", "elsewhere.toml"], 2, "elsewhere.toml"),
    ],
)
def test_mistakes_are_one_paragraph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, toml: str | None, arguments, status: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if toml is not None:
        Path("deltatag.toml").write_text(toml)
    assert main(arguments) == status
    error = capsys.readouterr().err
    assert error.startswith("deltatag: ")
    assert message in error
    assert error.count("\n") == 1
    assert "Traceback" not in error


def test_an_unknown_scope_is_a_usage_error(folder: Path, capsys) -> None:
    assert main(["compile", "nope"]) == 2
    assert "there is no scope 'nope'; the streams and joins are: s" in capsys.readouterr().err
    assert main(["tag", "nope"]) == 2
    assert "there is no stream 'nope'; the configured streams are: s" in capsys.readouterr().err


@pytest.fixture
def joined(folder: Path) -> Path:
    """The lake with a second stream, and a join of both."""
    sources = {"source": {"id": [3], "x": [3]}, "other": {"id": [3, 4, 5], "y": [1, 2, 3]}}
    for name, columns in sources.items():
        at = pl.datetime(2026, 1, 1, time_zone="UTC").alias("at")
        pl.DataFrame(columns).with_columns(at).write_delta(
            name, mode="append", delta_write_options={"schema_mode": "merge"}
        )
    text = STREAM.replace("source = ", 'event_time = "at"\nsource = ') + STREAM.replace("s]", "o]").replace(
        '"source"', '"other"\nevent_time = "at"'
    )
    Path("deltatag.toml").write_text(
        f'[lake]\nroot = "lake"\n{text}[joins.both]\nstreams = ["s", "o"]\non = ["id"]\nwindow = "1 hour"\n'
    )
    return folder


def test_status_shows_the_last_run_in_the_zone_of_rules(folder: Path, capsys) -> None:
    from pipelines.lake.runs import DONE, MicroBatch, record_plan
    from pipelines.workspace import Workspace

    toml = Path("deltatag.toml")
    toml.write_text(toml.read_text() + '[rules]\ntime_zone = "Asia/Kolkata"\n')
    began, end = datetime.datetime(2024, 3, 1, 20, tzinfo=datetime.UTC), {"version": 0, "index": 0, "snapshot": False}
    record_plan(Workspace.open().lake, MicroBatch("s", 0, DONE, {"end": end}, 1, "f", 1, began))
    write_deltalake("lake/s_tagged", pa.table({"x": [1]}))
    assert main(["status"]) == 0
    assert "2024-03-02 01:30 IST" in capsys.readouterr().out


def test_a_join_is_validated_and_compiled_like_a_stream(joined: Path, capsys) -> None:
    assert main(["validate", "s.x > 1 AND o.y < s.x", "--scope", "both"]) == 0
    assert "indexed: s.x" in capsys.readouterr().out
    assert main(["validate", "s.x > 1 AND y < 2", "--scope", "both"]) == 1
    assert capsys.readouterr().err.startswith("UNKNOWN_COLUMN")
    rules(("pair", "both", "s.x > o.y"), ("alone", "s", "x > 1"))
    assert main(["compile", "--json"]) == 0
    results = {result["scope"]: result for result in json.loads(capsys.readouterr().out)}
    assert {scope: result["rules"] for scope, result in results.items()} == {"s": 1, "o": 0, "both": 1}
    assert main(["compile", "both"]) == 0
    assert "both: unchanged, 1 rule," in capsys.readouterr().out


def test_the_status_of_a_join_sums_what_its_streams_are_behind(joined: Path, capsys) -> None:
    rules(("pair", "both", "s.x > o.y"), ("alone", "s", "x > 1"))
    assert main(["compile"]) == 0
    capsys.readouterr()
    assert main(["status", "--json"]) == 0
    standing = {one["scope"]: one for one in json.loads(capsys.readouterr().out)}
    assert list(standing) == ["s", "o", "both"]
    assert standing["both"]["streams"] == ["s", "o"]
    lags = {scope: (one["lag_versions"], one["lag_rows"]) for scope, one in standing.items()}
    # the stream o has no rule of its own and is not tagged, so nothing is behind there
    assert lags == {"s": (2, 3), "o": (None, None), "both": (3, 6)}
    assert (standing["both"]["source_version"], standing["both"]["last_state"]) == (None, None)
    assert main(["status"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("both"))
    assert "3 versions, 6 rows" in line and "never" in line


@pytest.mark.slow
def test_the_status_of_a_join_follows_its_micro_batches(joined: Path, capsys) -> None:
    from pipelines.lake.runs import DONE, MicroBatch, record_plan
    from pipelines.workspace import Workspace

    assert main(["compile"]) == 0
    end = {"version": 1, "index": 0, "snapshot": False}
    read = {"s": {"end": end, "read_share": 0.9, "earlier_files": 7}, "o": {"end": end, "read_share": 0.9}}
    read["o"]["earlier_files"] = 1
    started = datetime.datetime.now(datetime.UTC)
    lake = Workspace.open().lake
    write_deltalake(lake.uri("both_tagged"), pa.table({"x": [1]}))
    record_plan(lake, MicroBatch("both", 0, DONE, {"sides": read}, 0, "f", None, started, rows=4, matches=1))
    capsys.readouterr()
    assert main(["status", "--json"]) == 0
    both = json.loads(capsys.readouterr().out)[-1]
    assert (both["lag_versions"], both["lag_rows"], both["last_rows"], both["last_state"]) == (1, 1, 4, "done")
    (notice,) = both["notices"]
    assert notice.startswith("both: ") and "90%" in notice
    assert main(["status"]) == 0
    assert notice in capsys.readouterr().out.splitlines()
    # what is read in a moment is not worth a word
    for size, told in ((64 << 20, 1), ((64 << 20) - 1, 0)):
        read["s"]["earlier_bytes"] = size
        record_plan(lake, MicroBatch("both", size, DONE, {"sides": read}, 0, "f", None, started, rows=4, matches=1))
        assert main(["status", "--json"]) in (0, 1)
        assert len(json.loads(capsys.readouterr().out)[-1]["notices"]) == told
        lake.delta("runs").delete(f"batch = {size}")


def test_the_missing_source_of_one_stream_is_a_problem_of_its_joins_too(joined: Path, capsys) -> None:
    Path("other").rename("elsewhere")
    assert main(["status", "--json"]) == 1
    problems = {one["scope"]: one["problem"] for one in json.loads(capsys.readouterr().out)}
    assert problems["s"] is None
    assert "there is no Delta table at" in problems["o"] and "there is no Delta table at" in problems["both"]


def test_an_unknown_join_is_a_usage_error_and_no_join_is_no_error(folder: Path, capsys) -> None:
    assert main(["join", "nope"]) == 2
    assert "there is no join 'nope'; the configured joins are: none" in capsys.readouterr().err
    assert main(["join"]) == 0
    assert "No join is configured yet" in capsys.readouterr().out
    assert main(["join", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_what_a_join_did_is_one_line_and_its_notices(capsys) -> None:
    from deltatag.lines import join_line
    from pipelines.join import JoinResult

    assert join_line(JoinResult("both")) == "both: nothing new"
    did = JoinResult("both", 1, 1200, 30, 45, 2, 7, "f", {"s": 3, "o": 1}, 1.25, ("both: look at this.",))
    assert join_line(did).splitlines() == [
        "both: 1,200 rows of s v3, o v1, 30 joined rows, 45 matches, 2 in quarantine, rules version 7, 1.2 s",
        "both: look at this.",
    ]


def test_a_failed_scope_is_one_and_the_others_are_done(folder: Path, capsys) -> None:
    with Path("deltatag.toml").open("a") as file:
        file.write('[streams.gone]\nsource = "gone"\n')
    assert main(["compile"]) == 1
    captured = capsys.readouterr()
    assert "s: compiled" in captured.out
    assert captured.err.startswith("deltatag: gone: The stream gone has no source")


def test_a_source_that_is_a_file_is_told_without_spark(folder: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("pipelines.spark.session.open_session", lambda *_: pytest.fail("a JVM was started"))
    with Path("deltatag.toml").open("a") as file:
        file.write('[streams.filed]\nsource = "deltatag.toml"\n')
    assert main(["compile"]) == 1
    assert "correct [streams.filed] source" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["java", "jars"])
def test_without_java_or_jars(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys, missing: str) -> None:
    from pipelines.spark import runtime

    error = runtime.JavaNotFoundError if missing == "java" else runtime.JarsNotFoundError

    def fail() -> None:
        raise error(f"no {missing} here; put it there")

    monkeypatch.setattr(runtime, f"find_{missing}", fail)
    monkeypatch.setattr("pipelines.spark.session._running_session", lambda: None)
    settings = folder / "deltatag.toml"
    settings.write_text(settings.read_text().replace("[lake]", '[lake]\nrunner = "spark"'))
    rules(("r", "s", "soundex(CAST(x AS STRING)) = 'a'"))
    for verb in ("tag", "compile"):
        assert main([verb]) == 1
        told = " ".join(capsys.readouterr().err.split())
        assert f"no {missing} here; put it there" in told and "not supposed to happen" not in told


@pytest.mark.slow
def test_rules_of_no_scope_are_told_and_refused_by_every_run(folder: Path, capsys) -> None:
    from pipelines.compile import compile_scopes
    from pipelines.compiling.due import refusals_are_due
    from pipelines.workspace import Workspace

    rules(("r", "s", "x = 1"))
    assert main(["compile"]) == 0
    workspace = Workspace.open()
    assert not refusals_are_due(workspace)
    rules(("typo", "ss", "x = 1"), (None, "s", "x = 2"))
    assert refusals_are_due(workspace)
    capsys.readouterr()
    for verb in ("status", "lint"):
        assert main([verb]) == 0
        told = "1 rule belongs to no stream or join (see the table rule_rejects); typo: There is no stream or join "
        assert f"{told}named ss; did you mean 's'?" in capsys.readouterr().out
    assert compile_scopes(workspace, []) == []
    assert not refusals_are_due(workspace)
    rejects = DeltaTable("lake/rule_rejects").to_pyarrow_table().to_pylist()
    assert {(each["rule_id"], each["error"]) for each in rejects} == {
        ("typo", "UNKNOWN_SCOPE"),
        (None, "MISSING_VALUE"),
    }
    DeltaTable("lake/rules").delete("rule_id IS NULL OR rule_id = 'typo'")
    assert refusals_are_due(workspace)
    assert main(["compile"]) == 0
    assert "no stream or join" not in capsys.readouterr().out and not refusals_are_due(workspace)


@pytest.mark.parametrize("place", ["file", "folder"])
@pytest.mark.parametrize("way", ["before the verb", "after the verb", "environment"])
def test_a_configuration_elsewhere_is_named_in_any_of_three_ways(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, place: str, way: str
) -> None:
    named = str(folder / "deltatag.toml") if place == "file" else str(folder)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    given = ["--config", named]
    if way == "environment":
        monkeypatch.setenv("DELTATAG_CONFIG", named)
    arguments = {"before the verb": [*given, "status"], "after the verb": ["status", *given]}.get(way, ["status"])
    assert main([*arguments, "--json"]) == 0
    assert [one["scope"] for one in json.loads(capsys.readouterr().out)] == ["s"]


def test_what_is_given_beats_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("DELTATAG_CONFIG", "/nowhere")
    assert main(["status"]) == 2
    assert "no such configuration file" in capsys.readouterr().err
    assert main(["--config", ".", "--verbose", "status"]) == 0
    assert main(["init", "new", "--json"]) == 0
    assert Path("new", "deltatag.toml").is_file()
