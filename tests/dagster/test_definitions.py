"""The code location loads as it stands, and says what depends on what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml

from assets.definitions import build_definitions, configuration_path
from pipelines.errors import ConfigurationError
from tests.cases import soak_rest

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = """
[lake]
root = "lake"
[streams.flights]
source = "lake/flights"
key = ["flight_id"]
checks = { sane = "delay > -120", "two words" = "delay < 9999" }
event_time = "departed_at"
[streams.weather]
source = "lake/weather"
event_time = "observed_at"
[streams.early]
source_stream = "flights"
key = ["flight_id"]
checks = { sane = "delay > -120", long = "delay < 9999" }
[joins.both]
streams = ["flights", "weather"]
on = ["origin"]
window = "1 hour"
lateness = "1 day"
"""
# asset <- the assets that it is made from, and the checks of the asset
GRAPH = """
both_tagged <- rule_index/both_rule_index source/flights source/weather
  ids_exist keys_equal matches_recorded quarantine_share row_count rule_ids_ascending rule_ids_not_empty
  rule_ids_not_null sample_agrees times_in_window versions_recorded
deltatag/maintenance <-
early_matches <- rule_index/early_rule_index source/early
early_tagged <- rule_index/early_rule_index source/early
  ids_exist matches_agree matches_recorded row_count rule_ids_ascending rule_ids_not_null sample_agrees
  versions_recorded
flights_matches <- rule_index/flights_rule_index source/flights
flights_tagged <- rule_index/flights_rule_index source/flights
  ids_exist matches_agree matches_recorded row_count rule_ids_ascending rule_ids_not_null sample_agrees
  versions_recorded
quarantine_both <- rule_index/both_rule_index source/flights source/weather
quarantine_early <- rule_index/early_rule_index source/early
quarantine_flights <- rule_index/flights_rule_index source/flights
report/both_report <- both_tagged rule_index/both_rule_index
report/early_report <- early_tagged rule_index/early_rule_index
report/flights_report <- flights_tagged rule_index/flights_rule_index
report/weather_report <- rule_index/weather_rule_index weather_tagged
retag/flights_retag <- rule_index/flights_rule_index
retag/weather_retag <- rule_index/weather_rule_index
rule_index/both_rule_index <- rules
  nothing_odd
rule_index/early_rule_index <- rule_index/flights_rule_index rules
  nothing_odd
rule_index/flights_rule_index <- rules
  nothing_odd
rule_index/weather_rule_index <- rules
  nothing_odd
rule_rejects/both_rule_rejects <- rules
rule_rejects/early_rule_rejects <- rule_index/flights_rule_index rules
rule_rejects/flights_rule_rejects <- rules
rule_rejects/weather_rule_rejects <- rules
rules <-
  description_type enabled_type expression_not_null expression_type labels_type owner_type priority_type reject_share
  rule_id_not_null rule_id_type rule_id_unique scope_known scope_not_null scope_type table valid_from_type valid_to_type
runs/both_runs <- rule_index/both_rule_index source/flights source/weather
runs/early_runs <- rule_index/early_rule_index source/early
runs/flights_runs <- rule_index/flights_rule_index source/flights
runs/weather_runs <- rule_index/weather_rule_index source/weather
source/early <- flights_tagged
  check_long_holds check_sane_holds checks_valid columns followed key_flight_id_not_null quarantine_share
source/flights <-
  check_sane_holds check_two_words_holds checks_valid columns event_time_type followed key_flight_id_not_null
  quarantine_share
source/weather <-
  columns event_time_type followed
weather_tagged <- rule_index/weather_rule_index source/weather
  ids_exist matches_recorded row_count rule_ids_ascending rule_ids_not_null sample_agrees versions_recorded
"""


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    path = tmp_path / "deltatag.toml"
    path.write_text(CONFIGURATION)
    return path


def described(definitions: dg.Definitions) -> list[str]:
    graph = definitions.resolve_asset_graph()
    lines = []
    for key in sorted(graph.get_all_asset_keys(), key=lambda key: key.to_user_string()):
        parents = sorted(parent.to_user_string() for parent in graph.get(key).parent_keys)
        lines.append(f"{key.to_user_string()} <- {' '.join(parents)}".strip())
        lines += sorted(check.name for check in graph.get_check_keys_for_assets([key]))
    return lines


def test_the_asset_graph_is_this(configuration: Path) -> None:
    expected = [
        line if "<-" in line else check
        for line in GRAPH.strip().splitlines()
        for check in ([line] if "<-" in line else line.split())
    ]
    assert described(build_definitions(configuration)) == expected


def test_a_stream_may_have_any_name_though_python_or_a_job_or_a_step_has_it(tmp_path: Path) -> None:
    names = ["class", "input", "run", "report", "maintain", "judge_rules", "rules_x", "sources", "a", "b"]
    names += [f"{step}_a" for step in ("compile", "tag", "judge", "retag", "join", "source")]
    names += ["source__a", "report__a_report", "deltatag__maintenance"]
    streams = [f'[streams.{name}]\nsource = "{name}"\nkey = ["id"]\nevent_time = "at"\n' for name in names]
    join = '[joins.with]\nstreams = ["class", "join_a"]\non = ["id"]\nwindow = "1 hour"\n'
    path = tmp_path / "deltatag.toml"
    path.write_text("".join(['[lake]\nroot = "lake"\n', *streams, join, '[lists.lambda]\nsource = "values"\n']))
    definitions = build_definitions(path)
    dg.Definitions.validate_loadable(definitions)
    steps = {node.name for node in definitions.resolve_job_def("run").nodes}
    assert {f"{step}_{name}" for step in ("compile", "tag") for name in names} <= steps


def test_everything_loads_and_runs_in_one_process_with_one_spark_step_at_a_time(configuration: Path) -> None:
    definitions = build_definitions(configuration)
    dg.Definitions.validate_loadable(definitions)
    job = definitions.resolve_job_def("run")
    assert job.executor_def is dg.in_process_executor
    pools = {node.name: node.definition.pool for node in job.nodes}
    assert {name for name, pool in pools.items() if pool == "spark"} >= {
        "compile_flights",
        "compile_both",
        "tag_flights",
        "tag_weather",
        "join_both",
    }
    assert [schedule.name for schedule in definitions.schedules or []] == [
        "run_every_quarter_of_an_hour",
        "maintain_every_night",
        "report_every_morning",
    ]
    assert [node.name for node in definitions.resolve_job_def("retag_flights").nodes] == ["retag__flights_retag"]
    assert [node.name for node in definitions.resolve_job_def("maintain").nodes] == ["deltatag__maintenance"]
    reports = {f"report__{scope}_report" for scope in ("flights", "weather", "early", "both")}
    assert {node.name for node in definitions.resolve_job_def("report").nodes} == reports
    assert not {"deltatag__maintenance", "retag__flights_retag", *reports} & set(pools)
    assert [sensor.name for sensor in definitions.sensors or []] == ["rules_and_sources"]
    shipped = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    assert shipped["concurrency"]["pools"]["default_limit"] == 1


def test_without_a_configuration_a_note_says_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELTATAG_CONFIG", raising=False)
    definitions = build_definitions(configuration_path())
    dg.Definitions.validate_loadable(definitions)
    (spec,) = definitions.assets or ()
    assert "deltatag init" in str(getattr(spec, "description", ""))


def test_the_configuration_is_the_named_one_then_the_folders_then_the_demonstrations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELTATAG_CONFIG", raising=False)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "deltatag.toml").touch()
    assert configuration_path() == Path("demo/deltatag.toml")
    (tmp_path / "deltatag.toml").touch()
    assert configuration_path() == Path("deltatag.toml")
    monkeypatch.setenv("DELTATAG_CONFIG", "elsewhere.toml")
    assert configuration_path() == Path("elsewhere.toml")


def test_a_mistake_in_the_configuration_is_told_by_file_and_key(tmp_path: Path) -> None:
    path = tmp_path / "deltatag.toml"
    path.write_text('[lake]\nroot = "lake"\n[streams.flights]\nsource = "x"\nkye = ["a"]\n')
    with pytest.raises(ConfigurationError, match=r"deltatag\.toml.*streams\.flights.*kye"):
        build_definitions(path)


@pytest.mark.parametrize("configured", soak_rest(1, [True, False]))
def test_dagsters_own_command_finds_nothing_wrong(
    configuration: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configured: bool
) -> None:
    if configured:
        monkeypatch.setenv("DELTATAG_CONFIG", str(configuration))
    else:
        monkeypatch.delenv("DELTATAG_CONFIG", raising=False)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-w", str(ROOT / "workspace.yaml")]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr


def test_great_expectations_is_importable_where_the_main_module_has_no_file() -> None:
    """Dagster's daemon starts runs in such processes, and there Spark Connect's package ends the process."""
    code = (
        "import sys; main = sys.modules['__main__']; main.__dict__.pop('__file__', None); main.__spec__ = None\n"
        "from quality.evaluation import Suite\n"
        "from quality.validation import none_of, validate\n"
        "suite = Suite('s', [none_of('n', 'No faults', 'faults')], {'faults': 0})\n"
        "print(validate(None, [suite])[0][0].success)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert (run.returncode, run.stdout.split()[-1:]) == (0, ["True"]), run.stdout + run.stderr


def test_no_two_assets_end_alike_since_the_page_shows_the_last_part_of_a_key(configuration: Path) -> None:
    keys = build_definitions(configuration).resolve_asset_graph().get_all_asset_keys()
    last = [key.path[-1] for key in keys]
    assert len(set(last)) == len(last)
    assert yaml.safe_load((ROOT / "dagster.yaml").read_text())["nux"] == {"enabled": False}


def test_the_demonstration_has_the_settings_of_every_other_instance() -> None:
    assert (ROOT / "deltatag" / "demo" / "dagster.yaml").read_text() == (ROOT / "dagster.yaml").read_text()
