"""What the command line prints: tables, CSV, maps and what libraries log."""

from __future__ import annotations

import io
import json
import logging
import os
import re
from decimal import Decimal

import pyarrow as pa
import pytest

from deltatag.lines import compile_line, lag_text, tag_line
from deltatag.logs import libraries_silent
from deltatag.output import json_text, jsonable, print_csv, print_json, print_table, say, say_rejected
from deltatag.progress import Progress
from pipelines.compiling.results import ScopeResult
from pipelines.lake.python_values import values_of
from pipelines.tag import TagResult


def test_output_forms(capsys) -> None:
    print_table(["name", "n"], [["a", 1], [None, 20]])
    print_csv(["a", "b"], [[1, None], [[1, 2], "x,y"]])
    out = capsys.readouterr().out.splitlines()
    assert out[:4] == ["name   n", "----  --", "a      1", "NULL  20"]
    assert out[4:] == ["a,b", "1,", '"[1, 2]","x,y"']
    assert jsonable({"x": float("nan"), "b": b"\x00", "n": (1, None)}) == {"x": "NaN", "b": "AA==", "n": [1, None]}


def test_the_line_of_a_stream_names_the_rules_that_raise_most_errors() -> None:
    errors = {"few": 1, "x" * 1000: 1200, 7: 30, "some": 20}
    line = tag_line(TagResult("s", 1, 2000, 3, errors=errors))
    assert f"errors on rows of 4 rules ({'x' * 57}... on 1,200, 7 on 30, some on 20, ...)" in line
    assert "errors on rows of 1 rule (few on 1), rules" in tag_line(TagResult("s", 1, 9, 0, errors={"few": 1}))


@pytest.mark.parametrize("width", [30, 60, 200])
def test_a_table_fits_a_terminal_and_keeps_every_word(width: int, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((width, 24)))
    message = "The rule reads a column that is not there; name one of these in its place: " + ", ".join("abcdefghijk")
    print_table(["rule_id", "message", "n"], [["late", message, 1], ["x", "plan\n  +- scan", 20]])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert set(re.findall(r"\w+", message)) <= set(re.findall(r"\w+", " ".join(lines)))
    assert any(line.endswith("  20") for line in lines) and any("+- scan" in line for line in lines)
    assert not any("plan" in line and "+- scan" in line for line in lines)
    if width == 200:
        assert any(message in line for line in lines)


def test_decimals_keep_their_digits(capsys) -> None:
    numbers = ["123456789012345678.91", "42.60", "-0.00", "7", "0.0000000001", "1E+3"]
    print_json([{"d": Decimal(each), "nested": {"l": [Decimal(each)]}} for each in numbers])
    out = capsys.readouterr().out
    assert '{"d": 123456789012345678.91, "nested": {"l": [123456789012345678.91]}}, {"d": 42.60,' in out
    read = [each["d"] for each in json.loads(out, parse_float=Decimal)]
    assert read == [Decimal(each) for each in numbers]
    assert json_text([Decimal("NaN"), float("inf"), "1.5", 1.5]) == '["NaN", "Infinity", "1.5", 1.5]'
    print_csv(["l"], [[[Decimal("42.60")]]])
    assert capsys.readouterr().out == "l\n[42.60]\n"


HOSTILE = "a\x1b[2Jb\x00\u202ec\u200bd\re\x85\u2028\ud800"
HARMLESS = r"a\x1b[2Jb\x00\u202ec\u200bd\re\x85\u2028\ud800"


def test_what_a_terminal_obeys_is_escaped_for_people(capsys) -> None:
    print_table(["rule\x1b", "text"], [[f"{HOSTILE}\nb  forged", f"{HOSTILE}\nmore"]])
    say(f"{HOSTILE}\nmore")
    names, _, row, more, first, second = capsys.readouterr().out.split("\n")[:6]
    assert names.split() == ["rule\\x1b", "text"]
    assert row == f"{HARMLESS}\\nb  forged  {HARMLESS}"
    assert more.strip() == "more" and more.startswith("  ")
    assert (first, second) == (HARMLESS, "more")
    print_table(["plan"], [["a\n\tb"]])
    assert capsys.readouterr().out.split("\n")[2:4] == ["a", r"\tb"]
    clean = HOSTILE.replace("\ud800", "")
    print_csv(["x"], [[clean]])
    print_json(clean)
    out = capsys.readouterr().out
    assert clean in out and json.loads(out.split("\n")[-2]) == clean


def test_progress_shows_no_controls_but_its_own() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    progress = Progress(stream)
    progress("a\x1b]0;b\x07")
    progress.clear()
    assert stream.getvalue() == "\r\033[Ka\\x1b]0;b\\x07\r\033[K"


def test_maps_are_shown_as_maps(capsys) -> None:
    entries = pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32()))
    structs = pa.array([[({"x": 1}, 2)]], pa.map_(pa.struct([("x", pa.int32())]), pa.int32()))
    assert values_of(pa.chunked_array([entries])) == [{"k": 1}, None]
    assert values_of(pa.chunked_array([structs])) == [[({"x": 1}, 2)]]
    print_csv(["m"], [[value] for value in values_of(pa.chunked_array([entries]))])
    assert capsys.readouterr().out.splitlines() == ["m", '"{""k"": 1}"', '""']


def test_libraries_log_only_where_more_is_asked_for(caplog) -> None:
    for silent, told in ((True, []), (False, ["inside"])):
        caplog.clear()
        with libraries_silent(silent):
            logging.getLogger("SQLQueryContextLogger").error("inside")
        assert caplog.messages == told
    logging.getLogger("SQLQueryContextLogger").error("behind")
    assert caplog.messages[-1] == "behind"


def test_very_many_rejected_rules_are_counted(capsys) -> None:
    say_rejected([f"rule {number} is rejected" for number in range(100)])
    assert len(capsys.readouterr().err.splitlines()) == 100
    say_rejected([f"rule {number} is rejected" for number in range(1_250)])
    *lines, last = capsys.readouterr().err.splitlines()
    assert (len(lines), lines[99]) == (100, "deltatag: rule 99 is rejected")
    assert last == "deltatag: these are 100 of 1,250 rejected rules; --json has all."


def test_counts_have_separators_and_their_noun_in_its_number() -> None:
    result = ScopeResult("s", "compiled", 3, rules=20_000, rejects=1_234, engine="hybrid", bytes=2 << 20)
    line = "s: compiled, 20,000 rules, 1,234 rejected (see the table rule_rejects), engine hybrid, 2,048 KiB"
    assert compile_line(result).startswith(line)
    assert [lag_text(*lag) for lag in [(1, 1), (2, 3_000), (1_000, None)]] == [
        "1 version, 1 row",
        "2 versions, 3,000 rows",
        "1,000 versions",
    ]
