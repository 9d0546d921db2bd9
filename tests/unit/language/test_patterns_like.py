from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pyarrow as pa
import pytest

from rules_index.compiling.compile import compile_rules
from rules_index.errors import RuleError
from rules_index.language.patterns import check_like, like_as_java_regex, like_matcher, like_prefix
from rules_index.language.patterns.like import lower, lowered

LETTERS = ["a", "b", "A", "é", "\U0001f600", "\n"]


def naive_like(value: str, pattern: str, escape: str) -> bool:
    """LIKE by trying every split of the value at each `%`."""
    tokens: list[str | None] = []
    position = 0
    while position < len(pattern):
        if pattern[position] == escape:
            tokens.append("=" + pattern[position + 1])
            position += 2
            continue
        tokens.append(pattern[position] if pattern[position] in "%_" else "=" + pattern[position])
        position += 1

    @cache
    def fits(at: int, token: int) -> bool:
        if token == len(tokens):
            return at == len(value)
        if tokens[token] == "%":
            return any(fits(later, token + 1) for later in range(at, len(value) + 1))
        return at < len(value) and tokens[token] in ("_", "=" + value[at]) and fits(at + 1, token + 1)

    return fits(0, 0)


@pytest.mark.slow
def test_random_patterns_match_as_the_naive_search() -> None:
    rng = random.Random(7)
    values = list({"".join(rng.choices(LETTERS, k=rng.randrange(8))) for _ in range(150)})
    for _ in range(400):
        escape = rng.choice("\\!%_")
        tokens = [*LETTERS[:4], "%", "%", "_", escape + "%", escape + "_", escape + escape]
        tokens = [t for t in tokens if t != escape]
        pattern = "".join(rng.choices(tokens, k=rng.randrange(7)))
        wanted = [naive_like(value, pattern, escape) for value in values]
        assert like_matcher(pattern, escape).match(pa.array(values)).to_pylist() == wanted, (pattern, escape)


@pytest.mark.parametrize("segment", ["a_" * 40 + "b", "_" * 130 + "b", "ab" * 70])
def test_segments_longer_than_a_machine_word(segment: str) -> None:
    values = [
        segment.replace("_", "c"),
        "x" + segment.replace("_", "é") + "y",
        segment[1:].replace("_", "c"),
        "b" * 140,
    ]
    wanted = [naive_like(value, f"%{segment}%x", "\\") for value in [v + "x" for v in values]]
    assert like_matcher(f"%{segment}%x").match(pa.array([v + "x" for v in values])).to_pylist() == wanted


@pytest.mark.parametrize("data_type", [pa.string(), pa.large_string(), pa.string_view()])
def test_null_stays_null_and_slices_are_respected(data_type: pa.DataType) -> None:
    values = pa.array(["a", None, "ab", "b", ""], data_type).slice(1)
    assert like_matcher("%b").match(values).to_pylist() == [None, True, True, False]
    assert like_matcher("%b").match(values.slice(0, 0)).to_pylist() == []


@pytest.mark.parametrize(
    ("pattern", "escape", "value", "matches"),
    [
        ("ÄB%", "\\", "äbc", True),
        ("%ΕΎΣ", "\\", "ὀδυσσεύς", True),  # a final sigma on both sides
        ("%Σ", "\\", "ὀδυσσεύς", False),  # alone it is no final sigma
        ("Eab", "E", "EAB", True),  # the pattern is lowered before the escape character is looked for
        ("i̇", "\\", "İ", True),
    ],
)
def test_ilike_lowers_value_and_pattern_but_not_the_escape(
    pattern: str, escape: str, value: str, matches: bool
) -> None:
    assert like_matcher(pattern, escape, True).match(pa.array([value])).to_pylist() == [matches]


@pytest.mark.parametrize(
    ("pattern", "escape", "position"), [("ab\\", "\\", 2), ("a\\bc", "\\", 1), ("%!", "!", 1), ("!a", "!", 0)]
)
def test_a_misused_escape_character_is_refused_where_it_stands(pattern: str, escape: str, position: int) -> None:
    with pytest.raises(RuleError) as caught:
        check_like(pattern, escape)
    assert (caught.value.error, caught.value.position) == ("PATTERN", position)
    assert "twice" in caught.value.message and ("four" in caught.value.message) == (pattern == "a\\bc")


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("abc%", ("abc", False)),
        ("abc", ("abc", True)),
        ("a\\%b%", ("a%b", False)),
        ("%", ("", False)),
        ("", ("", True)),
        ("%a", None),
        ("a_%", None),
        ("a%b", None),
        ("a%%", None),
    ],
)
def test_patterns_that_are_an_interval_of_strings(pattern: str, wanted: tuple[str, bool] | None) -> None:
    assert like_prefix(pattern, "\\") == wanted


@pytest.mark.parametrize("pattern", ["%a%a%a%b", "%a_a%_a_%b", "%" + "a" * 2_000 + "b%", "%" + "a_" * 500 + "b%"])
def test_time_is_linear_in_the_value(pattern: str) -> None:
    matcher = like_matcher(pattern)
    matcher.match(pa.array(["a"]))
    started = time.perf_counter()
    assert not any(matcher.match(pa.array(["a" * 200_000] * 3)).to_pylist())
    assert time.perf_counter() - started < 5


def test_like_becomes_a_pattern_of_java_without_choices() -> None:
    assert like_as_java_regex("a.%b_%c%", "\\") == r"(?s)\Aa\x2e(?>.*?b.)(?>.*?c).*\z"


def test_how_long_a_pattern_may_be() -> None:
    """One that Arrow has a function for may have any length, and different characters count as work."""

    check_like("a_" * 5_000 + "%", "\\")
    check_like("%" + "ab" * 50_000 + "%", "\\")
    with pytest.raises(RuleError, match="10,000"):
        check_like("a_" * 5_000 + "%b", "\\")
    different = "".join(map(chr, range(0x4E00, 0x4E00 + 4_000)))
    rejects = compile_rules([("rule", f"s LIKE '%{different}%x'")], pa.schema([("s", pa.string())])).rejects
    assert rejects["error"].to_pylist() == ["TOO_COMPLEX"]


def test_many_threads_match_one_pattern() -> None:
    """Each has the transitions that it found, while others find more of them."""
    rng = random.Random(3)
    values = ["".join(rng.choices("abxé", k=40)) for _ in range(1_000)]
    pattern = "a%b__x%é_a%"
    wanted = [naive_like(value, pattern, "\\") for value in values]
    matcher = like_matcher(pattern)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: matcher.match(pa.array(values)).to_pylist(), range(8)))
    assert any(wanted) and not all(wanted)
    assert all(each == wanted for each in found)


def test_ascii_patterns_are_lowered_as_all_others_are() -> None:
    letters = "".join(map(chr, range(128)))
    assert lowered(letters) == lower(pa.array([letters]))[0].as_py() != letters
    assert lowered("ΌΔΟΣ") == "όδος"
