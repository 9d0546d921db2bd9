"""A run that dies between any two of its writes: the next one repeats its plan, whatever was edited meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines import tag
from pipelines.compile import compile_scopes
from pipelines.errors import RestartedError, SourceError
from pipelines.lake.runs import OF_ATTEMPTS, batches
from pipelines.recovery import micro_batch
from pipelines.runners import spark_runner
from pipelines.tag import tag_stream
from pipelines.writing import spark_output
from tests.cases import SOAK, soak_rest
from tests.tables import rows_of

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
    ids = pa.array([None if n % 10 == 3 else n for n in range(start, stop)], pa.int64())
    rows = pa.table({"id": ids, "seq": pa.array(range(start, stop), pa.int64())})
    write_deltalake(workspace.configuration.streams["s"].source, rows, mode="append")


@pytest.fixture
def writer(request) -> Iterator[str]:
    """Who writes the rows: "workers", or "spark" as where workers may not."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "spark":
            patch.setattr(spark_output.Output, "_layouts", lambda _self, _frame: None)
        yield request.param


STEPS = [
    *(("workers", step) for step in ("planned", "quarantine_s", "files", "s_matches", "s_tagged")),
    *(("spark", step) for step in ("s_matches", "s_tagged")),
]


@pytest.mark.usefixtures("writer")
@pytest.mark.parametrize(
    ("writer", "step", "edited"),
    # tests/unit/pipelines/test_local_runner.py has a death after each write without Spark
    soak_rest(
        4,
        [
            *(("workers", "planned", True), ("workers", "s_matches", True), ("spark", "s_tagged", True)),
            *(("workers", "planned", False), ("workers", "quarantine_s", True), ("workers", "files", True)),
            *(("workers", "s_tagged", True), ("spark", "s_matches", True)),
            *((*each, False) for each in STEPS[1:]),
        ],
    ),
    indirect=["writer"],
)
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
            monkeypatch.setattr(spark_output.Output, method, dying(getattr(spark_output.Output, method), step))
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
    # with nothing written yet the newest rules are taken
    anew = edited and step == "planned"
    assert (first.rows, first.matches, first.quarantined) == (40, 36 if anew else 27, 4)
    assert first.fingerprint != planned.fingerprint if anew else dict(first.plan) == dict(planned.plan)
    assert result.batches == 1 + len(rest) == 1 + edited
    tagged = {row["seq"]: (row["rule_ids"], row["tagged_at"]) for row in rows_of(workspace, "s_tagged")}
    refused = [row["seq"] for row in rows_of(workspace, "quarantine_s")]
    seen = Counter([*(row["seq"] for row in rows_of(workspace, "s_tagged")), *refused])
    assert seen == Counter(range(60 if edited else 40))
    for seq in range(40):
        if seq % 10 != 3:
            assert tagged[seq][0] == (["low"] if seq < 30 else ["high"] if anew else [])
    pairs = Counter((row["rule_id"], row["id"]) for row in rows_of(workspace, "s_matches"))
    of_high = range(30, 40) if anew else ()
    assert pairs == Counter(
        (name, n) for name, of in (("low", range(30)), ("high", of_high)) for n in of if n % 10 != 3
    )
    if edited:
        assert all(tagged[seq][0] == ["high"] for seq in range(40, 60) if seq % 2 == 0)
        assert [seq for seq in sorted(refused) if seq >= 40] == [n for n in range(40, 60) if n % 2]


@pytest.mark.parametrize(
    ("writer", "until"),
    [
        *(("workers", "nothing"), ("spark", "s_matches")),
        *(
            pytest.param("workers", until, marks=pytest.mark.soak)
            for until in ("quarantine_s", "s_matches", "s_tagged")
        ),
        *(pytest.param("spark", until, marks=pytest.mark.soak) for until in ("nothing", "quarantine_s", "s_tagged")),
    ],
    indirect=["writer"],
)
@pytest.mark.usefixtures("writer")
def test_a_zombie_of_a_plan_that_was_planned_anew(new_workspace, add_rules, monkeypatch, until: str) -> None:
    """The run that planned first is stopped between two writes; another run plans the micro-batch anew while it has
    written nothing, or finds what it has written; then the first one goes on."""
    workspace = new_workspace({"s": STREAM})
    append(workspace, 0, 40)
    add_rules(workspace, ("low", "s", "seq < 30"))
    compile_scopes(workspace)

    def another_run(*_arguments) -> None:
        monkeypatch.undo()
        add_rules(workspace, ("high", "s", "seq >= 30"))
        compile_scopes(workspace)
        tag_stream(new_workspace({"s": STREAM}), "s")

    def then_another_run(method):
        def write(self, name, *arguments):
            done = method(self, name, *arguments)
            if name == until:
                another_run()
            return done

        return write

    if until == "nothing":
        go_on = tag._Tagger._execute

        def late(self, *arguments, **named):
            another_run()
            return go_on(self, *arguments, **named)

        monkeypatch.setattr(tag._Tagger, "_execute", late)
    else:
        for method in ("_append", "_enter"):
            monkeypatch.setattr(spark_output.Output, method, then_another_run(getattr(spark_output.Output, method)))
    if until == "nothing":
        with pytest.raises(RestartedError, match="micro-batch 0 of s"):
            tag_stream(workspace, "s")
    else:
        tag_stream(workspace, "s")
    (batch,) = batches(workspace.lake, "s")
    names = {"low", "high"} if until == "nothing" else {"low"}
    tagged = rows_of(workspace, "s_tagged")
    assert sorted(row["seq"] for row in tagged) == [seq for seq in range(40) if seq % 10 != 3]
    assert {name for row in tagged for name in row["rule_ids"]} == names
    assert {row["index_fingerprint"] for row in tagged} == {batch.fingerprint}
    assert sorted(row["seq"] for row in rows_of(workspace, "quarantine_s")) == [3, 13, 23, 33]
    assert batch.matches == len(rows_of(workspace, "s_matches")) == (36 if until == "nothing" else 27)
    assert OF_ATTEMPTS[0] not in batch.plan


HELD = ([], ["quarantine_s"], ["quarantine_s", "s_matches"])
DEATHS = ("intent", "fences", "plan")


@pytest.mark.parametrize(
    ("held", "dies_after"),
    [
        pytest.param(held, death, marks=[] if (i, j) == (2, 2) else pytest.mark.soak)
        for i, held in enumerate(HELD)
        for j, death in enumerate(DEATHS)
    ],
)
def test_a_death_while_planning_anew(new_workspace, add_rules, monkeypatch, held: list[str], dies_after: str) -> None:
    """Between any two steps of planning anew the run ends, and what another run had written by then counts once."""
    workspace = new_workspace({"s": STREAM})
    append(workspace, 0, 40)
    add_rules(workspace, ("low", "s", "seq < 30"))
    compile_scopes(workspace)
    with pytest.MonkeyPatch.context() as patch:
        if held:
            for method in ("_append", "_enter"):
                patch.setattr(spark_output.Output, method, dying(getattr(spark_output.Output, method), held[-1]))
        else:
            patch.setattr(tag._Tagger, "_execute", _die)
        with pytest.raises(DiedError):
            tag_stream(workspace, "s")
    add_rules(workspace, ("high", "s", "seq >= 30"))
    compile_scopes(workspace)
    with pytest.MonkeyPatch.context() as patch:
        # what the first run has written comes to light only behind the look that decides to plan anew
        patch.setattr(micro_batch, "holds_nothing", lambda *_: True)
        if dies_after == "intent":
            patch.setattr(spark_runner, "fence", _die)
        elif dies_after == "fences":
            fenced = spark_runner.fence
            patch.setattr(spark_runner, "fence", lambda *all_of_them: (fenced(*all_of_them), _die()))
        else:
            patch.setattr(tag._Tagger, "_execute", _die)
        with pytest.raises(DiedError):
            tag_stream(workspace, "s")
    tag_stream(new_workspace({"s": STREAM}), "s")
    (batch,) = batches(workspace.lake, "s")
    names = {"low"} if "s_matches" in held else {"low", "high"}
    tagged = rows_of(workspace, "s_tagged")
    assert sorted(row["seq"] for row in tagged) == [seq for seq in range(40) if seq % 10 != 3]
    assert {name for row in tagged for name in row["rule_ids"]} == names
    assert sorted(row["seq"] for row in rows_of(workspace, "quarantine_s")) == [3, 13, 23, 33]
    assert batch.matches == len(rows_of(workspace, "s_matches")) == (27 if len(names) == 1 else 36)


def _die(*_arguments, **_named):
    raise DiedError


def test_files_that_were_removed_before_they_were_tagged(new_workspace, add_rules) -> None:
    from pathlib import Path

    from deltalake import DeltaTable

    workspace = new_workspace({"s": {**STREAM, "start": 0}})
    for start in (0, 40, 80):
        append(workspace, start, start + 40)
    compile_scopes(workspace)
    source = Path(workspace.configuration.streams["s"].source)
    (second,) = (a["path"] for a in pa.table(DeltaTable(source).get_add_actions()).to_pylist() if a["min"]["seq"] == 40)
    (source / second).unlink()
    for _ in range(2):
        with pytest.raises(SourceError, match=r"1 of the 3 files.*Version 1 .*40 rows.*--skip-changes.*--restart"):
            tag_stream(new_workspace({"s": {**STREAM, "start": 0}}), "s")
    tag_stream(new_workspace({"s": {**STREAM, "start": 0}}), "s", skip_changes=True)
    seqs = [row["seq"] for name in ("s_tagged", "quarantine_s") for row in rows_of(workspace, name)]
    assert sorted(seqs) == [*range(40), *range(80, 120)]
    append(workspace, 120, 130)
    assert tag_stream(new_workspace({"s": {**STREAM, "start": 0}}), "s").rows == 10


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
    seqs = [row["seq"] for name in ("s_tagged", "quarantine_s") for row in rows_of(workspace, name)]
    assert sorted(seqs) == list(range(80))
    assert len(rows_of(workspace, "s_matches")) == 27
    assert [(batch.batch, batch.rows) for batch in batches(workspace.lake, "s")] == [(0, 40), (1, 40)]


def test_nothing_stays_set_that_would_skip_later_writes(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": STREAM})
    append(workspace, 0, 10)
    compile_scopes(workspace)
    tag_stream(workspace, "s")
    for _ in range(2 if SOAK else 1):
        tag_stream(workspace, "s", restart=True)
    assert len(rows_of(workspace, "s_tagged")) == 9
    assert len(rows_of(workspace, "quarantine_s")) == 1


def test_a_death_before_the_first_commit_of_a_table(new_workspace, add_rules) -> None:
    """What is left is the folder of a log, which Spark takes for a table without versions."""
    workspace = new_workspace({"s": STREAM})
    append(workspace, 0, 10)
    add_rules(workspace, ("low", "s", "seq < 30"))
    compile_scopes(workspace)
    for name in ("s_tagged", "s_matches", "quarantine_s"):
        log = Path(workspace.lake.uri(name)) / "_delta_log"
        log.mkdir(parents=True)
        (log / ".00000000000000000000.json.0.tmp").write_text("{")
    assert tag_stream(workspace, "s").rows == 10
    assert len(rows_of(workspace, "s_tagged")) == 9 and len(rows_of(workspace, "quarantine_s")) == 1
