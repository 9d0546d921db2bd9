"""A run that dies between any two of its writes: the next one repeats its plan, whatever was edited meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from pipelines import tag, writing
from pipelines.compile import compile_scopes
from pipelines.runs import batches
from pipelines.tag import tag_stream

STREAM = {"source": "lake/source", "key": ["id"]}


class DiedError(BaseException):
    """Stands for the end of the process: no `except Exception` may catch it."""


def dying(write, step: str):
    """A method that writes a table, and then, or before any table where `step` says so, ends the process."""

    def write_then_die(self, name, *arguments):
        if step == "files" and not name.startswith("quarantine"):
            raise DiedError
        write(self, name, *arguments)
        if name == step:
            raise DiedError

    return write_then_die


def append(workspace, start: int, stop: int) -> None:
    rows = workspace.spark.range(start, stop, 1, 1).selectExpr("IF(id % 10 = 3, NULL, id) AS id", "id AS seq")
    rows.write.format("delta").mode("append").save(workspace.configuration.streams["s"].source)


def read(workspace, name: str):
    return workspace.spark.read.format("delta").load(workspace.lake.uri(name))


@pytest.fixture
def writer(request) -> Iterator[str]:
    """Who writes the rows: "workers", or "spark" as where workers may not."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "spark":
            patch.setattr(writing.Output, "_layouts", lambda _self, _frame: None)
        yield request.param


STEPS = [
    *(("workers", step) for step in ("planned", "quarantine_s", "files", "s_matches", "s_tagged")),
    *(("spark", step) for step in ("s_matches", "s_tagged")),
]


@pytest.mark.usefixtures("writer")
@pytest.mark.parametrize(("writer", "step"), STEPS, indirect=["writer"])
@pytest.mark.parametrize("edited", [False, True])
def test_a_death_after_each_write(new_workspace, add_rules, monkeypatch, step: str, edited: bool) -> None:
    workspace = new_workspace({"s": STREAM})
    append(workspace, 0, 40)
    add_rules(workspace, ("low", "s", "seq < 30"))
    compile_scopes(workspace)
    if step == "planned":

        def die(*_args, **_named):
            raise DiedError

        monkeypatch.setattr(tag._Tagger, "_execute", die)
    else:
        for method in ("_append", "_enter"):
            monkeypatch.setattr(writing.Output, method, dying(getattr(writing.Output, method), step))
    with pytest.raises(DiedError):
        tag_stream(workspace, "s")
    monkeypatch.undo()
    (planned,) = batches(workspace.lake, "s")
    assert planned.state == "planned"
    streams = {"s": STREAM}
    if edited:
        append(workspace, 40, 60)
        add_rules(workspace, ("high", "s", "seq >= 30"))
        compile_scopes(workspace)
        streams = {"s": {**STREAM, "checks": {"even": "seq % 2 = 0"}, "matches": False}}
    result = tag_stream(new_workspace(streams), "s")
    first, *rest = batches(workspace.lake, "s")
    assert (first.rows, first.matches, first.quarantined, dict(first.plan)) == (40, 27, 4, dict(planned.plan))
    assert result.batches == 1 + len(rest) == 1 + edited
    tagged = {row["seq"]: (row["rule_ids"], row["tagged_at"]) for row in read(workspace, "s_tagged").collect()}
    refused = [row["seq"] for row in read(workspace, "quarantine_s").collect()]
    seen = Counter([*(row["seq"] for row in read(workspace, "s_tagged").select("seq").collect()), *refused])
    assert seen == Counter(range(60 if edited else 40))
    for seq in range(40):
        if seq % 10 != 3:
            assert tagged[seq][0] == (["low"] if seq < 30 else [])
    pairs = Counter((row["rule_id"], row["id"]) for row in read(workspace, "s_matches").collect())
    assert pairs == Counter(("low", seq) for seq in range(30) if seq % 10 != 3)
    if edited:
        assert all(tagged[seq][0] == ["high"] for seq in range(40, 60) if seq % 2 == 0)
        assert [seq for seq in sorted(refused) if seq >= 40] == [n for n in range(40, 60) if n % 2]


def test_two_runs_at_once_write_each_row_once(new_workspace, add_rules) -> None:
    from concurrent.futures import ThreadPoolExecutor

    workspace = new_workspace({"s": STREAM})
    append(workspace, 0, 40)
    append(workspace, 40, 80)
    add_rules(workspace, ("low", "s", "seq < 30"))
    compile_scopes(workspace)
    both = [new_workspace({"s": {**STREAM, "max_bytes_per_batch": 1}}) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: tag_stream(one, "s"), both))
    seqs = [row["seq"] for name in ("s_tagged", "quarantine_s") for row in read(workspace, name).collect()]
    assert sorted(seqs) == list(range(80))
    assert read(workspace, "s_matches").count() == 27
    assert [(batch.batch, batch.rows) for batch in batches(workspace.lake, "s")] == [(0, 40), (1, 40)]


def test_nothing_stays_set_that_would_skip_later_writes(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": STREAM})
    append(workspace, 0, 10)
    compile_scopes(workspace)
    tag_stream(workspace, "s")
    tag_stream(workspace, "s", restart=True)
    tag_stream(workspace, "s", restart=True)
    assert read(workspace, "s_tagged").count() == 9
    assert read(workspace, "quarantine_s").count() == 1
