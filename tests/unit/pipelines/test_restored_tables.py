"""Tables of a stream that their owner puts back to an older version by RESTORE, or whose files are lost."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.errors import TableError
from pipelines.lake import transaction_ids
from pipelines.lake.add_actions import live_files
from pipelines.lake.index_histories import NEW_RULES, histories_to_retag
from pipelines.lake.table_log import table_log
from pipelines.recovery import micro_batch
from pipelines.retag import retag
from pipelines.run import OpenGates, run_due
from pipelines.status import status
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from tests.cases import cases, quick_first
from tests.unit.pipelines.local_retags import (
    AFTER,
    LATER,
    RETAGS,
    append,
    assert_like_anew,
    exploded,
    matched,
    prepared,
    read,
    tagged,
)
from tests.unit.pipelines.retagged_rows import BEFORE, DiedError, edited, random_rule, rows, write_rules

pytestmark = pytest.mark.usefixtures("without_spark")


def restore(workspace: Workspace, version: int) -> None:
    if version < workspace.lake.version("s_tagged"):
        DeltaTable(workspace.lake.uri("s_tagged")).restore(version)


def restore_by_spark(workspace: Workspace, name: str, version: int) -> None:
    """What a RESTORE of Spark commits to a table without deletion vectors: delta-rs has none for a clustered one."""
    log = table_log(workspace.lake.uri(name))
    newest = log.latest().number
    now, then = ({add["path"]: add for add in live_files(log, each) or []} for each in (newest, version))
    parameters = {"version": version, "timestamp": None}
    actions: list[dict] = [{"commitInfo": {"operation": "RESTORE", "operationParameters": parameters}}]
    actions += [{"add": then[path]} for path in then.keys() - now.keys()]
    actions += [
        {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}} for path in now.keys() - then.keys()
    ]
    commit = Path(workspace.lake.uri(name), "_delta_log", f"{newest + 1:020}.json")
    commit.write_text("".join(f"{json.dumps(each)}\n" for each in actions))


@pytest.mark.slow
def test_a_retag_that_a_restore_has_undone_in_the_matches_alone_is_told(make_retagged) -> None:
    workspace = prepared(make_retagged)
    before = workspace.lake.version("s_matches")
    retag(workspace, "s")
    version, held = workspace.lake.version("s_matches"), matched(workspace)
    restore_by_spark(workspace, "s_matches", before)
    assert matched(workspace) != held
    advice = f"RESTORE TABLE s_matches TO VERSION AS OF {version}"
    assert advice in str(status(workspace)[0].problem)
    assert advice in run_due(workspace, OpenGates()).failures["s"]
    for again in (retag, tag_stream):
        with pytest.raises(TableError, match=f"{advice}.* deltatag tag s --restart"):
            again(workspace, "s")
    restore_by_spark(workspace, "s_matches", version)
    assert not run_due(workspace, OpenGates()).failures and matched(workspace) == held
    # with the tagged rows as well, the next re-tag does it again
    restore(workspace, workspace.lake.version("s_tagged") - 1)
    restore_by_spark(workspace, "s_matches", before)
    assert not run_due(workspace, OpenGates()).failures
    retag(workspace, "s")
    assert not run_due(workspace, OpenGates()).failures
    assert_like_anew(workspace)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["always", "new_rules"])
@pytest.mark.parametrize("tags", [False, True])
def test_a_run_does_a_retag_again_that_a_restore_has_undone(make_retagged, policy: str, tags: bool) -> None:
    workspace = prepared(make_retagged, retag=policy)
    assert run_due(workspace, OpenGates()).retagged[0].rows_changed
    held = tagged(workspace)
    assert not run_due(workspace, OpenGates()).retagged
    restore(workspace, workspace.lake.version("s_tagged") - 1)
    assert tagged(workspace) != held
    if tags:
        append(workspace, 120, 180)
    again = run_due(workspace, OpenGates())
    assert not again.failures and again.retagged[0].rows_changed
    assert (tagged(workspace) & held) == held and matched(workspace) == exploded(workspace)
    assert not run_due(workspace, OpenGates()).retagged


@pytest.mark.slow
def test_matches_that_a_restore_has_removed_do_not_count_once_they_are_not_kept(make_retagged) -> None:
    workspace = prepared(make_retagged)
    restore_by_spark(workspace, "s_matches", 0)
    assert "RESTORE TABLE s_matches" in run_due(workspace, OpenGates()).failures["s"]
    without = make_retagged(matches=False)
    assert not run_due(without, OpenGates()).failures and status(without)[0].problem is None
    append(without, 120, 180)
    assert tag_stream(without, "s").rows == 60


@pytest.mark.slow
def test_rows_that_a_restore_has_removed_are_not_passed_over(make_retagged) -> None:
    workspace = prepared(make_retagged)
    append(workspace, 120, 180)
    tag_stream(workspace, "s")
    version = workspace.lake.version("s_tagged")
    DeltaTable(workspace.lake.uri("s_tagged")).delete("seq = 3")
    restore(workspace, version)  # takes back only the DELETE
    assert status(workspace)[0].problem is None
    restore(workspace, version - 1)
    advice = f"RESTORE TABLE s_tagged TO VERSION AS OF {version + 2}"
    assert advice in str(status(workspace)[0].problem)
    # a run says so before new rows come, too
    assert advice in run_due(workspace, OpenGates()).failures["s"]
    append(workspace, 180, 240)
    with pytest.raises(TableError, match=f"{advice}.* deltatag tag s --restart"):
        tag_stream(workspace, "s")
    restore(workspace, version + 2)
    tag_stream(workspace, "s")
    restore(workspace, version)
    tag_stream(workspace, "s", restart=True)
    append(workspace, 240, 300)
    tag_stream(workspace, "s")
    assert_like_anew(workspace)
    assert not run_due(workspace, OpenGates()).failures


@pytest.mark.slow
def test_a_restore_to_a_time_is_judged_by_its_files(make_retagged) -> None:
    workspace = prepared(make_retagged)
    times = [datetime.now(UTC)]
    append(workspace, 120, 180)
    tag_stream(workspace, "s")
    times.append(datetime.now(UTC))
    table = DeltaTable(workspace.lake.uri("s_tagged"))
    table.delete("seq = 3")
    table.restore(times[1])  # takes back only the DELETE
    assert not run_due(workspace, OpenGates()).failures
    table.restore(times[0])
    assert "RESTORE has put the table s_tagged" in run_due(workspace, OpenGates()).failures["s"]


@pytest.mark.slow
@pytest.mark.parametrize("output", ["all", "matched"])
@pytest.mark.parametrize("later", [BEFORE, AFTER, LATER])
@pytest.mark.parametrize("tags", [False, True])
def test_a_retag_that_a_restore_has_undone_does_not_count(make_retagged, output: str, later: dict, tags: bool) -> None:
    workspace = prepared(make_retagged, output=output)
    retag(workspace, "s")
    restore(workspace, workspace.lake.version("s_tagged") - 1)
    if tags:
        append(workspace, 120, 180)
        tag_stream(workspace, "s")
    write_rules(workspace, later)
    if output == "all":
        with pytest.raises(TableError, match="RESTORE has undone a re-tag of s"):
            retag(workspace, "s", since="2024-01-01")
    retag(workspace, "s")
    again = retag(workspace, "s")
    assert (again.files_read, again.rows_changed) == (0, 0)
    assert_like_anew(workspace)


def test_a_restart_makes_the_table_anew_of_a_run_that_died_before_its_first_plan(make_retagged, monkeypatch) -> None:
    workspace = make_retagged()
    append(workspace, 0, 60)
    write_rules(workspace, BEFORE)
    with monkeypatch.context() as patch, pytest.raises(DiedError):
        patch.setattr(micro_batch, "record_plan", die)
        tag_stream(workspace, "s")
    typed = rows(0, 60).set_column(1, "n", rows(0, 60)["n"].cast(pa.int64()))
    write_deltalake(workspace.configuration.streams["s"].source, typed, mode="overwrite", schema_mode="overwrite")
    write_rules(workspace, BEFORE)
    assert tag_stream(workspace, "s", restart=True).rows
    assert read(workspace, "s_tagged").schema.field("n").type == pa.int64()


@pytest.mark.parametrize("output", ["all", "matched"])
def test_a_restore_to_a_version_that_a_restore_made(make_retagged, output: str) -> None:
    workspace = prepared(make_retagged, output=output)
    before = workspace.lake.version("s_tagged")
    retag(workspace, "s")
    restore(workspace, before)
    as_before = workspace.lake.version("s_tagged")
    retag(workspace, "s")
    restore(workspace, as_before)
    write_rules(workspace, {"n": "n > 3"})
    retag(workspace, "s")
    assert matched(workspace) == exploded(workspace)
    assert_like_anew(workspace)


def die(*_arguments: object) -> None:
    raise DiedError


@pytest.mark.slow
def test_what_a_table_is_like_after_a_restore_to_a_time_is_known_if_the_log_has_its_files(
    make_retagged, monkeypatch
) -> None:
    workspace = prepared(make_retagged)
    before = histories_to_retag(workspace.lake, "s", 0)[0].distinct
    retag(workspace, "s")
    assert histories_to_retag(workspace.lake, "s", 0)[0].distinct != before
    table = DeltaTable(workspace.lake.uri("s_tagged"))
    table.restore(datetime.fromtimestamp(table.history(2)[1]["timestamp"] / 1000, UTC))
    assert histories_to_retag(workspace.lake, "s", 0)[0].distinct == before
    monkeypatch.setattr(transaction_ids, "_version_like", lambda *_: -1)
    assert histories_to_retag(workspace.lake, "s", 0)[0].distinct == {("unknown",)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["s_tagged", "s_matches"])
def test_a_lost_file_is_told_with_what_to_do(make_retagged, name: str) -> None:
    workspace = prepared(make_retagged)
    for file in Path(workspace.lake.uri(name)).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(TableError, match=f"{name} cannot be re-tagged.* deltatag tag s --restart"):
        retag(workspace, "s")
    tag_stream(workspace, "s", restart=True)
    assert_like_anew(workspace)


def test_a_damaged_file_is_named_with_what_to_do(make_retagged) -> None:
    workspace = prepared(make_retagged)
    (file, *_) = Path(workspace.lake.uri("s_tagged")).rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    reason = f"{file.name} is damaged.*[^.]\\. Restore the file from a copy, or .*tag s --restart"
    with pytest.raises(TableError, match=reason):
        retag(workspace, "s")


@pytest.mark.parametrize(("output", "command"), [("all", "deltatag retag s"), ("matched", "deltatag tag s --restart")])
def test_a_lost_index_is_told_with_what_applies_all_rules(make_retagged, output: str, command: str) -> None:
    workspace = prepared(make_retagged, output=output)
    compile_scopes(workspace, ["s"], force=True)
    with pytest.raises(TableError, match=f"new is not known.* up to date once: {command}$"):
        retag(workspace, "s", mode=NEW_RULES)


@pytest.mark.parametrize("seed", quick_first(0, range(cases(12, RETAGS))))
def test_random_restores(make_retagged, seed: int) -> None:
    """After any RESTORE that leaves all rows there, a re-tag makes the tables what a tag from the start makes."""
    draw = random.Random(seed)
    workspace = make_retagged(output=("matched", "all")[seed % 2])
    rules = {f"r{number}": random_rule(draw) for number in range(4)}
    end = oldest = 0
    for _ in range(8):
        step = draw.choice(("tag", "edit", "retag", "retag", "restore")) if end else "tag"
        if step == "tag":
            append(workspace, end, end + 40)
            end += 40
            write_rules(workspace, rules)
            tag_stream(workspace, "s")
            oldest = workspace.lake.version("s_tagged")
        elif step == "restore":
            restore(workspace, draw.randrange(oldest, max(workspace.lake.version("s_tagged"), oldest + 1)))
        else:
            rules = edited(draw, rules) if step == "edit" else rules
            write_rules(workspace, rules)
            retag(workspace, "s")
    write_rules(workspace, rules)
    retag(workspace, "s")
    assert matched(workspace) == exploded(workspace)
    assert_like_anew(workspace)
