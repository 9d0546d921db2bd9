"""What is shown of other libraries' errors."""

from __future__ import annotations

import pytest

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
