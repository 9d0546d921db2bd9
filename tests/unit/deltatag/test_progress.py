"""What people who wait are told: what is being done and for how long, and nothing where it is soon over."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest

from deltatag.demo.printing import Narrator
from deltatag.output import print_csv, print_json, print_table, say
from deltatag.progress import Progress
from tests.cases import quick_first
from tools import setup


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.slow
def test_a_terminal_shows_what_is_done_and_a_clock(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = Progress(stream)
    with progress.during("compiling"):
        time.sleep(2.5)
    shown = stream.getvalue().split("\r\033[K")
    assert shown[1] == "compiling"
    assert "compiling 2 s" in shown
    assert shown[-1] == ""
    told = len(shown)
    time.sleep(1.2)
    assert len(stream.getvalue().split("\r\033[K")) == told


@pytest.mark.slow
def test_elsewhere_a_line_comes_now_and_then_while_something_takes_long() -> None:
    stream = io.StringIO()
    progress = Progress(stream, between=0.2)
    for _ in range(5):
        with progress.during("soon over"):
            pass
    assert stream.getvalue() == ""
    with progress.during("tagging"):
        time.sleep(0.7)
    lines = stream.getvalue().splitlines()
    assert 1 <= len(lines) <= 3
    assert all(re.fullmatch(r"deltatag: tagging( \(\d+ s\))?", line) for line in lines)


@pytest.mark.slow
def test_many_short_steps_are_not_silent_together() -> None:
    stream = io.StringIO()
    progress = Progress(stream, between=0.2)
    for step in range(10):
        progress(f"step {step}")
        time.sleep(0.1)
    progress.clear()
    assert 2 <= len(stream.getvalue().splitlines()) <= 5


@pytest.mark.parametrize(
    "output",
    [
        lambda: say("done"),
        lambda: print_json({}),
        lambda: print_csv(["x"], [[1]]),
        lambda: print_table(["x"], [[1]]),
        lambda: Narrator().say("done"),
    ],
)
def test_output_takes_the_place_of_the_line(monkeypatch, capsys, output) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    Progress(stream)("tagging")
    output()
    assert capsys.readouterr().out != ""
    assert stream.getvalue() == "\r\033[Ktagging\r\033[K"


def test_nobody_reading_is_no_error() -> None:
    stream = io.StringIO()
    progress = Progress(stream, between=0.0)
    stream.close()
    with progress.during("tagging"):
        pass


def test_the_demonstration_tells_what_takes_long() -> None:
    narrator, stream = Narrator(), io.StringIO()
    narrator.progress = Progress(stream, between=0.1)
    with narrator.timed("tagging"):
        time.sleep(0.4)
    assert stream.getvalue().startswith("deltatag: tagging")


@pytest.mark.parametrize(
    ("step", "told"),
    quick_first(
        1,
        [
            ("install_packages", "installing packages"),
            ("install_project", "installing the project"),
            ("fetch_runtime", "looking for Java"),
            ("archive_classes", "archiving the classes"),
            ("compile_kernels", "compiling the kernels"),
        ],
    ),
)
@pytest.mark.slow
def test_set_up_tells_what_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, told: str) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 0.4\n")
    python.chmod(0o755)
    stream = io.StringIO()
    monkeypatch.setattr(setup, "PYTHON", python)
    monkeypatch.setattr(setup, "NOTE", tmp_path / "setup.json")
    monkeypatch.setattr(setup, "PROGRESS", Progress(stream, between=0.1))
    getattr(setup, step)()
    assert f"deltatag: {told}" in stream.getvalue()
