"""Lakes whose rows are re-tagged by Spark, and what is in their tables."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

from deltalake import write_deltalake

from pipelines.tag import tag_stream
from tests.tables import rows_of
from tests.unit.pipelines import retagged_rows
from tests.unit.pipelines.retagged_rows import BEFORE, STREAM, write_rules

MAPPED = {**STREAM, "source": "lake/mapped"}
"""A column's name has a blank: such tables Spark alone reads and writes."""
AFTER = {"same": "w = 'x'", "changed": "n < 4 AND hour(t) < 9", "new": "n BETWEEN 5 AND 7"}
LATER = {"same": "w = 'x'", "new": "n BETWEEN 6 AND 9", "newer": "soundex(w) = soundex('z')"}


def is_mapped(workspace: Any) -> bool:
    """Whether the stream's tables are those with a blank in a column's name."""
    return str(workspace.configuration.streams["s"].source).endswith("mapped")


def append(workspace: Any, start: int, stop: int, files: int = 2) -> None:
    """Rows with NULLs in every column: a number, a text, a double with NaN, a moment."""
    source = workspace.configuration.streams["s"].source
    if not is_mapped(workspace):
        ends = [start + (stop - start) * number // files for number in range(files + 1)]
        for first, last in pairwise(ends):
            write_deltalake(source, retagged_rows.rows(first, last), mode="append")
        return
    texts = {
        "id": "IF(id % 31 = 7, NULL, id DIV 2)",
        "n": "IF(id % 7 = 3, NULL, CAST(id % 20 AS INT))",
        "w": "element_at(array('x', 'xy', NULL, 'z', ''), CAST(1 + id % 5 AS INT))",
        "d": "CASE id % 6 WHEN 0 THEN double('NaN') WHEN 1 THEN NULL ELSE id / 10.0D END",
        "t": "IF(id % 11 = 2, NULL, timestamp_seconds(1709942400 + id * 600))",
        "odd name": "CAST(id % 3 AS INT)",
        "seq": "id",
    }
    made = workspace.spark.range(start, stop, 1, files).selectExpr(
        *(f"{text} AS `{name}`" for name, text in texts.items())
    )
    made.write.format("delta").mode("append").option("delta.columnMapping.mode", "name").save(source)


def rows(workspace: Any, name: str) -> list[dict[str, Any]]:
    """A table's rows, by delta-rs where it reads them."""
    if not is_mapped(workspace):
        return rows_of(workspace, name)
    frame = workspace.spark.read.format("delta").load(workspace.lake.uri(name))
    return [row.asDict() for row in frame.collect()]


def tags(workspace: Any) -> dict[int, list[str]]:
    """The rules of each row."""
    return {row["seq"]: row["rule_ids"] for row in rows(workspace, "s_tagged")}


def state(workspace: Any) -> tuple[Counter[str], Counter[str]]:
    """The tagged rows and the matches, as texts; both tell of the same pairs."""
    tagged, matches = rows(workspace, "s_tagged"), rows(workspace, "s_matches")
    pairs = Counter(repr((rule, row["id"], row["t"])) for row in tagged for rule in row["rule_ids"])
    matched = Counter(repr((row["rule_id"], row["id"], row["t"])) for row in matches)
    assert pairs == matched
    return Counter(repr((row["seq"], row["id"], row["d"], row["rule_ids"])) for row in tagged), matched


def random_rule(draw: random.Random) -> Any:
    texts = [
        f"n > {draw.randint(0, 20)}",
        f"n BETWEEN {draw.randint(0, 9)} AND {draw.randint(9, 20)} AND w = '{draw.choice(('x', 'xy', 'z'))}'",
        "n IS NULL",
        f"NOT (n = {draw.randint(0, 20)} OR w = 'x')",
        f"d >= {draw.randint(0, 40)}",
        "d = double('NaN')",
        f"hour(t) < {draw.randint(0, 24)}",
        f"100 / n > {draw.randint(0, 30)}",
        f"seq BETWEEN {draw.randint(0, 300)} AND {draw.randint(0, 300)}",
        f"`odd name` = {draw.randint(0, 3)} AND soundex(w) = soundex('x')",
        "TRUE",
        "FALSE",
    ]
    return retagged_rows.bounded(draw, draw.choice(texts))


def assert_like_anew(workspace: Any) -> None:
    """The tables as they are, and as they are when all is tagged anew."""
    found = state(workspace)
    tag_stream(workspace, "s", restart=True)
    assert found == state(workspace)


def prepared(new_workspace: Any, stream: Any = STREAM, **more: Any) -> Any:
    """Rows that are tagged by BEFORE, and an index of AFTER."""
    workspace = new_workspace({"s": {**stream, **more}})
    append(workspace, 0, 120)
    write_rules(workspace, BEFORE)
    tag_stream(workspace, "s")
    write_rules(workspace, AFTER)
    return workspace
