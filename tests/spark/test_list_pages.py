"""Lists that a re-tag has added ids to, page by page, as Spark reads them."""

from __future__ import annotations

import pytest

from pipelines.compile import compile_scopes
from pipelines.retag import retag
from pipelines.tag import tag_stream
from rules_index.workers import encoded_chunks

ROWS = 3000


@pytest.mark.parametrize("id_type", ["string", "bigint"])
@pytest.mark.parametrize("vectorised", ["true", "false"])
def test_pages_with_codes_of_several_widths(
    new_workspace, add_rules, spark, monkeypatch: pytest.MonkeyPatch, id_type: str, vectorised: str
) -> None:
    """The dictionary outgrows the codes of the pages that are copied; a dictionary of 4 values gets 300 more."""
    monkeypatch.setattr(encoded_chunks, "_PAGE_VALUES", 100)
    workspace = new_workspace({"s": {"source": "lake/source"}}, id_type=id_type, runner="local")
    source = workspace.configuration.streams["s"].source
    spark.range(ROWS).coalesce(1).write.format("delta").save(source)

    def add(numbers: range, expression: str) -> None:
        ids = [f"r{number:04}" if id_type == "string" else number for number in numbers]
        add_rules(
            workspace, *((each, "s", expression.format(number)) for each, number in zip(ids, numbers, strict=True))
        )
        compile_scopes(workspace)

    add(range(4), "id % 5 > {0}")
    tag_stream(workspace, "s")
    monkeypatch.setattr(encoded_chunks, "_PAGE_VALUES", 1 << 18)
    add(range(4, 6), "id = 1000 + {0}")
    assert retag(workspace, "s").rows_changed == 2
    add(range(6, 306), "id = {0} * 3")
    assert retag(workspace, "s").rows_changed == 300
    name = "spark.sql.parquet.enableNestedColumnVectorizedReader"
    spark.conf.set(name, vectorised)
    try:
        found = spark.read.format("delta").load(workspace.lake.uri("s_tagged"))
        rows = {row["id"]: [*row["rule_ids"]] for row in found.select("id", "rule_ids").collect()}
    finally:
        spark.conf.unset(name)
    expected = {}
    for row in range(ROWS):
        numbers = [n for n in range(4) if row % 5 > n] + [n for n in (4, 5) if row == 1000 + n]
        numbers += [row // 3] if row % 3 == 0 and 6 <= row // 3 < 306 else []
        expected[row] = [f"r{number:04}" if id_type == "string" else number for number in numbers]
    assert rows == expected
