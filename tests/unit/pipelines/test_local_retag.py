"""Rows re-tagged without a JVM: after any edits, kills and what others write meanwhile as if all were tagged anew."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import rules_index as ri
from pipelines.authoring.versions import history
from pipelines.due import retag_is_due
from pipelines.errors import ConfigurationError, TableError
from pipelines.lake.folder_log import FolderLog
from pipelines.lake.index_histories import ALL, NEW_RULES, current_histories, policy_mode
from pipelines.lake.index_store import fetch_index, index_to_tag_with
from pipelines.lake.runs import batches
from pipelines.maintaining import folding
from pipelines.retag import retag
from pipelines.retagging import local_tables
from pipelines.retagging.changes import RuleSets
from pipelines.retagging.local_tables import LocalTables
from pipelines.run import OpenGates, run_due
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
)
from tests.unit.pipelines.retagged_rows import (
    BEFORE,
    STEPS,
    STREAM,
    DiedError,
    die_after,
    edited,
    overtake,
    random_rule,
    rows,
    structs,
    write_rules,
)

pytestmark = pytest.mark.usefixtures("without_spark")


@pytest.mark.parametrize("seed", quick_first(0, range(cases(16, RETAGS))))
def test_random_edits(make_retagged, seed: int) -> None:
    draw = random.Random(seed)
    output = ("matched", "all")[seed % 2]
    workspace = make_retagged(output=output, **draw.choice([{}, {"partition_by": ["n"]}, {"cluster_by": ["seq"]}]))
    rules = {f"r{number}": random_rule(draw) for number in range(8 if output == "all" else 3)}
    end = 0
    for _ in range(5):
        if draw.random() < 0.8 or not end:
            append(workspace, end, end + draw.randint(1, 150))
            end = read_end(workspace)
        write_rules(workspace, rules)
        tag_stream(workspace, "s")
        rules = edited(draw, rules)
        write_rules(workspace, rules)
        if draw.random() < 0.7:
            assert retag(workspace, "s").rules_version == index_to_tag_with(workspace.lake, "s").rules_version
    retag(workspace, "s")
    again = retag(workspace, "s")
    assert (again.files_read, again.files_written, again.rows_changed) == (0, 0, 0)
    assert {batch.state for batch in batches(workspace.lake)} == {"done"}
    assert_like_anew(workspace)


@pytest.mark.parametrize("seed", quick_first(0, range(cases(8, RETAGS))))
def test_added_rules_on_top_of_edited_ones(make_retagged, seed: int) -> None:
    """Each row has the ids of the rules that were tried on it, by the text that each had then; `runs` may be folded."""
    draw = random.Random(seed)
    workspace = make_retagged(output=("all", "matched")[seed % 2])
    rules = {f"r{number}": random_rule(draw) for number in range(4)}
    tried: list[tuple[int, dict]] = []  # the first row of each micro-batch, and the rules that were tried on its rows
    end = 0
    for _ in range(12):
        rules = edited(draw, rules) if draw.random() < 0.6 else {**rules, f"n{draw.randint(0, 99)}": random_rule(draw)}
        comes = draw.random() < 0.6 or not end
        if comes:
            append(workspace, end, end + 15)
        write_rules(workspace, rules)
        if comes:
            tag_stream(workspace, "s")
            tried.append((end, rules))
            end += 15
        mode = draw.choice([NEW_RULES, NEW_RULES, NEW_RULES, None, ALL])
        if mode is not None:
            new = {rule: text for rule, text in rules.items() if any(rule not in before for _, before in tried)}
            tried = [(first, rules if mode == ALL else {**rules, **before, **new}) for first, before in tried]
            if draw.random() < 0.3:
                with pytest.MonkeyPatch.context() as patch, suppress(DiedError):
                    die_after(patch, draw.choice(STEPS), FolderLog)
                    retag(workspace, "s", mode=mode)
            retag(workspace, "s", mode=mode)
        if draw.random() < 0.3:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(folding, "KEPT_BATCHES", draw.randint(1, 3))
                folding.fold(workspace.lake, datetime.now(UTC))
        assert matched(workspace) == exploded(workspace)
    for first, those in tried:
        write_rules(workspace, those)
        wanted = ids_by_row(workspace, first)
        found = {r["seq"]: r["rule_ids"] for r in read(workspace, "s_tagged").to_pylist() if r["seq"] in wanted}
        kept = wanted if seed % 2 == 0 else {seq: ids for seq, ids in wanted.items() if ids}
        assert found == {seq: ids for seq, ids in kept.items() if rows(seq, seq + 1)["id"][0].is_valid}


def ids_by_row(workspace: Workspace, first: int) -> dict[int, list[str]]:
    """The ids that the newest index gives to the rows of a micro-batch."""
    compiled = ri.load(fetch_index(workspace.lake, index_to_tag_with(workspace.lake, "s")))
    return dict(zip(range(first, first + 15), compiled.match(rows(first, first + 15)).to_pylist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("edit", [False, True])
def test_what_a_retag_by_added_rules_compares_does_not_grow(make_retagged, edit: bool) -> None:
    workspace = make_retagged(retag="new_rules")
    rules = {"r": "n > 3"}
    for number in range(6):
        append(workspace, number * 10, number * 10 + 10)
        rules[f"n{number}"] = f"n = {number}"
        if number == 2 and edit:
            rules["r"] = "n > 4"
        write_rules(workspace, rules)
        tag_stream(workspace, "s")
        retag(workspace, "s", mode=NEW_RULES)
        newest = index_to_tag_with(workspace.lake, "s").fingerprint
        found = current_histories(workspace.lake, "s", number)
        assert [len(history) for _, each in found.spans for history in each] == ([2, 1] if edit and number > 1 else [1])
        assert {history[-1] for history in found.distinct} == {newest}


@pytest.mark.slow
def test_a_replaced_text_stays_known_when_histories_are_shortened(make_retagged) -> None:
    """A rule goes and comes back with another text, for rows that it is new to and for those that had the first one."""
    workspace = make_retagged(output="matched")
    texts: list[dict[str, str]] = [{"r": "n < 3", "q": "n = 0"}, {"q": "n = 1"}]
    for place, rules in enumerate(texts):
        append(workspace, place * 10, place * 10 + 10)
        write_rules(workspace, rules)
        tag_stream(workspace, "s")
    for added in ({"r": "n > 6"}, {"m": "n = 5"}, {"p": "n = 4"}):
        texts[1] |= added
        write_rules(workspace, texts[1])
        retag(workspace, "s", mode=NEW_RULES)
    found, rule_sets = current_histories(workspace.lake, "s", 1), RuleSets(workspace, "s")
    assert [len(history) for _, each in found.spans for history in each] == [2, 1]
    known = [rule_sets.of_history(history) for _, each in found.spans for history in each]
    assert [dict(each["rule_id", "expression"].rows()) for each in known] == [{**texts[1], "q": "n = 0"}, texts[1]]
    retag(workspace, "s")
    assert_like_anew(workspace)


def read_end(workspace: Workspace) -> int:
    return int(pl.read_delta(workspace.configuration.streams["s"].source)["seq"].max()) + 1


@pytest.mark.parametrize("seed", quick_first(0, range(cases(8, RETAGS))))
def test_deaths_after_each_write(make_retagged, seed: int) -> None:
    """Killed behind each write; then rules are edited, or rows come, and it is started again."""
    draw = random.Random(seed)
    workspace = prepared(make_retagged, output=("matched", "all")[seed % 2])
    end, now = 120, BEFORE
    steps = list(STEPS) * 2
    draw.shuffle(steps)
    for step in steps:
        now = draw.choice([each for each in (BEFORE, AFTER, LATER) if each is not now])
        write_rules(workspace, now)
        with pytest.MonkeyPatch.context() as patch:
            die_after(patch, step, FolderLog)
            with pytest.raises(DiedError):
                retag(workspace, "s")
        if draw.random() < 0.5:
            now = draw.choice([BEFORE, AFTER, LATER])
            write_rules(workspace, now)
        if draw.random() < 0.5:
            append(workspace, end, end + 20)
            end += 20
            tag_stream(workspace, "s")
        retag(workspace, "s")
        assert matched(workspace) == exploded(workspace)
        assert {batch.state for batch in batches(workspace.lake)} == {"done"}
    assert retag(workspace, "s").rows_changed == 0
    assert_like_anew(workspace)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [ALL, NEW_RULES])
@pytest.mark.parametrize("text", ["seq BETWEEN 20 AND 30", None])
def test_matches_of_rows_that_came_after_a_death_by_other_rules_stay(make_retagged, text: str | None, mode) -> None:
    """Statistics show that the re-tag's text of the rule, or the lack of it, gives these rows no match."""
    workspace = make_retagged()
    append(workspace, 0, 60)
    write_rules(workspace, {"r": "seq < 10"} if mode == ALL or text is None else {"k": "n > 3"})
    tag_stream(workspace, "s")
    write_rules(workspace, {"k": "n > 3", **({"r": text} if text else {})})
    with pytest.MonkeyPatch.context() as patch, pytest.raises(DiedError):
        die_after(patch, "s_tagged", FolderLog)
        retag(workspace, "s", mode=mode)
    write_rules(workspace, {"k": "n > 3", "r": f"{text or 'FALSE'} OR seq BETWEEN 100 AND 110"})
    append(workspace, 100, 160)
    tag_stream(workspace, "s")
    retag(workspace, "s", mode=mode)
    assert matched(workspace) == exploded(workspace)


def test_it_is_told_why_a_retag_needs_spark(make_retagged, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make_retagged()
    append(workspace, 0, 60)
    write_rules(workspace, BEFORE)
    tag_stream(workspace, "s")
    write_rules(workspace, AFTER)
    settings = {"spark.sql.parquet.compression.codec": "lz4"}
    monkeypatch.setattr(workspace, "configuration", replace(workspace.configuration, spark=settings))
    told: list[str] = []
    monkeypatch.setattr(workspace, "progress", told.append)
    with pytest.raises(AssertionError):
        retag(workspace, "s")
    assert told == ["the re-tag of s goes through Spark because files are to be compressed by lz4"]


@pytest.mark.slow
def test_whoever_was_stopped_writes_nothing_when_it_goes_on(make_retagged) -> None:
    workspace = prepared(make_retagged)
    overtake(workspace, LocalTables, LATER)
    assert_like_anew(workspace)


@pytest.mark.parametrize(
    ("when", "meanwhile"),
    quick_first(
        1,
        [
            *(("s_tagged", "tag"), ("s_matches", "compact"), ("s_tagged", "restart")),
            *(("s_matches", "tag"), ("s_tagged", "compact"), ("s_matches", "restart")),
        ],
        3,
    ),
)
@pytest.mark.slow
def test_others_write_meanwhile(make_retagged, meanwhile: str, when: str) -> None:
    monkeypatch = pytest.MonkeyPatch()
    workspace = prepared(make_retagged)
    rewrite = FolderLog.rewrite

    def others(self, *arguments):
        if self.uri.endswith(when):
            monkeypatch.undo()
            if meanwhile == "tag":
                append(workspace, 120, 200)
                tag_stream(workspace, "s")
            elif meanwhile == "restart":
                tag_stream(workspace, "s", restart=True)
            else:
                append(workspace, 120, 140)
                tag_stream(workspace, "s")
                DeltaTable(workspace.lake.uri("s_tagged")).optimize.compact()
        return rewrite(self, *arguments)

    monkeypatch.setattr(FolderLog, "rewrite", others)
    retag(workspace, "s")
    assert retag(workspace, "s").rows_changed == 0
    assert_like_anew(workspace)


@pytest.mark.slow
def test_only_files_that_can_hold_a_change_are_read(make_retagged, monkeypatch) -> None:
    monkeypatch.setattr(local_tables, "_LARGE", 0)
    workspace = make_retagged()
    for start in range(0, 400, 100):
        write_deltalake(workspace.configuration.streams["s"].source, rows(start, start + 100), mode="append")
        write_rules(workspace, BEFORE)
        tag_stream(workspace, "s")
    write_rules(workspace, {**BEFORE, "narrow": "seq BETWEEN 210 AND 220"})
    result = retag(workspace, "s")
    assert (result.files_read, result.files_written, result.rows_changed) == (1, 1, 11)
    write_rules(workspace, {**BEFORE, "narrow": "seq BETWEEN 310 AND 315"})
    assert retag(workspace, "s").files_read == 2
    write_rules(workspace, BEFORE)
    assert retag(workspace, "s").files_read == 1
    write_rules(workspace, {**BEFORE, "narrow": "seq BETWEEN 310 AND 315"})
    retag(workspace, "s")
    monkeypatch.setattr(local_tables, "_LARGE", 1 << 30)  # to read all is sooner done than to compile
    write_rules(workspace, BEFORE)
    result = retag(workspace, "s")
    assert (result.files_read, result.files_written) == (4, 1)
    assert_like_anew(workspace)


@pytest.mark.slow
def test_a_run_applies_what_the_policy_says(make_retagged) -> None:
    workspace = prepared(make_retagged)
    assert run_due(workspace, OpenGates()).retagged == []
    before = {r["seq"]: r["rule_ids"] for r in read(workspace, "s_tagged").to_pylist()}
    added = make_retagged(retag="new_rules")
    assert retag_is_due(added, added.configuration.streams["s"])
    report = run_due(added, OpenGates())
    for row in read(workspace, "s_tagged").to_pylist():
        new = row["n"] is not None and 5 <= row["n"] <= 7
        assert row["rule_ids"] == sorted([*before[row["seq"]], *(["new"] if new else [])])
    assert [each.rows_changed for each in report.retagged] == [
        sum("new" in r["rule_ids"] for r in read(workspace, "s_tagged").to_pylist())
    ]
    assert not retag_is_due(added, added.configuration.streams["s"])
    always = make_retagged(retag="always")
    append(always, 120, 160)
    report = run_due(always, OpenGates())
    assert (len(report.retagged), report.failures) == (1, {})
    assert run_due(always, OpenGates()).retagged == []
    assert_like_anew(workspace)
    with pytest.raises(ConfigurationError, match="retag"):
        make_retagged(retag="sometimes")


# tests/spark/test_retag_columns.py has a table of matched rows
@pytest.mark.slow
@pytest.mark.parametrize("policy", ["new_rules", "always"])
def test_a_field_that_a_struct_gets_stops_no_other_rule(make_retagged, policy: str) -> None:
    """Only rules that name the column whose type has changed count as changed."""
    workspace = make_retagged(retag=policy, event_time=None)
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, structs(range(9), "x"), mode="append")
    write_rules(workspace, {"same": "n > 2"})
    tag_stream(workspace, "s")
    write_deltalake(source, structs(range(0), "x", "z"), mode="append", schema_mode="merge")
    write_rules(workspace, {"same": "n > 2", "new": "n < 2"})
    result = retag(workspace, "s", mode=policy_mode(workspace.configuration.streams["s"]))
    assert result.rows_changed == 2
    assert not retag_is_due(workspace, workspace.configuration.streams["s"])
    found = {r["id"]: r["rule_ids"] for r in read(workspace, "s_tagged").to_pylist()}
    assert found == {n: ["new"] * (n < 2) + ["same"] * (n > 2) for n in range(9)}


@pytest.mark.slow
def test_a_reader_of_the_tagged_rows_goes_on(new_workspace) -> None:
    workspace = new_workspace({"s": STREAM, "reader": {"source_stream": "s", "key": ["id"]}}, spark=False)
    append(workspace, 0, 120)
    write_rules(workspace, BEFORE)
    tag_stream(workspace, "s")
    tag_stream(workspace, "reader")
    write_rules(workspace, AFTER)
    assert retag(workspace, "s").rows_changed
    assert tag_stream(workspace, "reader").rows == 0
    append(workspace, 120, 160)
    tag_stream(workspace, "s")
    assert tag_stream(workspace, "reader").rows == sum(r["seq"] >= 120 for r in read(workspace, "s_tagged").to_pylist())


@pytest.mark.slow
def test_the_history_of_a_rule_keeps_what_it_matched_before_rows_were_tagged_anew(make_retagged) -> None:
    workspace = make_retagged()
    append(workspace, 0, 60)
    write_rules(workspace, {"r": "n > 3"})
    tag_stream(workspace, "s")
    before = history(workspace, "r")[0]["matches"]
    write_rules(workspace, {"r": "n > 5"})
    retag(workspace, "s")
    assert [each["matches"] for each in history(workspace, "r")] == [
        sum("r" in row for row in read(workspace, "s_tagged")["rule_ids"].to_pylist()),
        before,
    ]
    tag_stream(workspace, "s", restart=True)
    assert history(workspace, "r")[1]["matches"] == before > history(workspace, "r")[0]["matches"] > 0


@pytest.mark.slow
def test_an_empty_text_that_a_partition_has_lost(make_retagged) -> None:
    workspace = prepared(make_retagged, partition_by=["w"])
    with pytest.raises(TableError, match="--restart"):
        write_rules(workspace, {**BEFORE, "empty": "w = ''"})
        retag(workspace, "s")
    write_rules(workspace, {**BEFORE, "more": "n > 5"})
    retag(workspace, "s")
    assert_like_anew(workspace)
