"""Suites judged by their measures: the findings are those of Great Expectations, for good and for bad tables."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import PipelineError
from pipelines.settings.configuration import parse_configuration
from quality import gates, joined, rules, sources, tagged, validation
from quality.documents import INDEX, is_page_due, note_verdicts
from quality.evaluation import Suite, evaluate
from quality.findings import ERROR, WARNING, Expectation, Finding, markdown_table
from quality.validation import NONE, between, equal, listing, none_of, nothing, one_of, validate
from tests.cases import quick_first

ROOT = Path(__file__).resolve().parents[2]
STREAM = {
    "source": "s",
    "key": ["id", "odd name"],
    "event_time": "t",
    "checks": {"sane": "x > 0", "two words": "x < 9"},
}
DOCUMENT: dict[str, Any] = {
    "lake": {"root": "lake"},
    "rules": {"max_reject_share": 0.1},
    "streams": {
        "a": {**STREAM, "max_quarantine_share": 0.25},
        "b": {"source": "b", "event_time": "t", "output": "matched"},
        "c": STREAM,
    },
    "joins": {
        "j": {"streams": ["a", "c"], "on": ["id"], "window": "1 s", "lateness": "1 day"},
        "k": {"streams": ["a", "b"], "on": ["id"], "window": "1 s"},
    },
}


def all_suites() -> dict[str, tuple[Expectation, ...]]:
    configuration = parse_configuration(DOCUMENT, Path("/nowhere/deltatag.toml"))
    found = {"rules": rules.expectations(configuration)}
    for stream in configuration.streams.values():
        found[stream.name] = sources.expectations(stream)
        found[f"{stream.name}_tagged"] = tagged.expectations(stream)
    for join in configuration.joins.values():
        found[f"{join.name}_tagged"] = joined.expectations(configuration, join)
    return found


def good(expectations: tuple[Expectation, ...]) -> dict[str, Any]:
    """Measures of a table that has no fault."""
    measures: dict[str, Any] = {}
    for each in expectations:
        arguments = each.arguments
        if "value_set" in arguments:
            measures[arguments["column"]] = arguments["value_set"][0]
        elif "column_A" in arguments:
            measures |= {arguments["column_A"]: 1 << 40, arguments["column_B"]: 1 << 40}
        else:
            measures[arguments["column"]] = 0.0 if "share" in arguments["column"] else 0
    return measures


def bad_value(draw: random.Random, value: Any) -> Any:
    if isinstance(value, str):
        return draw.choice(["", "none ", "NONE", "a | b, c and 3 more", "é\n'\"", "0", NONE, "missing", "bigint"])
    if isinstance(value, float):
        return draw.choice([0.1, 0.25, 0.2500000000000001, 1.0, 0.1 + 1e-17, 123456.789, float("inf"), -0.0, -0.5])
    return draw.choice([1, -1, 0, (1 << 40) + 1, 1 << 53, (1 << 53) + 1, (1 << 62) + 1])


@pytest.mark.parametrize("name", quick_first(0, sorted(all_suites(), key=lambda name: name != "rules"), 5))
def test_the_findings_are_those_of_great_expectations(name: str) -> None:
    expectations, draw = all_suites()[name], random.Random(name)
    sound = good(expectations)
    cases = [sound, {key: bad_value(draw, value) for key, value in sound.items()}]
    # each measure once alone, and some that are not there
    cases += [{**sound, key: bad_value(draw, value)} for key, value in sound.items()]
    cases += [{**sound, key: value} for key in list(sound)[:2] for value in (None, float("nan"))]
    for measures in cases:
        suite = Suite(name, expectations, measures)
        judged, _ = validate(None, [suite])
        assert evaluate([suite]) == judged, measures
        assert all(type(finding.success) is bool for finding in judged)
    assert all(finding.success for finding in evaluate([Suite(name, expectations, sound)]))
    assert not all(finding.success for finding in evaluate([Suite(name, expectations, cases[1])]))


@pytest.mark.slow
def test_a_measure_that_is_missing_is_an_error_in_both() -> None:
    expectations = (
        none_of("count", "No faults", "faults", WARNING),
        equal("pair", "The same", "faults", "others"),
        nothing("list", "Nothing listed", "listed", WARNING),
    )
    suite = Suite("s", expectations, {"other": 1})
    for found in (evaluate([suite]), validate(None, [suite])[0]):
        assert [(each.success, each.severity) for each in found] == [(False, ERROR)] * 3
        assert all("could not be judged" in each.message for each in found)


def test_a_gate_that_could_not_be_judged_says_why_once() -> None:
    expected = all_suites()["a"]
    found = gates._unjudged("a", expected, PipelineError("There is no Delta table at /lake/rules"))
    assert len(found.failures) > 2
    assert found.reason == (
        "The quality gate of a is closed, since nothing could be judged. There is no Delta table at /lake/rules."
    )


@pytest.mark.slow
def test_every_class_of_expectations_that_a_suite_has_is_one_of_great_expectations() -> None:
    classes = validation._library().expectations  # imports it as gates do
    kinds = {each.kind for expectations in all_suites().values() for each in expectations}
    assert kinds and all(hasattr(classes, kind) for kind in kinds)


@pytest.mark.parametrize(
    ("low", "high", "value", "success", "said"),
    [
        (0, 0, 3, False, "found 3, expected 0"),
        (None, 0.5, 0.51234567, False, "found 0.5123, at most 0.5 is allowed"),
        (2, None, 1, False, "found 1, at least 2 is expected"),
        (0, 1, 1, True, "described"),
    ],
)
def test_bounds_are_told(low: Any, high: Any, value: Any, success: bool, said: str) -> None:
    (found,) = evaluate([Suite("s", (between("n", "described", "m", low, high),), {"m": value})])
    assert found.success is success and found.message.endswith(said) and found.observed == value


def test_a_list_names_a_few() -> None:
    faults = listing([f"r{n}" for n in range(9)])
    (found,) = evaluate([Suite("s", (nothing("n", "None", "m"),), {"m": faults})])
    assert found == Finding("n", ERROR, False, 1, "None: found: r0, r1, r2, r3, r4 and 4 more")


@pytest.mark.slow
def test_the_first_page_has_the_newest_verdict_of_every_suite(tmp_path: Path) -> None:
    def suite(name: str, value: str, severity: str = ERROR) -> Suite:
        return Suite(name, (one_of("good", "All is <good>", "m", ["yes"]), none_of("count", "None", "n", severity)),
                     {"m": value, "n": 0 if value == "yes" else 7})  # fmt: skip

    note_verdicts(tmp_path, [suite("alone", "yes")])
    assert list(tmp_path.iterdir()) == []
    sound = Suite("z", (none_of("count", "None", "n", WARNING),), {"n": 7})
    _, page = validate(tmp_path, [suite("a", "yes"), suite("y", "no"), sound])
    text = (tmp_path / INDEX).read_text(encoding="utf-8")
    assert page == tmp_path / "y.html" and "1 of 3 suites failed, 1 with warnings." in text
    assert [text.index(f'"{name}.html"') for name in "yza"] == sorted(text.index(f'"{name}.html"') for name in "yza")
    assert "0 of 2 expectations met" in text and "2 of 2 expectations met" in text and "All is &lt;good&gt;" in text
    # judged again without a page: the verdict is the new one, and no page tells of the former
    (tmp_path / "damaged.json").touch()  # as a crash of the machine may leave it
    note_verdicts(tmp_path, [suite("y", "yes")])
    text = (tmp_path / INDEX).read_text(encoding="utf-8")
    assert "All 3 suites passed, 1 with warnings." in text
    assert not (tmp_path / "y.html").exists() and '"y.html"' not in text and (tmp_path / "a.html").exists()
    # a page whose verdict is the same stays, and is due again after a day, or when the verdict is another one
    assert note_verdicts(tmp_path, [suite("a", "yes")]) == tmp_path / "a.html"
    assert not is_page_due(tmp_path, suite("a", "yes")) and is_page_due(tmp_path, suite("a", "no"))
    assert is_page_due(tmp_path, suite("y", "yes")) and is_page_due(tmp_path / "none", suite("a", "yes"))
    yesterday = time.time() - 25 * 60 * 60
    os.utime(tmp_path / "a.html", (yesterday, yesterday))
    assert is_page_due(tmp_path, suite("a", "yes"))


@pytest.mark.slow
def test_a_page_shows_texts_as_they_are_and_that_of_a_stream_called_index_replaces_no_other(tmp_path: Path) -> None:
    expectations = (nothing("known", "Every <i>scope</i> is known for $x", "m"),)
    _, page = validate(tmp_path, [Suite("index", expectations, {"m": "<svg onload=alert(1)>, a$b"})])
    assert page == tmp_path / "index-.html" and 'href="index-.html"' in (tmp_path / INDEX).read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert "&lt;svg onload=alert(1)&gt;, a$b" in text and "Every &lt;i&gt;scope&lt;/i&gt; is known for $x" in text
    assert "<svg" not in text and "<i>scope" not in text


def test_a_table_in_markdown_shows_values_as_they_are_and_cuts_long_ones() -> None:
    rows = [("a<b AND c>d", "x*2*y RLIKE '\\|' _a_"), (" one_word\n", "i" * 5_000)]
    *_, first, second = markdown_table(("rule", "text"), rows).splitlines()
    assert first == r"| a\<b AND c>d | x\*2\*y RLIKE '\\\|' \_a\_ |"
    assert second == f"| one_word | {'i' * 1_999}… |"


@pytest.mark.slow
def test_open_gates_import_no_great_expectations() -> None:
    code = (
        "import sys\n"
        "import quality.gates\n"
        "from quality.evaluation import Suite, evaluate\n"
        "from quality.validation import none_of\n"
        "assert evaluate([Suite('s', [none_of('n', 'None', 'm')], {'m': 0})])[0].success\n"
        "print(sorted({'great_expectations', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert (run.returncode, run.stdout.strip()) == (0, "[]"), run.stdout + run.stderr


@pytest.mark.parametrize(
    ("share", "arguments", "imported"),
    quick_first(0, [(1.0, [], False), (0.01, [], True), (1.0, ["--data-docs"], True)], 2),
)
def test_a_run_imports_it_for_shut_gates_and_where_it_is_asked_for(
    tmp_path: Path, share: float, arguments: list[str], imported: bool
) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    path = tmp_path / "deltatag.toml"
    path.write_text(
        '[lake]\nroot = "lake"\n[streams.s]\nsource = "source"\nkey = ["id"]\n'
        f'checks = {{ sane = "x > 0" }}\nmax_quarantine_share = {share}\n'
    )
    write_deltalake(str(tmp_path / "source"), pa.table({"id": [1, 2, 3], "x": [0, 1, 2]}))
    code = (
        "import sys\nfrom deltatag.__main__ import main\n"
        f"assert main(['init', {str(tmp_path)!r}]) == 0\n"
        f"status = main(['--config', {str(path)!r}, 'run', *{arguments!r}])\n"
        "print(status, 'great_expectations' in sys.modules, 'scipy.stats' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300)
    lines = run.stdout.splitlines()
    assert lines[-1:] == [f"{int(share < 1)} {imported} False"], run.stdout + run.stderr
    page = tmp_path / ".deltatag" / "data_docs" / "s.html"
    assert page.exists() is imported
    if share < 1:
        assert "The quality gate of s is closed." in run.stderr and str(page) in run.stderr
        assert "1 of 1 suites failed." in (page.parent / INDEX).read_text(encoding="utf-8")
    else:
        assert DeltaTable(str(tmp_path / "lake" / "s_tagged")).to_pyarrow_table().num_rows == 2


@pytest.mark.slow
def test_data_docs_of_nothing_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    from deltatag.__main__ import main

    path = tmp_path / "deltatag.toml"
    path.write_text('[lake]\nroot = "lake"\n[streams.s]\nsource = "source"\n')
    write_deltalake(str(tmp_path / "source"), pa.table({"x": [1]}))
    assert main(["init", str(tmp_path)]) == 0 and main(["--config", str(path), "run"]) == 0
    assert "Data Docs" not in capsys.readouterr().out
    assert main(["--config", str(path), "run", "--data-docs"]) == 0
    assert "Nothing was due.\nNo Data Docs were written:" in capsys.readouterr().out
