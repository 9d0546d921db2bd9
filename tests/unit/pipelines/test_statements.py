"""Several statements in one text."""

from __future__ import annotations

import pytest

from pipelines.spark.statements import statements_of
from pipelines.sql import _near_mark


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;", ["SELECT 1"]),
        (" SELECT 1 ; SELECT 2;;\n;", ["SELECT 1", "SELECT 2"]),
        ("", []),
        (" ; -- nothing; here\n /* nor; here */ ;", []),
        ("SELECT ';', \";\", `a;b` ; SELECT 2", ["SELECT ';', \";\", `a;b`", "SELECT 2"]),
        ("SELECT 'it\\'s; it' ; SELECT 'a'';b'", ["SELECT 'it\\'s; it'", "SELECT 'a'';b'"]),
        ("SELECT r'\\'; SELECT 2", ["SELECT r'\\'", "SELECT 2"]),
        ("SELECT attr'x;y'", ["SELECT attr'x;y'"]),
        ("-- one; two\nSELECT 1 -- a; b\n; SELECT /* ; */ 2", ["-- one; two\nSELECT 1 -- a; b", "SELECT /* ; */ 2"]),
        ("SELECT 'open ; SELECT 2", ["SELECT 'open", "SELECT 2"]),
        ("-- a script\nBEGIN SELECT 1; SELECT 2; END;", ["-- a script\nBEGIN SELECT 1; SELECT 2; END"]),
    ],
)
def test_statements_end_at_semicolons_that_are_not_quoted(text: str, statements: list[str]) -> None:
    assert statements_of(text) == statements


def test_a_long_text_takes_no_time() -> None:
    assert len(statements_of("INSERT INTO rules VALUES ('a', 'b', 'c > 1');\n" * 20_000)) == 20_000
    assert len(statements_of("'" * 100_001 + "/*" * 50_000)) == 1


def test_an_error_quotes_only_the_marked_place_of_a_long_statement() -> None:
    assert _near_mark(["SELECT x", "  FROM", "--^^^^", "  y"]) == ["SELECT x", "  FROM", "--^^^^", "  y"]
    values = [f"  ({number}, 'a')," for number in range(1_000)]
    assert _near_mark([*values[:500], "  ^^^", *values[500:]]) == [values[499], "  ^^^"]
    long = "SELECT " + "x" * 5_000 + "!"
    text, mark = _near_mark([long, "-" * 5_007 + "^"])
    assert text == "x" * 40 + "!" and mark == "-" * 40 + "^"
    assert _near_mark(values) == ["  (0, 'a'),", "  (1, 'a'),"]
