"""The arguments of the command line: a help for each verb, and options in any place."""

from __future__ import annotations

import sys

import pytest

from deltatag.__main__ import main
from deltatag.arguments import parser


@pytest.mark.parametrize("verb", ["init", "validate", "compile", "tag", "join", "run", "sql", "status", "demo"])
def test_every_verb_has_a_help_with_an_example(verb: str, capsys) -> None:
    assert main([verb, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Example: deltatag {verb}" in " ".join(out.split())
    assert "--config" in out


@pytest.mark.parametrize(
    "arguments, found",
    [
        (["explain", "s", "--json", "r", "--where", "x", "q"], {"scope": "s", "rules": ["r", "q"], "where": "x"}),
        (["explain", "--where", "x", "--", "s", "--json"], {"scope": "s", "rules": ["--json"], "json": False}),
        (["backtest", "s", "--from", "2024-01-01", "x > 1"], {"expression": "x > 1", "since": "2024-01-01"}),
        (["lint", "s", "--json", "q"], {"scopes": ["s", "q"], "json": True}),
        (["--config", "c", "sql", "a", "--format", "csv", "b"], {"statements": ["a", "b"], "config": "c"}),
        (["lint", "s", "--accept", "-r", "dead", "--json"], {"accept": ["-r", "dead"], "scopes": ["s"], "json": True}),
        (["explain", "s", "--where", "x", "--limit", "9" * 20], {"limit": sys.maxsize}),
        (["rules", "history", "-r"], {"rule": "-r"}),
        (["backtest", "s", "-x>1", "--json"], {"expression": "-x>1", "json": True}),
    ],
)
def test_options_stand_before_and_behind_other_arguments(arguments: list[str], found: dict) -> None:
    parsed = vars(parser().parse_args(arguments))
    assert {name: parsed[name] for name in found} == found


@pytest.mark.parametrize("unknown", [["--none"], ["x", "y"], ["x", "--none"]])
def test_arguments_that_are_not_known_are_refused(unknown: list[str], capsys) -> None:
    assert main(["backtest", "s", *unknown]) == 2
    error = capsys.readouterr().err
    assert f"unrecognized arguments: {unknown[-1]}" in error
    assert error.startswith("usage: deltatag backtest") and "--sample ROWS" in error  # what the verb does take


@pytest.mark.parametrize("arguments", [["--accept", "\udcff", "dead"], ["--accept", "r", "dead", "--reason", "\udcff"]])
def test_a_finding_is_accepted_in_letters_alone(arguments: list[str], capsys) -> None:
    assert main(["lint", *arguments]) == 2
    assert "is not text in UTF-8" in capsys.readouterr().err
