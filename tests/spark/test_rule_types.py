"""A rule is a condition: what is of another type is refused with the type's name, also where only Spark knows it."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.cases import SOAK
from tests.random_rows import rows
from tests.spark.tagged_rules import Lake, reference_session
from tests.spark_oracle import Oracle, Tally

VALUES = (
    "st['x']",
    "second(ts)",
    "s + 1",
    "-s",
    "ts - ts",
    "nanvl(f, 1)",
    "variant_get(parse_json('1'), '$', 'int')",
    "parse_json(s)",
    "from_json(s, 'a INT')",
    "st['z']",
    "ai",
    "mp",
    "extract(SECOND FROM ts)",
    "dt - dt",
    "i + l",
    "bin",
    "st['z']['w']",
    "element_at(mp, 'a')",
)
"""No conditions."""
TEXTS = ("st['y']", "variant_get(parse_json(s), '$', 'string')", "nvl(s, s2)", "concat(s, '')", "element_at(sa, 1)")
"""Texts: no rules, though Spark casts them where a condition is needed within one."""
CONDITIONS = ("variant_get(parse_json('true'), '$', 'boolean')", "nvl(b, b2)", "array(b)[0]", "map('a', b)['a']")
FORMS = (
    *("{} AND b", "b OR {}", "NOT {}", "({}) AND ({}) OR b", "NOT (b AND {})"),
    *("b AND ({} OR {})", "{} AND b AND {}"),
)
BESIDE = (FORMS[3], FORMS[5])
"""Where a text stands beside another one, of which Spark casts none."""


def forms_of(text: str) -> tuple[str, ...]:
    """All forms in `make soak`; else one of them around what is no condition, another one for each."""
    if SOAK or text not in VALUES:
        return FORMS
    place = VALUES.index(text)
    return (FORMS[place % len(FORMS)],)


def test_only_conditions_are_rules(spark: SparkSession, tmp_path: Path) -> None:
    table = rows(60, 4)
    pq.write_table(table, tmp_path / "rows.parquet")
    reference = reference_session(spark, "UTC")
    oracle = Oracle(reference, reference.read.parquet(str(tmp_path / "rows.parquet")))
    lake = Lake(tmp_path, spark, oracle, table, "UTC")
    within = [form.replace("{}", text) for text in (*VALUES, *TEXTS, *CONDITIONS) for form in forms_of(text)]
    asked = [*VALUES, *TEXTS, *CONDITIONS, *within]
    tally = Tally()
    lake.compare(asked, tally)
    rejects = DeltaTable(lake.workspace.lake.uri("rule_rejects")).to_pyarrow_table().to_pylist()
    refused = {asked[int(each["rule_id"])]: each for each in rejects}
    for text in VALUES:
        # the type's first word, since a message may leave out what an array, a map or a number is of
        word = re.split(r"\W", oracle.rows.selectExpr(text).schema[0].dataType.simpleString().upper())[0]
        for rule in (text, *(form.replace("{}", text) for form in forms_of(text))):
            assert refused[rule]["error"] == "NOT_BOOLEAN", (rule, refused[rule])
            assert re.search(rf"\b{word}\b", refused[rule]["message"]), (rule, refused[rule])
            places = (None, rule.find(text), rule.rfind(text), rule.find(f"({text}) AND ({text})"))
            assert refused[rule]["position"] in places, refused[rule]
    assert {text for text in TEXTS if refused.get(text, {}).get("error") != "NOT_BOOLEAN"} == set()
    known = {*VALUES, *TEXTS, *(form.replace("{}", text) for text in VALUES for form in forms_of(text))}
    known |= {form.replace("{}", text) for text in TEXTS for form in BESIDE}
    assert {text: each["message"] for text, each in refused.items() if text not in known} == {}
    # Spark's filter is asked for whole rules, since the oracle puts them beside AND
    for text in (*VALUES, *TEXTS):
        with pytest.raises(Exception, match="DATATYPE_MISMATCH"):
            oracle.rows.filter(text)
    for text in TEXTS:
        for form in BESIDE:
            reject = refused[form.replace("{}", text)]
            assert reject["error"] == "NOT_BOOLEAN" and "STRING" in reject["message"], reject
    assert "\n".join(str(each) for each in tally.differences if each.text not in TEXTS) == ""
