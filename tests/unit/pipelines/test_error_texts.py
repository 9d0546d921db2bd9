"""What is shown of other libraries' errors."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from pipelines.error_texts import first_line

WORKER = "An exception was thrown from the Python worker:"
TRACE = """Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
    ^^^^^^^^^
"""

RAISED = "PermissionError: [Errno 13] Permission denied: '/x'"
CHAINED = "KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\n  one\ntwo", "one"),
        (
            "An error occurred while calling o1.save.\n: java.lang.StateError: stopped\n\tat Main",
            "java.lang.StateError: stopped",
        ),
        ("An error occurred while calling o1.save. Trace:", "An error occurred while calling o1.save. Trace:"),
        (f"{WORKER}\n{TRACE}{RAISED}\nmore", None),
        (f"{WORKER} {TRACE}{RAISED}", None),
        (f"{WORKER}\n{TRACE}{CHAINED}{TRACE}{RAISED}\n\nJVM stacktrace:\n", None),
    ],
)
def test_an_error_is_shown_in_one_line_with_what_a_worker_raised(text: str, shown: str | None) -> None:
    assert first_line(ValueError(text)) == (shown or f"{WORKER} {RAISED}")


def test_a_lost_checkpoint_is_told_with_what_to_do(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"a": [1]}))
    DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log/00000000000000000000.checkpoint.parquet").unlink()
    with pytest.raises(DeltaError) as raised:
        DeltaTable(tmp_path)
    assert "remove _delta_log/_last_checkpoint" in first_line(raised.value)
    (tmp_path / "_delta_log/_last_checkpoint").unlink()
    assert DeltaTable(tmp_path).version() == 0
