"""Explanations beside Spark: each part of a rule has the value that Spark gives its text, near misses match there too,
and rows are explained as they were tagged.

DELTATAG_EXPLAINED sets how many rules are explained on each of 40 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import rules_index as ri
from pipelines.compile import compile_scopes
from pipelines.explain import explain
from pipelines.join import join_streams
from pipelines.tag import tag_stream
from rules_index.index.compiled import dumps
from tests.cases import cases
from tests.random_expressions import Grammar
from tests.random_rows import rows
from tests.spark_oracle import FALSE, NULL, RAISED, TRUE, Oracle

COUNT = max(30, cases(60, "DELTATAG_EXPLAINED"))
ROWS = 40
CODES = {False: FALSE, True: TRUE, None: NULL, "error": RAISED}

pytestmark = pytest.mark.timeout(120 + 4 * COUNT)


def oracle_of(spark: Any, table: pa.Table, folder: Any) -> Oracle:
    path = folder / f"rows{table.num_rows}.parquet"
    pq.write_table(table, path)
    return Oracle(spark, spark.read.parquet(str(path)).cache())


def compiled_with_answers(oracle: Oracle, table: pa.Table, texts: Sequence[str]) -> tuple[Any, list[dict[str, Any]]]:
    """The rules that Spark takes as one index, and the rows with what only Spark evaluates."""
    answers: dict[str, pa.Array] = {}

    def analyse(leaves: Sequence[Any]) -> list[str | None]:
        found = oracle.derived(leaves)
        answers.update({leaf.name: answer for leaf, answer in zip(leaves, found, strict=True)})
        return [answer if isinstance(answer, str) else None for answer in found]

    schema = pa.schema([each for each in table.schema if each.name != "pk"])
    compiled = ri.loads(dumps(ri.compile_rules([*enumerate(texts)], schema, analyse=analyse)))
    return compiled, with_answers(
        table.to_pylist(), compiled.derived, [answers[leaf.name] for leaf in compiled.derived]
    )


def with_answers(rows: list[dict[str, Any]], leaves: Sequence[Any], answers: Sequence[Any]) -> list[dict[str, Any]]:
    """The rows with what Spark has computed on them."""
    for leaf, answer in zip(leaves, answers, strict=True):
        is_code = pa.types.is_boolean(leaf.type)
        for row, value in zip(rows, answer.to_pylist(), strict=True):
            raised = value == 3 if is_code else value is None
            row[leaf.name] = ArithmeticError() if raised else (value if is_code else value["value"])
    return rows


def parts_of(part: Any) -> list[Any]:
    return [part, *(inner for child in part.children for inner in parts_of(child))]


def test_each_part_has_the_value_that_spark_gives_its_text(spark, tmp_path) -> None:
    table = rows(ROWS, 77)
    oracle = oracle_of(spark, table, tmp_path)
    texts = [Grammar(seed).rule() for seed in range(COUNT)]
    compiled, listed = compiled_with_answers(oracle, table, texts)
    assert len(compiled) > 0.8 * COUNT
    trees = {rule: [compiled.explain(row, rule) for row in listed] for rule in compiled.ids.to_pylist()}
    named: dict[str, None] = {}
    for explained in trees.values():
        named |= dict.fromkeys(part.text for part in parts_of(explained[0]))
    answers = dict(zip(named, oracle.truths([*named]), strict=True))
    compared, raised = 0, 0
    changed, wanted = [], []
    for rule, explained in trees.items():
        for place, found in enumerate(explained):
            for part in parts_of(found):
                truth = answers[part.text]
                # a STRING is a condition beside others, and none on its own
                if isinstance(truth, str):
                    continue
                code = int(truth[place])
                inner = {each.value for each in parts_of(part) if not each.children}
                compared += 1
                if part.children and "error" in inner:
                    # Spark may meet the error before what decides without it
                    assert code in (CODES[part.value], RAISED), (part.text, str(found))
                    continue
                raised += part.value == "error"
                assert code == CODES[part.value], (part.text, listed[place], str(found))
            if not found.matched and (rule + place) % 10 == 0 and found.near_miss is not None:
                tops = {change.column.split(".")[0] for change in found.near_miss}
                if tops <= {
                    name for name in table.column_names if not pa.types.is_struct(table.schema.field(name).type)
                }:
                    row = {name: listed[place][name] for name in table.column_names}
                    changed.append(row | {each.column: each.after for each in found.near_miss} | {"pk": len(changed)})
                    wanted.append(rule)
    assert compared > 10 * COUNT and raised > 0 and len(changed) > COUNT // 4
    again = oracle_of(spark, pa.Table.from_pylist(changed, table.schema), tmp_path)
    distinct = [*dict.fromkeys(wanted)]
    matched = dict(zip(distinct, again.truths([texts[rule] for rule in distinct]), strict=True))
    changed = with_answers(changed, compiled.derived, again.derived(compiled.derived))
    wrong = [(rule, changed[place]) for place, rule in enumerate(wanted) if matched[rule][place] != TRUE]
    # Spark may meet an error before what makes the rule TRUE without it
    unforeseen = [
        (texts[rule], row)
        for rule, row in wrong
        if matched[rule][row["pk"]] != RAISED or all(p.value != "error" for p in compiled.explain(row, rule).predicates)
    ]
    assert unforeseen == []


FIRST = datetime(2024, 3, 30, 22, tzinfo=UTC)  # clocks in Berlin change three hours later
TEXTS = {
    "hours": "hour(t) = 3 AND v > 5",
    "divided": "100 / v > 20 OR v IS NULL",
    "plain": "v BETWEEN 3 AND 7 AND NOT name = 'n1'",
    "sized": "length(name) > v",
}


def source(count: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "v": pa.array([None if i % 11 == 0 else i % 9 for i in range(count)], pa.int32()),
            "name": [f"n{i % 3}" for i in range(count)],
            "t": pa.array([FIRST + timedelta(minutes=7 * i) for i in range(count)], pa.timestamp("us", "UTC")),
        }
    )


def test_tagged_and_joined_rows_are_explained_as_they_were_tagged(new_workspace, add_rules) -> None:
    streams = {name: {"source": f"lake/{name}", "event_time": "t", "key": ["id"]} for name in ("s", "w")}
    joins = {"j": {"streams": ["s", "w"], "on": ["name"], "window": "10 min"}}
    workspace = new_workspace(streams, {"time_zone": "Europe/Berlin"}, joins=joins)
    for name in streams:
        write_deltalake(workspace.configuration.streams[name].source, source(90))
    add_rules(workspace, *((rule, "s", text) for rule, text in TEXTS.items()))
    bound = {"valid_from": FIRST + timedelta(hours=3)}
    add_rules(workspace, {"rule_id": "both", "scope": "j", "expression": "hour(s.t) >= 2 OR w.v = 4"} | bound)
    add_rules(workspace, ("any", "j", "s.v > 3"))
    assert not [each.error for each in compile_scopes(workspace) if each.error]
    tag_stream(workspace, "s")
    join_streams(workspace, "j")
    ids = {row["id"]: row["rule_ids"] for row in workspace.lake.arrow("s_tagged").to_pylist()}
    found = explain(workspace, "s", [*TEXTS], "hour(t) < 6 AND id < 80", limit=60).explained
    assert len(found) == len(TEXTS) * 60 or len({each.row["id"] for each in found}) > 20
    for each in found:
        assert each.explanation.matched == (each.rule_id in ids[each.row["id"]]), str(each.explanation)
    assert {each.explanation.value for each in found} == {True, False, None, "error"}
    (unnamed,) = {tuple(e.rule_id for e in explain(workspace, "s", [], "id = 5").explained if e.explanation.matched)}
    assert [*unnamed] == ids[5]
    joined = {(row["s"]["id"], row["w"]["id"]): row["rule_ids"] for row in workspace.lake.arrow("j_tagged").to_pylist()}
    assert {len(rules) for rules in joined.values()} == {1, 2}
    found = explain(workspace, "j", ["any", "both"], "TRUE", limit=1_000).explained
    assert len(found) == 2 * len(joined)
    for each in found:
        assert each.explanation.matched == (each.rule_id in joined[each.row["s"]["id"], each.row["w"]["id"]])
