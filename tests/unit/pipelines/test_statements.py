"""Several statements in one text."""

from __future__ import annotations

import pytest

from pipelines.spark.statements import statements_of


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
