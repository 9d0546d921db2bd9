"""Many patterns over one column, looked for at once: against each pattern alone, and against Python's own search."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.index import code_matrix
from rules_index.index.pattern_groups import LEAST_PATTERNS, Group, Texts, groups_of, is_pattern
from rules_index.language.patterns.needles import like_needles, rlike_needles
from tests.cases import quick_first

SCHEMA = pa.schema([("s", pa.string()), ("n", pa.int64())])
LETTERS = [
    "a",
    "b",
    "A",
    "B",
    "%",
    "_",
    "\\",
    "é",
    "É",
    "ß",
    "İ",
    "\u0130",
    "Σ",
    "ς",
    "\U0001f600",
    "\ufffd",
    "\n",
    "'",
]


def word(draw: random.Random, least: int, most: int) -> str:
    return "".join(draw.choice(LETTERS) for _ in range(draw.randint(least, most)))


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def like(text: str) -> str:
    return "".join("\\" + c if c in "%_\\" else c for c in text)


def rule(draw: random.Random) -> str:
    """A pattern of any kind, alone or several of them."""
    text, other = word(draw, 1, 3), word(draw, 0, 3)
    plain = "".join(c for c in text if c not in "\\%_'\n") or "a"
    kinds = [
        f"s LIKE {literal('%' + like(text) + '%')}",
        f"s NOT LIKE {literal(like(other) + '%' + like(text) + '%')}",
        f"s LIKE {literal('%' + like(text) + '_' + like(other))}",
        f"s LIKE {literal('%' + text.replace(chr(92), '') + 'X%' + like(other) + '%')} ESCAPE 'X'"
        if text[-1:] in ("%", "_") and "X" not in text
        else "s LIKE '%_%'",
        f"s ILIKE {literal('%' + like(text) + '%')}",
        f"s ILIKE {literal('%' + like(text) + '%' + like(other))}",
        f"contains(s, {literal(text)})",
        f"endswith(s, {literal(text)})",
        f"startswith(s, {literal(text)})",
        f"s RLIKE '{plain}'",
        f"s RLIKE '(?i){plain}'",
        f"s RLIKE '{plain}+|b[ab]{plain}$'",
        f"s RLIKE '^({plain}|aB)*b?' AND n > 2",
        f"s RLIKE '({plain}|é){{2,3}}'",
        f"s LIKE ANY ({literal('%' + like(text) + '%')}, {literal(like(other) + '%')}, '%ba%')",
    ]
    return draw.choice(kinds)


@pytest.mark.slow
@pytest.mark.parametrize("seed", quick_first(2, range(8)))
def test_patterns_together_are_what_each_is_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    rules = [(number, rule(draw)) for number in range(150)]
    compiled = ri.compile_rules(rules, SCHEMA)
    assert len(compiled) > 100
    assert groups_of(tuple(filter(is_pattern, compiled.attributes))), "there are enough of them"
    values = [None if draw.random() < 0.1 else word(draw, 0, 8) for _ in range(400)]
    table = pa.table({"s": pa.array(values), "n": pa.array([draw.choice([None, 1, 5]) for _ in values])}, SCHEMA)
    together = compiled.match(table).to_pylist()
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        cast = pa.table({"s": table["s"].cast(kind), "n": table["n"]})
        assert compiled.match(cast).to_pylist() == together
    monkeypatch.setattr(code_matrix, "groups_of", lambda patterns: ())
    assert compiled.match(table).to_pylist() == together


def test_single_rows_are_searched_for_all_patterns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    truths = Group.truths
    monkeypatch.setattr(
        Group, "truths", lambda self, strings: [searched.append(len(strings)), truths(self, strings)][1]
    )
    rules = [*((f"r{number}", f"s LIKE '%{number}x_'") for number in range(16)), ("n", "n > 2")]
    compiled = ri.compile_rules(rules, SCHEMA)
    table = pa.table({"s": ["13xy", None], "n": pa.array([5, 1], pa.int64())}, SCHEMA)
    assert compiled.match(table).to_pylist() == [["n", "r13", "r3"], []]
    before = groups_of.cache_info().misses
    for count in (5, np.int64(5), None):  # an unusual type is encoded beside the patterns
        assert compiled.match_one({"s": "13xy", "n": count}) == (["n", "r13", "r3"] if count == 5 else ["r13", "r3"])
    assert searched == [2, 1, 1, 1] and groups_of.cache_info().misses == before


def test_texts_are_found_where_python_finds_them() -> None:
    draw = random.Random(3)
    for _ in range(30):
        texts = [frozenset({word(draw, 1, 4).encode() for _ in range(draw.randint(1, 3))}) for _ in range(40)]
        strings = [None if draw.random() < 0.1 else word(draw, 0, 12) for _ in range(draw.choice([0, 1, 60]))]
        automaton = Texts.of(texts)
        assert automaton is not None
        offsets, found = automaton.candidates(pa.array(strings, pa.string()), len(texts))
        for place, its in enumerate(texts):
            wanted = [
                number
                for number, string in enumerate(strings)
                if string is not None and any(text in string.encode() for text in its)
            ]
            assert found[offsets[place] : offsets[place + 1]].tolist() == wanted


def test_what_a_string_must_hold() -> None:
    assert like_needles("%ab_cde%f", "\\", False) == {b"cde"}
    assert like_needles("%A\\%B%", "\\", True) == {b"a%b"}
    assert like_needles("%_%", "\\", False) is None
    assert like_needles("%\ufffd%", "\\", False) is None, "malformed bytes are read as this"
    assert rlike_needles("ab+cd") == {b"cd"}
    assert rlike_needles("one|two|three") == {b"one", b"two", b"three"}
    assert rlike_needles("one|t?") is None
    assert rlike_needles("(?i)one") is None
    assert rlike_needles("(abc)*x") == {b"x"}


@pytest.mark.slow
def test_a_rule_of_a_thousand_alternatives() -> None:
    words = [f"w{number}x" for number in range(1000)]
    texts = [
        ("like", "s LIKE ANY (" + ", ".join(f"'%{each}%'" for each in words) + ")"),
        ("rlike", "s RLIKE '" + "|".join(words) + "'"),
        ("or", " OR ".join(f"contains(s, '{each}')" for each in words)),
        ("all", "s NOT LIKE ALL (" + ", ".join(f"'%{each}%'" for each in words) + ")"),
    ]
    compiled = ri.compile_rules(texts, SCHEMA)
    assert compiled.rejects.num_rows == 0 and len(groups_of(tuple(filter(is_pattern, compiled.attributes)))) == 1
    values = [None, *(f"--w{number}{'x' if number % 3 else 'y'}--" for number in range(2000))]
    table = pa.table({"s": pa.array(values), "n": pa.nulls(len(values), pa.int64())})
    expected = [
        [] if value is None else sorted(["like", "rlike", "or"] if any(each in value for each in words) else ["all"])
        for value in values
    ]
    assert compiled.match(table).to_pylist() == expected
    assert len(words) > LEAST_PATTERNS and np.array([len(each) for each in expected]).sum() > 0
