"""Regenerates the parts of docs/ that follow from the code; with --check it only checks that they are current."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pipelines import table_definitions  # noqa: E402
from rules_index.language import function_signatures  # noqa: E402
from rules_index.language.costs import argument_limits, options  # noqa: E402

RESULTS = {
    "string": "STRING",
    "text": "STRING (BINARY for a BINARY argument)",
    "int": "INT",
    "bigint": "BIGINT",
    "tinyint": "TINYINT",
    "boolean": "BOOLEAN",
    "double": "DOUBLE",
    "float": "FLOAT",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "ntz": "TIMESTAMP_NTZ",
    "binary": "BINARY",
    "interval": "INTERVAL DAY TO SECOND",
    "months": "INTERVAL YEAR TO MONTH",
    "number": "the number's type",
    "whole": "a whole number",
    "rounded": "the number's type, rounded",
    "shift": "INT or BIGINT",
    "first": "as the first argument",
    "common": "the arguments' common type",
    "common-from-2": "the common type of the last two",
    "or-zero": "the common type with INT",
    "fraction": "FLOAT or DOUBLE",
    "concat": "STRING, BINARY or ARRAY",
    "array": "ARRAY",
    "item": "an item of the first argument",
    "keys": "ARRAY of the keys",
    "values": "ARRAY of the values",
    "strings": "ARRAY of STRING",
    "aggregate": "as the start value",
    "unknown": "as Spark says",
}
GROUPS = (
    ("aggregates", function_signatures.AGGREGATES),
    ("window functions", function_signatures.WINDOWS),
    ("generators of rows", function_signatures.TABLES),
    ("not repeatable", function_signatures.NOT_REPEATABLE),
    ("reach outside the row, or cost too much", function_signatures.NOT_ALLOWED),
)


def function_table() -> list[str]:
    """The allowed functions by result type, each with its number of arguments; then limits, and refused functions."""
    by_result: dict[str, list[tuple[str, str]]] = {}
    for function in function_signatures.FUNCTIONS.values():
        result = function.result
        shown = RESULTS.get(result) or result.upper()
        by_result.setdefault(shown, []).append((function.name, f"`{function.name}`&nbsp;{_count(function)}"))
    rows = [
        f"| {result} | {', '.join(text for _, text in sorted(names))} |" for result, names in sorted(by_result.items())
    ]
    sized = ", ".join(f"`{name}`" for name in sorted(argument_limits.COUNTS))
    formats = ", ".join(f"`{name}`" for name in sorted(argument_limits.FORMATS))
    size = f"{options.MAX_SCHEMA_LENGTH:,} characters and {options.MAX_SCHEMA_DEPTH} levels"
    schemas = f"- A schema is a constant of at most {size}."
    allowed = f"- Options are a MAP of constants: {_names(options.JSON_OPTIONS)}; of CSV {_names(options.CSV_OPTIONS)}."
    patterns = ", ".join(f"`{name}`" for name in sorted(function_signatures.PATTERN_ARGUMENT))
    return [
        f"{len(function_signatures.FUNCTIONS)} function names are allowed, each with its number of arguments.",
        "",
        "| result | functions |",
        "|---|---|",
        *rows,
        "",
        "Limits on arguments:",
        "",
        f"- Lambdas are arguments of {_names(function_signatures.LAMBDAS)} and of no other function.",
        f"- The size of the result is a constant of at most {argument_limits.LARGEST_COUNT:,} in {sized}.",
        f"- The regular expression is a constant, and one that Java cannot stall on, in {patterns}.",
        f"- A format or path has at most {argument_limits.LONGEST_FORMAT} bytes, whatever the row, in {formats}.",
        schemas,
        allowed,
        "",
        "Known and refused:",
        "",
        "| why | functions |",
        "|---|---|",
        *(f"| {why} | {_names(names)} |" for why, names in GROUPS),
    ]


def lake_tables() -> list[str]:
    """The tables that every lake has, and those that are made when needed."""
    lines: list[str] = []
    for table in table_definitions.FIXED_TABLES.values():
        lines += [f"### {table.name}", "", f"One row: {table.grain}.", "", *_columns(table.columns), ""]
    return lines[:-1]


def stream_tables() -> list[str]:
    """The tables of a stream, with the columns that deltatag adds."""
    ids = "string"
    return [
        "### &lt;stream&gt;_tagged",
        "",
        "One row: one row of the source that is not in quarantine. The source's columns, and:",
        "",
        *_columns(table_definitions.tagged_columns(ids)),
        "",
        "If the stream has `annotations`, the columns that it names come after `rule_ids`:",
        "",
        *_columns(table_definitions.annotation_columns(table_definitions.ANNOTATION_COLUMNS, ids)),
        "",
        "### &lt;stream&gt;_matches",
        "",
        "One row: one row of the source and one rule that it satisfies. The stream's key and event time, and:",
        "",
        *_columns(table_definitions.matches_columns(ids)),
        "",
        "### quarantine_&lt;stream&gt;",
        "",
        "One row: one row of the source that was not tagged. The source's columns, and:",
        "",
        *_columns(table_definitions.QUARANTINE_COLUMNS),
    ]


def join_tables() -> list[str]:
    """The tables of a join, with the columns that deltatag adds."""
    return [
        "### &lt;join&gt;_tagged",
        "",
        "One row: one joined row that satisfies a rule. A STRUCT of each stream's columns, named as the stream, and:",
        "",
        *_columns(table_definitions.joined_columns("string")),
        "",
        "If the join has `annotations`, it has the same columns for them as a stream.",
        "",
        "### quarantine_&lt;join&gt;",
        "",
        "One row: one row of a stream that came too late. A STRUCT for each stream, NULL except the row's own, and:",
        "",
        *_columns(table_definitions.QUARANTINE_COLUMNS),
    ]


def _columns(columns: Iterable[table_definitions.Column]) -> list[str]:
    rows = [f"| `{column.name}` | {column.type.upper()} | {column.comment} |" for column in columns]
    return ["| column | type | meaning |", "|---|---|---|", *rows]


def _count(function: function_signatures.Function) -> str:
    if function.most == function_signatures.MANY:
        return f"{function.least}+"
    return str(function.least) if function.least == function.most else f"{function.least}-{function.most}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


PARTS = {
    ("docs/rule-language.md", "functions"): function_table,
    ("docs/tables.md", "lake"): lake_tables,
    ("docs/tables.md", "stream"): stream_tables,
    ("docs/tables.md", "join"): join_tables,
}


def renewed(text: str, part: str, lines: list[str]) -> str:
    """The document with the part between its two marks replaced; SystemExit if the marks are missing."""
    begin, end = f"<!-- {part}: written by make docs -->", f"<!-- {part}: end -->"
    found = re.search(f"{re.escape(begin)}.*?{re.escape(end)}", text, re.DOTALL)
    if found is None:
        raise SystemExit(f"The marks of the part {part} are missing: {begin} and {end}.")
    body = "\n".join(lines)
    return f"{text[: found.start()]}{begin}\n\n{body}\n\n{end}{text[found.end() :]}"


def main() -> int:
    """Write or check all parts; the exit status is 1 if --check finds an outdated part."""
    outdated = []
    for (name, part), write in PARTS.items():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        new = renewed(text, part, write())
        if new != text:
            outdated.append(f"{name} ({part})")
            if "--check" not in sys.argv:
                path.write_text(new, encoding="utf-8")
    if outdated and "--check" in sys.argv:
        print(f"Not current: {', '.join(outdated)}. Write it anew with: make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
