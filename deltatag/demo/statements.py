"""Reads the demonstration's SQL files: statements that end with a semicolon, each under a comment as its title."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement without its semicolon, and the comment above it as one line."""

    title: str
    text: str


def read_text(file_name: str) -> str:
    """The text of a file next to this module."""
    return resources.files(__package__ or "deltatag.demo").joinpath(file_name).read_text(encoding="utf-8")


def read_statements(file_name: str) -> list[Statement]:
    """The statements of one of the demonstration's files, in order."""
    statements, lines = [], list[str]()
    for line in read_text(file_name).splitlines():
        lines.append(line)
        if line.endswith(";"):
            statements.append(_statement(lines))
            lines = []
    return statements


def _statement(lines: list[str]) -> Statement:
    first = next(number for number, line in enumerate(lines) if line.strip() and not line.startswith("--"))
    title = " ".join(line.removeprefix("--").strip() for line in lines[:first] if line.strip())
    return Statement(title, "\n".join(lines[first:]).rstrip(";"))
