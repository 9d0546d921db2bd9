"""A table of thousands of columns."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from pipelines.writing.inputs import check_inputs
from rules_index.workers.copied_columns import copied_columns
from tests.unit.language.clock import within

SCHEMA = pa.schema([(f"c{number}", pa.int32()) for number in range(5_000)])


def test_the_inputs_of_rules_are_looked_up_by_name() -> None:
    compiled: Any = SimpleNamespace(
        inputs=[SimpleNamespace(text=None, name=f"c{number}", type=pa.int32()) for number in range(500)]
    )
    started = time.process_time()
    check_inputs(compiled, SCHEMA, "s")
    assert within(1.0, time.process_time() - started)  # with a look at each field for each input: 1.9 seconds


def test_the_columns_of_a_file_are_counted_once() -> None:
    file: Any = SimpleNamespace(stored_types=SCHEMA)
    started = time.process_time()
    assert len(copied_columns(file, [], SCHEMA, "zstd")) == len(SCHEMA)
    assert within(1.0, time.process_time() - started)  # with a count for each column: 2.8 seconds
