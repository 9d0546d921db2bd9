"""A rule is a condition: what is of another type is refused with the type's name, also where only Spark knows it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.random_rows import rows
from tests.spark.tagged_rules import Lake, reference_session
from tests.spark_oracle import Oracle, Tally

VALUES = {
    "st['x']": "INT",
    "second(ts)": "INT",
    "s + 1": "DOUBLE",
    "-s": "DOUBLE",
    "ts - ts": "INTERVAL",
    "nanvl(f, 1)": "DOUBLE",
    "variant_get(parse_json('1'), '$', 'int')": "INT",
    "parse_json(s)": "VARIANT",
    "from_json(s, 'a INT')": "STRUCT",
    "st['z']": "STRUCT",
    "ai": "ARRAY",
    "mp": "MAP",
    "extract(SECOND FROM ts)": "DECIMAL",
    "dt - dt": "INTERVAL",
    "i + l": "BIGINT",
    "bin": "BINARY",
    "st['z']['w']": "DOUBLE",
    "element_at(mp, 'a')": "INT",
}
"""No conditions, and a word of how Spark names their types."""
TEXTS = ("st['y']", "variant_get(parse_json(s), '$', 'string')", "nvl(s, s2)", "concat(s, '')", "element_at(sa, 1)")
"""Texts: no rules, though Spark casts them where a condition is needed within one."""
CONDITIONS = ("variant_get(parse_json('true'), '$', 'boolean')", "nvl(b, b2)", "array(b)[0]", "map('a', b)['a']")
FORMS = ("{} AND b", "b OR {}", "NOT {}", "({}) AND ({}) OR b", "NOT (b AND {})")


def test_only_conditions_are_rules(spark: SparkSession, tmp_path: Path) -> None:
    table = rows(60, 4)
    pq.write_table(table, tmp_path / "rows.parquet")
    reference = reference_session(spark, "UTC")
    oracle = Oracle(reference, reference.read.parquet(str(tmp_path / "rows.parquet")))
    lake = Lake(tmp_path, spark, oracle, table, "UTC")
    within = [form.replace("{}", text) for text in (*VALUES, *TEXTS, *CONDITIONS) for form in FORMS]
    asked = [*VALUES, *TEXTS, *CONDITIONS, *within]
    tally = Tally()
    lake.compare(asked, tally)
    rejects = DeltaTable(lake.workspace.lake.uri("rule_rejects")).to_pyarrow_table().to_pylist()
    refused = {asked[int(each["rule_id"])]: each for each in rejects}
    for text, word in VALUES.items():
        for rule in (text, *(form.replace("{}", text) for form in FORMS)):
            assert refused[rule]["error"] == "NOT_BOOLEAN", (rule, refused[rule])
            assert word in refused[rule]["message"] or "a number" in refused[rule]["message"], refused[rule]
            assert refused[rule]["position"] in (None, rule.find(text), rule.rfind(text)), refused[rule]
    assert {text for text in TEXTS if refused.get(text, {}).get("error") != "NOT_BOOLEAN"} == set()
    assert len(refused) == len(VALUES) * (1 + len(FORMS)) + len(TEXTS)
    # Spark's filter is asked for whole rules, since the oracle puts them beside AND
    for text in (*VALUES, *TEXTS):
        with pytest.raises(Exception, match="DATATYPE_MISMATCH"):
            oracle.rows.filter(text)
    differences = [each for each in tally.differences if each.text not in TEXTS]
    assert "\n".join(map(str, differences)) == ""
