from __future__ import annotations

import random
import re
import time

import pyarrow as pa
import pytest

from rules_index.compiling.compile import compile_rules
from rules_index.errors import RuleError
from rules_index.language.patterns import check_rlike, is_safe_in_java, rlike_as_re2, rlike_matcher


def found(pattern: str, values: list[str | None]) -> list[bool | None]:
    answers: list[bool | None] = rlike_matcher(pattern).match(pa.array(values, pa.string())).to_pylist()
    return answers


@pytest.mark.slow
def test_random_patterns_that_python_reads_alike() -> None:
    """Python's `re` agrees with Java on these: ASCII classes, values that end lines by \\n only and are not empty."""
    rng = random.Random(3)

    def pattern(depth: int) -> str:
        atoms = ["a", "b", "\\.", ".", "[ab]", "[^a]", "\\d", "\\w", "\\s", "\\W", "^", "$", "\\b", "\\B", "\\A", "\\n"]
        parts = []
        for _ in range(rng.randrange(1, 4)):
            part = f"({pattern(depth + 1)})" if depth < 3 and rng.random() < 0.3 else rng.choice(atoms)
            quantifiers = ["", "", "*", "+", "?", "{2}", "{1,2}", "*?"]
            parts.append(part + ("" if part in ("^", "$", "\\b", "\\B", "\\A") else rng.choice(quantifiers)))
        return "|".join(["".join(parts)] * (rng.random() < 0.9) + [rng.choice(atoms)] * (rng.random() < 0.2)) or "a"

    values = list({"".join(rng.choices("ab. 1\n", k=rng.randrange(1, 7))) for _ in range(200)})
    for _ in range(400):
        text = pattern(0)
        oracle = re.compile(text, re.ASCII)
        assert found(text, list(values)) == [bool(oracle.search(value)) for value in values], text


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("b$", ["ab", "b\n", "b\r\n", "b\r", "b\u0085", "b\u2028", "b\u2029"], ["b\n\n", "b\n\r", "ba", "b\x0b"]),
        (r"b\Z", ["ab", "b\r\n"], ["b\n\n"]),
        (r"b\z", ["ab"], ["b\n"]),
        (r"\r$", ["\r", "\r\r"], ["\r\n"]),
        ("(?m)b$", ["b\na", "b\r\na"], ["ba"]),
        ("(?m)^b", ["b", "a\nb", "a\rb", "a\r\nb"], ["ab"]),
        ("(?m)^", ["a"], [""]),
        ("(?d)b$", ["b\n"], ["b\r", "b\u0085"]),
        ("a.b", ["a-b", "a\x0bb", "a\U0001f600b"], ["a\nb", "a\rb", "a\u0085b", "a\u2028b"]),
        ("(?s)a.b", ["a\nb"], ["ab"]),
        ("(?d)a.b", ["a\rb"], ["a\nb"]),
        (r"\bé", ["é", "a é"], ["aé"]),
        ("(?i)É", ["É"], ["é"]),
        ("(?iu)É", ["é", "É"], ["e"]),
        ("(?iu)k", ["\u212a", "K"], ["x"]),
        ("(?i)k", ["K", "k"], ["\u212a"]),
        (r"\w", ["a", "_", "0"], ["é", "\u0663"]),
        (r"(?U)\w", ["é", "\u0663"], ["-"]),
        ("[a-z&&[^aeiou]]", ["b"], ["a", "B"]),
        ("[a-c[x-z]]", ["b", "y"], ["m"]),
        ("[^a&&b]", ["x", "a", "b"], []),
        (r"\p{L}\P{L}", ["é1"], ["éa"]),
        (r"\p{IsGreek}\p{sc=Grek}", ["αβ"], ["abc"]),
        (r"\p{Alpha}", ["a"], ["é"]),
        (r"\p{IsAlphabetic}", ["é"], ["1"]),
        (r"\Qa.b\E+", ["a.bb"], ["axb"]),
        (r"\Q[\E1", ["[1"], ["1"]),
        (r"\x41\u0042\0103\x{1F600}", ["ABC\U0001f600"], ["ABC"]),
        (r"\uD83D\uDE00", ["\U0001f600"], ["\ud7ff"]),
        (r"\cA\e\t", ["\x01\x1b\t"], ["A"]),
        (r"\R{2}", ["\n\r", "\n\n"], ["\r\n"]),
        (r"a\Rb", ["a\r\nb", "a\u2028b"], ["ab"]),
        (r"\h\v", [" \n", "\u3000\x0b"], ["\n "]),
        ("(?x) a b # c\n c", ["abc"], ["a b"]),
        ("a{2}", ["aa"], ["a"]),
        ("x|{2}", ["", "y"], []),
        ("(?<year>\\d{4})(|-)", ["2024"], ["202"]),
        ("()|a", [""], []),
        ("(?i:a)b", ["Ab"], ["AB"]),
        ("a(?i)b(?-i)c", ["aBc"], ["aBC"]),
    ],
)
def test_the_meaning_of_java(pattern: str, yes: list[str], no: list[str]) -> None:
    values: list[str | None] = [*yes, *no, None]
    assert found(pattern, values) == [True] * len(yes) + [False] * len(no) + [None]


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("a(?=b)", 1),
        ("(?<!a)b", 0),
        ("(?>a)", 0),
        (r"(a)\1", 3),
        (r"(?<n>a)\k<n>", 7),
        ("a*+", 2),
        ("a(b", 1),
        ("ab)", 2),
        ("[ab", 0),
        ("*a", 0),
        ("a{", 1),
        ("a{2,1}", 5),
        ("\\", 0),
        (r"a\y", 1),
        (r"\p{Nonsense}", 1),
        (r"[b-a]", 3),
        (r"\x{110000}", 9),
        ("(?z)a", 2),
        ("(a{1000}){1000}", 0),
        ("(" * 200 + "a" + ")" * 200, 101),
    ],
)
def test_what_is_refused_and_where(pattern: str, position: int) -> None:
    with pytest.raises(RuleError) as caught:
        check_rlike(pattern)
    assert caught.value.error == "PATTERN"
    assert caught.value.message.startswith("The regular expression cannot be used: ")
    assert caught.value.position is not None
    assert abs(caught.value.position - position) <= 1


@pytest.mark.parametrize(
    "pattern",
    ["^(a|b)*$", "(a+)+b", "(x+x+)+y", "(a|aa)+$", "(.*a){12}b", "a.{900}b", "(a?){500}a{500}b", r"\b(\w+\s?)+!"],
)
def test_time_is_linear_in_the_value(pattern: str) -> None:
    matcher = rlike_matcher(pattern)
    matcher.match(pa.array(["a"]))
    started = time.perf_counter()
    matcher.match(pa.array(["a" * 20_000, "ab" * 10_000]))
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize(
    "pattern",
    ["^ab", "^a|b", "(^a)b", "^", r"\z", r"^\z", r"ab\z", r"^a.*b\z", r"^a\z|b", "^a?", r"^\bab", "^^a", r"^(ab)*\z"],
)
def test_anchors_hold_at_the_start_and_end_of_the_string_only(pattern: str) -> None:
    values = ["", "a", "b", "ab", "aab", "abb", "ba", "a\nb", "b\nab", "éab", "aéb", "ab\n", "abab"]
    in_python = re.compile(pattern.replace(r"\z", r"\Z"))
    assert found(pattern, values) == [in_python.search(value) is not None for value in values]


def test_malformed_utf8_is_a_replacement_character() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\4\0\0\0"), pa.py_buffer(b"a\xff\xe2b")]
    )
    assert rlike_matcher("^a\ufffd\ufffdb$").match(broken).to_pylist() == [True]


@pytest.mark.parametrize("pattern", ["abc", "^a+b$", r"\d{3}-\d{4}", r"\s*,\s*", "[^@]+@[^@]+", "foo|bar", "(ab){3}"])
def test_patterns_that_java_may_match(pattern: str) -> None:
    assert is_safe_in_java(pattern)


@pytest.mark.parametrize(
    "pattern", ["(a|b)*", "(a+)+", "(.)*", ".*a.*b.*c", "(a|aa){30}", "(x+x+)+y", "(a?){20}b", "(?=a)", "["]
)
def test_patterns_that_java_must_not_match(pattern: str) -> None:
    assert not is_safe_in_java(pattern)


def test_translation_for_re2_says_what_it_cannot_express() -> None:
    assert rlike_as_re2("(a|b)+$").endswith(r"\z)")
    with pytest.raises(RuleError, match="larger expression"):
        rlike_as_re2(r"(a|b)+\b")


def test_matchers_of_many_patterns_are_made_once() -> None:
    letters = str.maketrans("0123456789", "abcdefghij")
    # no text is in all matches, in upper and in lower case
    rules = [(number, f"s RLIKE '(?i)z{str(number).translate(letters)}x+y'") for number in range(1_100)]
    compiled = compile_rules(rules, pa.schema([("s", pa.string())]))
    batch = pa.table({"s": ["aZBAJJxY", "zcxxy"]})
    assert compiled.match(batch).to_pylist() == [[1099], [2]]
    made = rlike_matcher.cache_info().misses
    assert compiled.match(batch).to_pylist() == [[1099], [2]]
    assert rlike_matcher.cache_info().misses == made
