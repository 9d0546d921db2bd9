"""`deltatag retag` over several scopes: what cannot be done is told before anything is."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from deltatag.__main__ import main

CONFIGURATION = """
[lake]
root = "lake"
[streams.timed]
source = "source"
event_time = "t"
[streams.plain]
source = "source"
[streams.few]
source = "source"
event_time = "t"
output = "matched"
[joins.both]
streams = ["timed", "few"]
on = ["id"]
window = "1 hour"
"""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Path:
    """Two rows of each stream, tagged by rules that have been edited since."""
    monkeypatch.chdir(tmp_path)
    times = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2)]
    rows = pl.DataFrame({"id": [1, 2], "t": times}, {"id": pl.Int64, "t": pl.Datetime("us", "UTC")})
    rows.write_delta("source")
    Path("deltatag.toml").write_text(CONFIGURATION)
    assert main(["init"]) == 0
    ids = "('timed', 'timed', 'id > 0'), ('plain', 'plain', 'id > 0'), ('few', 'few', 'id > 0')"
    assert main(["sql", f"INSERT INTO rules (rule_id, scope, expression) VALUES {ids}"]) == 0
    assert main(["compile"]) == 0 and main(["tag"]) == 0
    assert main(["sql", "UPDATE rules SET expression = 'id > 5'"]) == 0 and main(["compile"]) == 0
    capsys.readouterr()
    return tmp_path


def ids(stream: str) -> list[list[str]]:
    return pl.read_delta(f"lake/{stream}_tagged").sort("id")["rule_ids"].to_list()


@pytest.mark.slow
def test_a_range_is_for_the_scopes_that_have_it(lake: Path, capsys) -> None:
    assert main(["retag", "--from", "2024-01-02", "--json"]) == 0
    told = capsys.readouterr()
    assert [each["scope"] for each in json.loads(told.out)["retagged"]] == ["timed"]
    for reason in ("plain has no event_time", "few writes only matched rows", "both is a join"):
        assert f"deltatag: not re-tagged: {reason}" in told.err
    assert ids("timed") == [["timed"], []]
    assert ids("plain") == [["plain"], ["plain"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["timed", "both", "--from", "2024-01-02"], "both is a join"),
        (["timed", "plain", "--to", "2024-01-02"], "plain has no event_time"),
        (["timed", "--from", "2024-13-02"], "2024-13-02"),
        (["timed", "none"], "none"),
        (["timed", "--from", "2024-01-02", "--to", "2024-01-02"], "a later time than --from"),
    ],
)
def test_nothing_is_done_where_a_scope_cannot_be_retagged_so(lake: Path, arguments: list, reason: str, capsys) -> None:
    assert main(["retag", *arguments]) == 2
    assert reason in capsys.readouterr().err
    assert ids("timed") == [["timed"], ["timed"]]


@pytest.mark.slow
def test_a_scope_that_is_named_twice_is_done_once(lake: Path, capsys) -> None:
    assert main(["retag", "plain", "plain", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["retagged"]) == 1
    assert ids("plain") == [[], []]


@pytest.mark.parametrize(
    "settings, edit, status, expected, told",
    [
        ("", "id > 1", 0, [[], ["plain"]], "so they were compiled first"),
        ("[rules]\nmax_reject_share = 0.5", "id >", 1, [["plain"], ["plain"]], "more than max_reject_share = 0.5"),
        ('[rules]\non_reject = "hold"', "id >", 0, [["plain"], ["plain"]], "correct the rules that"),
    ],
)
def test_rules_are_compiled_before_rows_are_retagged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
    settings: str,
    edit: str,
    status: int,
    expected: list,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"id": [1, 2]}).write_delta("source")
    Path("deltatag.toml").write_text(f'[lake]\nroot = "lake"\n{settings}\n[streams.plain]\nsource = "source"\n')
    assert main(["init"]) == 0
    assert main(["sql", "INSERT INTO rules (rule_id, scope, expression) VALUES ('plain', 'plain', 'id > 0')"]) == 0
    assert main(["compile"]) == 0 and main(["tag"]) == 0
    assert main(["sql", f"UPDATE rules SET expression = '{edit}'"]) == 0
    capsys.readouterr()
    assert main(["retag", "plain"]) == status
    shown = capsys.readouterr()
    assert told in shown.out + shown.err
    assert ids("plain") == expected
