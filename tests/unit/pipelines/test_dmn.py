"""Decision tables of DMN: each test of a cell against Python's own answer, hit policies, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import polars as pl
import pyarrow as pa
import pytest

import rules_index as ri
from pipelines.authoring.dmn import MOST_ROWS, read_dmn
from pipelines.authoring.exchange import import_rules
from pipelines.authoring.rule_files import RuleFileError

SCHEMA = pa.schema(
    {
        "amount": pa.float64(),
        "limit": pa.float64(),
        "country": pa.string(),
        "vip": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "card": pa.struct({"kind": pa.string()}),
    }
)
NUMBERS = [None, -1.5, 0.0, 1.0, 4.999, 5.0, 7.5, 10.0, 99.0]
TEXTS = [None, "", "DE", "FR", "de", 'say "x"', "a\\b", "100%", "it's"]
DAYS = [None, date(2025, 12, 31), date(2026, 1, 1), date(2026, 6, 1)]


def document(*rows: tuple[str, ...], inputs: tuple[str, ...] = ("amount",), policy: str = "", more: str = "") -> str:
    """A decision with one table; a row's last cell is its output."""
    columns = "".join(
        f"<input><inputExpression><text>{escape(each)}</text></inputExpression></input>" for each in inputs
    )
    cells = "".join(
        "<rule>"
        + "".join(f"<inputEntry><text>{escape(cell)}</text></inputEntry>" for cell in row[:-1])
        + f"<outputEntry><text>{escape(row[-1])}</text></outputEntry></rule>"
        for row in rows
    )
    hit = f" hitPolicy={quoteattr(policy)}" if policy else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<definitions xmlns="https://www.omg.org/spec/DMN/20191111/MODEL/" id="d" name="d" namespace="n">'
        f'<decision id="risk" name="Risk"><decisionTable{hit} {more}>{columns}<output name="action"/>{cells}'
        "</decisionTable></decision></definitions>"
    )


def read(folder: Path, text: str, mapping: str | None = None) -> Any:
    (folder / "table.dmn").write_text(text, encoding="utf-8")
    fields = None
    if mapping is not None:
        fields = folder / "fields.yml"
        fields.write_text(mapping)
    return read_dmn(folder / "table.dmn", "s", SCHEMA, fields)


def matched(expressions: list[str], columns: dict[str, list[Any]]) -> list[list[int]]:
    """The rules that each row matches; columns that are not given are NULL."""
    rows = max(map(len, columns.values()))
    arrays = [pa.array(columns.get(each.name, [None] * rows), each.type) for each in SCHEMA]
    compiled = ri.compile_rules(list(enumerate(expressions)), SCHEMA)
    assert compiled.rejects.num_rows == 0, compiled.rejects.to_pylist()
    return compiled.match(pa.Table.from_arrays(arrays, schema=SCHEMA)).to_pylist()


def there(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A test that a missing value does not pass."""
    return lambda value: value is not None and test(value)


TESTS: list[tuple[str, str, Callable[[Any], bool]]] = [
    ("amount", "-", lambda v: True),
    ("amount", "", lambda v: True),
    ("amount", "5", there(lambda v: v == 5)),
    ("amount", "-1.5", there(lambda v: v == -1.5)),
    ("amount", "= 5", there(lambda v: v == 5)),
    ("amount", "!= 5", lambda v: v != 5),
    ("amount", "< 5", there(lambda v: v < 5)),
    ("amount", "<= 5.0", there(lambda v: v <= 5)),
    ("amount", ">5", there(lambda v: v > 5)),
    ("amount", ">= 5", there(lambda v: v >= 5)),
    ("amount", "[1..5]", there(lambda v: 1 <= v <= 5)),
    ("amount", "(1..5)", there(lambda v: 1 < v < 5)),
    ("amount", "]1..5[", there(lambda v: 1 < v < 5)),
    ("amount", "[1..5)", there(lambda v: 1 <= v < 5)),
    ("amount", "(-1.5..5]", there(lambda v: -1.5 < v <= 5)),
    ("amount", "1, 5, > 10", there(lambda v: v in (1, 5) or v > 10)),
    ("amount", "not(1, 5)", lambda v: v not in (1, 5)),
    ("amount", "not([1..5])", lambda v: v is None or not 1 <= v <= 5),
    ("amount", "not((1..5), 99)", lambda v: v is None or not (1 < v < 5 or v == 99)),
    ("amount", "not(< 5)", lambda v: v is None or v >= 5),
    ("amount", "null", lambda v: v is None),
    ("amount", "not(null)", lambda v: v is not None),
    ("amount", "null, 5", lambda v: v is None or v == 5),
    ("country", '"DE"', there(lambda v: v == "DE")),
    ("country", '"DE", "FR"', there(lambda v: v in ("DE", "FR"))),
    ("country", 'not("DE", "FR")', lambda v: v not in ("DE", "FR")),
    ("country", '"say \\"x\\"", "a\\\\b", "it\'s"', there(lambda v: v in ('say "x"', "a\\b", "it's"))),
    ("country", '"\\u0044E", "\\U000046R", "a\\b"', there(lambda v: v in ("DE", "FR", "a\\b"))),
    ("country", 'contains(?, "%")', there(lambda v: "%" in v)),
    ("country", 'starts with(?, "D"), ends with(?, "e")', there(lambda v: v.startswith("D") or v.endswith("e"))),
    ("country", 'not(contains(?, "D"))', lambda v: v is None or "D" not in v),
    ("vip", "true", there(lambda v: v)),
    ("vip", "not(true)", lambda v: not v),
    ("vip", "false, null", lambda v: not v),
    ("day", 'date("2026-01-01")', there(lambda v: v == date(2026, 1, 1))),
    ("day", '>= date("2026-01-01")', there(lambda v: v >= date(2026, 1, 1))),
    ("day", '[@"2026-01-01"..@"2026-06-01")', there(lambda v: date(2026, 1, 1) <= v < date(2026, 6, 1))),
]


@pytest.mark.parametrize(("column", "cell", "expected"), TESTS, ids=[f"{c}: {t}" for c, t, _ in TESTS])
def test_a_cell(tmp_path: Path, column: str, cell: str, expected: Callable[[Any], bool]) -> None:
    found = read(tmp_path, document((cell, '"x"'), inputs=(column,)))
    assert found.rejected == []
    values = {"amount": NUMBERS, "country": TEXTS, "vip": [None, True, False], "day": DAYS}[column]
    got = matched([found.rows[0]["expression"]], {column: values})
    assert [bool(ids) for ids in got] == [expected(value) for value in values], found.rows[0]["expression"]


def test_escapes_of_code_points(tmp_path: Path) -> None:
    cells = ('"caf\\u00e9"', '"\\uD83D\\uDE00"', '"\\uD83D"', '"\\U110000"')
    found = read(tmp_path, document(*((cell, "1") for cell in cells), inputs=("country",)))
    assert [each["rule_id"] for each in found.rejected] == ["risk/3", "risk/4"]
    got = matched([row["expression"] for row in found.rows], {"country": ["caf\u00e9", "\U0001f600", "cafu00e9"]})
    assert got == [[0], [1], []]


def test_a_moment(tmp_path: Path) -> None:
    found = read(tmp_path, document(('> date and time("2026-01-01T12:00:00Z")', '"x"'), inputs=("at",)))
    values = [None, datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 12, 0, 1)]
    assert matched([found.rows[0]["expression"]], {"at": values}) == [[], [], [0]]
    found = read(tmp_path, document(('> @"2026-01-01T13:00:00@Europe/Berlin"', '"x"'), inputs=("at",)))
    assert matched([found.rows[0]["expression"]], {"at": values}) == [[], [], [0]]


def test_columns_as_ends_of_an_interval_without_spaces(tmp_path: Path) -> None:
    found = read(tmp_path, document(("[1..limit]", "1"), ("]limit..limit]", "2"), ("not([limit..9])", "3")))
    got = matched([row["expression"] for row in found.rows], {"amount": [1, 9, 3], "limit": [5, 5, None]})
    assert got == [[0, 2], [], [2]]


def test_a_column_that_is_called_date(tmp_path: Path) -> None:
    mapping = "fields: {date: day}"
    rows = (("> date", "1"), ('> date and time("2026-01-01T12:00:00Z")', "2"))
    found = read(tmp_path, document(*rows, inputs=("at",)), mapping)
    noon = datetime(2026, 1, 1, 12)
    got = matched([row["expression"] for row in found.rows], {"at": [noon], "day": [date(2026, 1, 1)]})
    assert got == [[0]]


def test_another_column_as_a_value(tmp_path: Path) -> None:
    found = read(tmp_path, document(("> limit", "1"), ("not(> limit)", "2")))
    got = matched([row["expression"] for row in found.rows], {"amount": [1, 9, None, 5], "limit": [5, 5, 5, None]})
    assert got == [[1], [0], [1], [1]]


ROWS = [
    ("< 5", "-", '"small"'), ("-", '"DE"', '"german"'), ("[5..10]", 'not("FR")', '"middle"'),
    ("> 7", '"FR"', '"french"'), ("-", "-", '"rest"'),
]  # fmt: skip


def truth(amount: float | None, country: str | None) -> list[int]:
    """The rows of `ROWS` that hold."""
    held = [
        amount is not None and amount < 5, country == "DE",
        amount is not None and 5 <= amount <= 10 and country != "FR",
        amount is not None and amount > 7 and country == "FR", True,
    ]  # fmt: skip
    return [number for number, each in enumerate(held) if each]


@pytest.mark.parametrize("policy", ["", "UNIQUE", "ANY", "COLLECT", "RULE ORDER", "R", "FIRST", "F"])
def test_hit_policies(tmp_path: Path, policy: str) -> None:
    found = read(tmp_path, document(*ROWS, inputs=("amount", "country"), policy=policy))
    assert found.rejected == [] and [row["rule_id"] for row in found.rows] == [f"risk/{n}" for n in range(1, 6)]
    pairs = [(amount, country) for amount in NUMBERS for country in TEXTS]
    got = matched(
        [row["expression"] for row in found.rows],
        {"amount": [amount for amount, _ in pairs], "country": [country for _, country in pairs]},
    )
    whole = [truth(*pair) for pair in pairs]
    assert got == ([ids[:1] for ids in whole] if policy.startswith("F") else whole)


def test_what_a_row_says_is_kept(tmp_path: Path) -> None:
    found = read(tmp_path, document(("< 5", '"hold"'), (">= 5", "1 + 1")))
    assert found.rows[0] == {
        "rule_id": "risk/1", "scope": "s", "expression": "`amount` < 5", "priority": 1, "labels": [("action", "hold")],
        "owner": None, "description": 'action = "hold"',
    }  # fmt: skip


def test_names_are_mapped(tmp_path: Path) -> None:
    text = document(("< 5", '"credit"', "1"), inputs=("Betrag in Euro", "card.kind"))
    assert read(tmp_path, text).rejected[0]["error"] == "UNMAPPED_FIELD"
    found = read(tmp_path, text, "fields: {Betrag in Euro: amount}")
    assert found.rows[0]["expression"] == "`amount` < 5 AND `card`.`kind` = 'credit'"
    labelled = text.replace("<input>", '<input label="sum">', 1).replace("Betrag in Euro", "f(x)")
    assert len(read(tmp_path, labelled, "fields: {sum: amount}").rows) == 1


@pytest.mark.parametrize(
    ("text", "rule_id", "error", "words"),
    [
        (document(("< 5", "1"), policy="PRIORITY"), "risk", "HIT_POLICY", "PRIORITY is not supported"),
        (document(("< 5", "1"), policy="O"), "risk", "HIT_POLICY", "OUTPUT ORDER"),
        (document(("< 5", "1"), policy="COLLECT", more='aggregation="SUM"'), "risk", "HIT_POLICY", "SUM"),
        (document(*[("< 5", "1")] * (MOST_ROWS + 1), policy="FIRST"), "risk", "HIT_POLICY", "split it"),
        (document(("< 5", "1"), inputs=("f(amount)",)), "risk", "UNMAPPED_FIELD", "f(amount)"),
        (document(("DE", "1"), inputs=("country",)), "risk/1", "FEEL", 'write "DE"'),
        (document(("< limit + 1", "1")), "risk/1", "FEEL", "is not supported"),
        (document(("? > 5", "1")), "risk/1", "FEEL", "is not supported"),
        (document(("some x in y satisfies x", "1")), "risk/1", "FEEL", "is not supported"),
        (document(("< 5 and > 3", "1")), "risk/1", "FEEL", "is not supported"),
        (document(('matches(?, "x")', "1"), inputs=("country",)), "risk/1", "FEEL", "is not supported"),
        (document(('date("01.02.2026")', "1"), inputs=("day",)), "risk/1", "FEEL", "neither a date"),
        (document(('"high"', "1")), "risk/1", "TYPE_MISMATCH", "`amount` is DOUBLE, and the test"),
        (document(("5", "1"), inputs=("country",)), "risk/1", "TYPE_MISMATCH", "asks for a number"),
        (document(("country", "1")), "risk/1", "TYPE_MISMATCH", "asks for a text"),
        (document(("< limit", "1"), inputs=("country",)), "risk/1", "TYPE_MISMATCH", "asks for a number"),
        (document(("contains(?, 5)", "1")), "risk/1", "TYPE_MISMATCH", "asks for a text"),
        (document(("contains(?, limit)", "1")), "risk/1", "TYPE_MISMATCH", "asks for a text"),
        (document(("contains(?, null)", "1"), inputs=("country",)), "risk/1", "FEEL", "is not supported"),
        (document(("[null..5]", "1")), "risk/1", "FEEL", "is not supported"),
        (document(("< null", "1")), "risk/1", "FEEL", "is not supported"),
        (document(("5", "6", "1")), "risk/1", "ROW", "2 tests"),
        (document(("'x'", "1"), inputs=("country",)), "risk/1", "FEEL", "is not supported"),
        (
            document(("< 5", "1"))
            .replace("decision ", "businessKnowledgeModel ")
            .replace("</decision>", "</businessKnowledgeModel>"),
            "risk",
            "NOT_A_DECISION",
            "a part of a function",
        ),
    ],
)
def test_refused_parts_are_named(tmp_path: Path, text: str, rule_id: str, error: str, words: str) -> None:
    found = read(tmp_path, text)
    assert [(each["rule_id"], each["error"]) for each in found.rejected] == [(rule_id, error)]
    assert words in found.rejected[0]["message"] and found.rows == []


def test_of_first_no_row_behind_a_refused_one_is_taken(tmp_path: Path) -> None:
    found = read(tmp_path, document(("< 5", "1"), ("f(x)", "2"), ("> 7", "3"), policy="FIRST"))
    assert [row["rule_id"] for row in found.rows] == ["risk/1"]
    assert [(each["rule_id"], each["error"]) for each in found.rejected] == [
        ("risk/2", "FEEL"),
        ("risk/3", "HIT_POLICY"),
    ]


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    "<definitions>&b;</definitions>"
)
OUTSIDE = '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><definitions>&x;</definitions>'


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (BOMB.encode(), "DOCTYPE"),
        (BOMB.replace('"1.0"', '"1.0" encoding="UTF-16"').encode("utf-16"), "DOCTYPE"),
        (OUTSIDE.encode(), "DOCTYPE"),
        (b"<!DOCTYPE definitions><definitions/>", "DOCTYPE"),
        (b"<a>" * 600 + b"</a>" * 600, "levels deep"),
        (b"<definitions>", "is not XML"),
        (b"", "is not XML"),
        (b"\xff\xfe\x00", "is not XML"),
    ],
)
def test_files_that_are_refused_whole(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "table.dmn").write_bytes(data)
    with pytest.raises(RuleFileError, match=words):
        read_dmn(tmp_path / "table.dmn", "s", SCHEMA, None)


def test_files_of_a_folder_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.dmn").write_bytes(BOMB.encode())
    (tmp_path / "b.dmn").write_text(document(("5", "1"), ("f(x)", "2")))
    (tmp_path / "c.dmn").symlink_to(tmp_path / "gone.dmn")
    found = read_dmn(tmp_path, "s", SCHEMA, None)
    assert [row["rule_id"] for row in found.rows] == ["risk/1"]
    file, row, link = found.rejected
    assert (file["rule_id"], file["error"]) == (str(tmp_path / "a.dmn"), "UNREADABLE")
    assert (link["rule_id"], link["error"]) == (str(tmp_path / "c.dmn"), "UNREADABLE")
    assert (row["rule_id"], row["title"], row["file"]) == ("risk/2", "Risk", str(tmp_path / "b.dmn"))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(RuleFileError, match="cannot be read"):
        read_dmn(tmp_path / "none.dmn", "s", SCHEMA, None)


def test_a_folder_without_a_table_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.dmn").write_text('<definitions xmlns="x"><decision id="e"/></definitions>')
    found = read_dmn(tmp_path, "s", SCHEMA, None)
    assert (found.rows, found.rejected) == ([], [])


def test_an_import_knows_the_format_by_the_name(new_workspace, tmp_path: Path) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    pl.DataFrame({"amount": [1.0]}).write_delta(workspace.configuration.streams["s"].source)
    (tmp_path / "table.dmn").write_text(document(("< 5", '"x"'), ("nonsense(1)", "2")))
    found = import_rules(workspace, tmp_path / "table.dmn", "s")
    assert (found.added, [each["error"] for each in found.rejected], found.version) == (("risk/1",), ["FEEL"], 1)
    changed = document(("< 6", '"x"'), (">= 6", "2"))
    (tmp_path / "table.dmn").write_text(changed)
    again = import_rules(workspace, tmp_path / "table.dmn", "s", replace=True, language="dmn")
    assert (again.added, again.changed, again.rejected) == (("risk/2",), ("risk/1",), ())
