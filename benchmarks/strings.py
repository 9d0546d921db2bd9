"""Thousands of patterns over the command lines of a published Sysmon log: looked for at once, and one by one.

The patterns are cut out of the lines, half of them with a letter changed: LIKE, contains, ILIKE, RLIKE, endswith and
LIKE with two texts, equally often. Matches are compared, and with `--spark` their counts with those of Spark's own
expressions over the same rows on one core.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

import rules_index as ri
from benchmarks.lakes import session
from rules_index.index import code_matrix

_AT_ONCE = 100
"""Patterns that Spark counts in one query; it compiles no code for very many."""
_FILE = "sysmon/sysmon_01_process_create.parquet"


def literal(text: str) -> str:
    """A text as a literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def like(text: str) -> str:
    """A text as a part of a LIKE pattern that means itself."""
    return "".join("\\" + each if each in "%_\\" else each for each in text)


def rules_of(lines: list[str], count: int, draw: random.Random) -> list[tuple[int, str]]:
    """Rules of one pattern each."""
    found = []
    for number in range(count):
        line = draw.choice(lines)
        at, length = draw.randrange(max(1, len(line) - 14)), draw.randint(5, 14)
        text = line[at : at + length]
        if draw.random() < 0.5:
            text = text[:-2] + draw.choice("qxzj") + text[-1:]
        kinds = (
            f"s LIKE {literal('%' + like(text) + '%')}",
            f"contains(s, {literal(text)})",
            f"s ILIKE {literal('%' + like(text.upper()) + '%')}",
            f"s RLIKE {literal(re.escape(text) + '.*[a-z]')}",
            f"endswith(s, {literal(line[-length:])})",
            f"s LIKE {literal('%' + like(text[:5]) + '%' + like(text[5:]) + '%')}",
        )
        found.append((number, kinds[number % len(kinds)]))
    return found


def measured(compiled: ri.CompiledRules, rows: pa.Table) -> tuple[float, list[list[int]]]:
    """Rows per second, and the matches."""
    compiled.match(rows.slice(0, 256))
    started = time.perf_counter()
    found = compiled.match(rows)
    return rows.num_rows / (time.perf_counter() - started), found.to_pylist()


def by_spark(rules: Sequence[tuple[int, str]], rows: pa.Table) -> tuple[float, dict[int, int]]:
    """Rows per second that Spark takes through all expressions, and how many rows each one keeps."""
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(rows, Path(folder) / "rows.parquet")
        spark = session(Path(folder), {"spark.master": "local[1]"})
        frame = spark.read.parquet(f"{folder}/rows.parquet").cache()
        frame.count()
        counts: dict[int, int] = {}
        started = time.perf_counter()
        for start in range(0, len(rules), _AT_ONCE):
            counted = (f"count_if({text}) AS r{number}" for number, text in rules[start : start + _AT_ONCE])
            counts |= {int(name[1:]): found for name, found in frame.selectExpr(*counted).first().asDict().items()}
        taken = time.perf_counter() - started
        spark.stop()
    return rows.num_rows / taken, counts


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patterns", type=int, default=3000)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--spark", action="store_true", help="count with Spark, too")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DELTATAG_DATA", "../shared/data")))
    given = parser.parse_args(arguments)
    lines = [each for each in pq.read_table(given.data / _FILE)["CommandLine"].to_pylist() if each]
    draw = random.Random(7)
    rules = rules_of(lines, given.patterns, draw)
    compiled = ri.compile_rules(rules, pa.schema([("s", pa.string())]))
    assert compiled.rejects.num_rows == 0
    values = [None if draw.random() < 0.02 else draw.choice(lines) for _ in range(given.rows)]
    rows = pa.table({"s": pa.array(values, pa.string())})
    together, found = measured(compiled, rows)
    with patch.object(code_matrix, "groups_of", lambda patterns: ()):
        alone, others = measured(compiled, rows)
    assert found == others
    hits = sum(map(len, found)) / max(len(found), 1)
    print(f"{given.patterns:,} patterns, {given.rows:,} rows, {hits:.1f} matches a row")
    print(
        f"at once     {together:12,.0f} rows/s\none by one  {alone:12,.0f} rows/s\ntimes       {together / alone:12.1f}"
    )
    if given.spark:
        spark, counts = by_spark(rules, rows)
        matched = Counter(rule for each in found for rule in each)
        assert counts == {number: matched[number] for number, _ in rules}
        print(f"Spark       {spark:12,.0f} rows/s\ntimes       {together / spark:12.1f}")


if __name__ == "__main__":
    main()
