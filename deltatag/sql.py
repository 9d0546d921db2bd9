"""The verb sql: reads statements, executes them and prints their results."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deltatag.output import counted, print_csv, print_json, print_table, say
from deltatag.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.workspace import Workspace


def statements_given(args: Namespace) -> list[str]:
    """The statements of the file, of the arguments and of standard input, in this order.

    Raises ConfigurationError if there is none, StatementError if one is not in UTF-8.
    """
    from pipelines.errors import ConfigurationError
    from pipelines.spark.statements import statements_of

    texts = [_decoded(Path(args.file).read_bytes(), args.file)] if args.file else []
    texts += [_standard_input() if text == "-" else text for text in args.statements]
    statements = [statement for text in texts for statement in statements_of(text)]
    if not statements:
        raise ConfigurationError("There is no statement to execute: give one, or - to read it from standard input.")
    return statements


def _standard_input() -> str:
    return "" if sys.stdin is None else _decoded(sys.stdin.buffer.read(), "Standard input")


def _decoded(data: bytes, place: str) -> str:
    from pipelines.errors import StatementError

    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise StatementError(f"{place} is not text in UTF-8; save it as UTF-8.") from None


def print_results(workspace: Workspace, statements: Sequence[str], style: str) -> None:
    """Execute statements one after the other and print each result as "table", "csv" or "json".

    Raises StatementError for the first one that fails.
    """
    from pipelines.errors import StatementError

    for number, statement in enumerate(statements, 1):
        place = f"statement {number} of {len(statements)}"
        try:
            result = _result(workspace, statement, place)
        except StatementError as error:
            if len(statements) == 1:
                raise
            done = ", after those before it were executed" if number > 1 else ", and none was executed"
            raise StatementError(f"{place}{done}: {error}") from error
        if number > 1 and style != "json":
            say()
        _print_result(result, style)
        sys.stdout.flush()


def _result(workspace: Workspace, statement: str, place: str) -> pa.Table:
    """The result of a statement: by this process if it is exact, else by Spark."""
    from pipelines.errors import NeedsSparkError
    from pipelines.local_sql.statement import execute

    assert isinstance(workspace.progress, Progress)
    try:
        with workspace.progress.during(f"executing {place}"):
            return execute(workspace, statement)
    except NeedsSparkError as error:
        reason = " ".join(str(error).split())
    from pipelines.runners.choice import is_given_session
    from pipelines.sql import statement_result

    started = is_given_session(workspace)
    with workspace.progress.during(f"executing {place}" if started else f"starting Spark for {place}: {reason}"):
        return statement_result(workspace, statement)


def _print_result(result: pa.Table, style: str) -> None:
    """Print the result of a statement; "(executed)" if it has none. StatementError if JSON would lose a column."""
    from pipelines.errors import StatementError

    names = result.column_names
    from pipelines.lake.python_values import values_of

    columns = [values_of(column) for column in result.columns]
    rows = [list(row) for row in zip(*columns, strict=True)] if columns else []
    if style == "json":
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise StatementError(
                f"The result has several columns called {twice}, and JSON would keep only one of them: give them "
                "different names with AS."
            )
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif style == "csv":
        print_csv(names, rows)
    elif names:
        print_table(names, rows)
        say(f"({counted(len(rows), 'row')})")
    else:
        say("(executed)")
