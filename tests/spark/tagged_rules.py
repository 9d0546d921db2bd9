"""Rules through a real lake and a real `tag`, their tagged rows against what Spark's WHERE keeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from pipelines.compile import compile_scopes
from pipelines.settings.configuration import parse_configuration
from pipelines.settings.semantic_settings import SEMANTIC_SETTINGS, TIME_ZONE
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from tests.lakes import make_tables, write_rules
from tests.spark_oracle import RAISED, TRUE, Difference, Oracle, Tally, compare


def reference_session(spark: SparkSession, zone: str) -> SparkSession:
    """A session with the settings under which rules are defined, made by hand."""
    session = spark.newSession()
    for name, value in {**SEMANTIC_SETTINGS, TIME_ZONE: zone}.items():
        session.conf.set(name, value)
    return session


def compared(spark: SparkSession, folder: Path, table: pa.Table, texts: Sequence[str], zone: str) -> Tally:
    """What Spark and an index answer to expressions over a table with a key `pk`."""
    session = reference_session(spark, zone)
    # of so many small queries, generated code would be compiled longer than it runs
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    pq.write_table(table, folder / "rows.parquet")
    tally = Tally()
    oracle = Oracle(session, session.read.parquet(str(folder / "rows.parquet")))
    compare(oracle, table, texts, tally, time_zone=zone)
    return tally


class Lake:
    """A lake of one stream `s` over the rows of a table with a key `pk`, and an oracle over the same rows."""

    def __init__(self, folder: Path, caller: SparkSession, oracle: Oracle, table: pa.Table, zone: str, **spark: str):
        self.folder, self.oracle, self.table = folder, oracle, table
        source = str(folder / "source")
        if not DeltaTable.is_deltatable(source):
            write_deltalake(source, table)
        document = {
            "lake": {"root": str(folder / "lake")},
            "spark": spark,
            "rules": {"time_zone": zone},
            "streams": {"s": {"source": source}},
        }
        self.workspace = Workspace(parse_configuration(document, folder / "deltatag.toml"), caller)
        make_tables(self.workspace, "bigint")

    def write(self, texts: Sequence[str]) -> None:
        """Replaces the rules by these; their ids are their places."""
        write_rules(self.workspace, [(number, "s", text) for number, text in enumerate(texts)], "overwrite")

    def compare(self, texts: Sequence[str], tally: Tally) -> None:
        """Tags all rows with the rules and adds to `tally` what differs from Spark's own answers."""
        self.write(texts)
        failed = [result.error for result in compile_scopes(self.workspace) if result.error]
        assert not failed, failed
        tagged = tag_stream(self.workspace, "s", restart=True)
        assert tagged.rows == self.table.num_rows
        found = DeltaTable(self.workspace.lake.uri("s_tagged")).to_pyarrow_table(columns=["pk", "rule_ids"])
        matched = np.zeros((len(texts), self.table.num_rows), bool)
        for row, ids in zip(found["pk"].to_pylist(), found["rule_ids"].to_pylist(), strict=True):
            matched[ids, row] = True
        errors = {str(rule): count for rule, count in tagged.errors.items()}
        rejects = DeltaTable(self.workspace.lake.uri("rule_rejects")).to_pyarrow_table().to_pylist()
        refused = {int(each["rule_id"]): f"{each['error']} {each['message']}" for each in rejects}
        # Spark looks for what it refuses among many by halves: what deltatag refuses is asked about by itself
        truths: dict[int, Any] = {number: self.oracle.truths([texts[number]])[0] for number in refused}
        others = [number for number in range(len(texts)) if number not in refused]
        truths |= zip(others, self.oracle.truths([texts[number] for number in others]), strict=True)
        for number, truth in sorted(truths.items()):
            self._add(tally, texts[number], truth, matched[number], refused.get(number), errors.get(str(number), 0))

    def _add(self, tally: Tally, text: str, truth: Any, matched: Any, refused: str | None, errors: int) -> None:
        if tally.is_refused(text, truth, refused):
            return
        raised = truth == RAISED
        tally.compared += 1
        tally.matches += int((truth == TRUE).sum())
        tally.raised_rows += int(raised.sum())
        tally.with_errors += bool(raised.any())
        wrong = ~raised & (matched != (truth == TRUE))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            answer = f"{('FALSE', 'TRUE', 'NULL', 'raised')[truth[row]]} ({wrong.sum()} rows differ)"
            values = {name: self.table.column(name)[row].as_py() for name in self.table.column_names if name in text}
            tally.differences.append(Difference(text, "answer", answer, f"matched {matched[row]}", values))
        if errors < raised.sum():
            tally.differences.append(Difference(text, "errors", f"{raised.sum()} raised", f"{errors} counted"))
