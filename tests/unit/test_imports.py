"""What a run imports: no structure of a paper, row at a time, before somebody asks for it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
import pyarrow as pa
import deltatag.verbs, pipelines.due, pipelines.join, pipelines.lint, pipelines.run, pipelines.tag
import rules_index as ri
from rules_index.index.compiled import dumps
import rules_index.join.worker, rules_index.workers.spark_worker, rules_index.workers.tagged_files
schema = pa.schema({"a": pa.int32(), "b": pa.int32()})
rules = [(i, f"a = {i % 50} AND b BETWEEN {i} AND {i + 3}") for i in range(500)]
rows = pa.table({"a": list(range(50)), "b": list(range(50))}, schema=schema)
for engine in ("auto", "hybrid"):
    compiled = ri.compile_rules(rules, schema, engine=engine)
    loaded = ri.loads(dumps(compiled))
    assert loaded.match(rows) == compiled.match(rows)
print(json.dumps(sorted(sys.modules)))
"""
ROOMS = ("rules_index.engines.", "rules_index.join.pdfa", "benchmarks.papers.systems.disjunctive")


@pytest.mark.slow
def test_a_run_imports_no_structure_of_a_paper() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    imported = [name for name in json.loads(run.stdout) if name.startswith(ROOMS)]
    assert not any(name.startswith("rules_index.explaining") for name in json.loads(run.stdout))
    assert [name for name in imported if name.count(".") > 2 and not name.endswith(".engine")] == []
