"""The functions of regular expressions that are evaluated here, by RE2, if it finds the same parts of a text as
java.util.regex."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rules_index.language.coercion import INT, STRING
from rules_index.language.evaluation import argument_types
from rules_index.language.evaluation.malformed_texts import Texts
from rules_index.language.evaluation.scalar import Columns, Result, ScalarFunction
from rules_index.language.patterns.re2 import GROUP, captured, divided, fewest_bytes


def _of_distinct(text: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The texts after `change`, which is called once for all distinct texts."""
    codes = text.dictionary_encode()
    return change(codes.dictionary).take(codes.indices)


def _captured(text: pa.Array, pattern: str | None) -> pa.Array:
    """The part of each text that the first match captures; NULL if there is no match."""
    assert pattern is not None  # `fits` has checked that
    return _of_distinct(text, lambda each: pc.struct_field(pc.extract_regex(each, pattern), GROUP))


def _extract(columns: Columns, _: str) -> Result:
    """`regexp_extract(text, pattern, group)`; "" if nothing matches."""
    text, pattern = columns[0], columns[1][0].as_py()
    found = _captured(text, captured(pattern, columns[2][0].as_py() if len(columns) > 2 else 1))
    return pc.if_else(text.is_valid(), pc.fill_null(found, ""), pa.scalar(None, STRING)), None


def _find(columns: Columns, _: str) -> Result:
    """`regexp_substr(text, pattern)`; NULL if nothing matches, and if the first match is empty."""
    found = _captured(columns[0], captured(columns[1][0].as_py(), 0))
    return pc.if_else(pc.equal(found, ""), pa.scalar(None, STRING), found), None


def _count(columns: Columns, _: str) -> Result:
    pattern = divided(columns[1][0].as_py())
    return _of_distinct(columns[0], lambda each: pc.count_substring_regex(each, pattern).cast(INT)), None


def _replace(columns: Columns, _: str) -> Result:
    pattern, replacement = divided(columns[1][0].as_py(), True), columns[2][0].as_py()
    return _of_distinct(columns[0], lambda each: pc.replace_substring_regex(each, pattern, replacement)), None


def _split(columns: Columns, _: str) -> Result:
    """`split(text, pattern)`; empty parts at the end are kept."""
    pattern = divided(columns[1][0].as_py())
    return _of_distinct(columns[0], lambda each: pc.split_pattern_regex(each, pattern)), None


def _replaces(fixed: Sequence[Any]) -> bool:
    """Whether `regexp_replace` is evaluated here: the replacement is plain text, and is not longer than any match.

    A replacement that can lengthen its text is left to Spark, because only there are the costs of nested calls bounded.
    """
    pattern, replacement = fixed
    is_plain = "$" not in replacement and "\\" not in replacement
    return is_plain and len(replacement.encode()) <= fewest_bytes(pattern) and divided(pattern, True) is not None


def _divides(fixed: Sequence[Any]) -> bool:
    return divided(fixed[0]) is not None


_FUNCTIONS: dict[str, ScalarFunction] = {
    "regexp_extract": ScalarFunction(
        argument_types.two_texts_and_perhaps_a_number,
        _extract,
        constants=(1, 2),
        fits=lambda fixed: captured(*fixed, *((1,) if len(fixed) == 1 else ())) is not None,
    ),
    "regexp_substr": ScalarFunction(
        argument_types.two_texts, _find, constants=(1,), fits=lambda fixed: captured(fixed[0], 0) is not None
    ),
    "regexp_count": ScalarFunction(argument_types.two_texts, _count, constants=(1,), fits=_divides),
    "regexp_replace": ScalarFunction(argument_types.three_texts, _replace, constants=(1, 2), fits=_replaces),
    "split": ScalarFunction(argument_types.two_texts, _split, constants=(1,), fits=_divides),
}

REGULAR_EXPRESSIONS = {name: replace(function, texts=Texts.DECODED) for name, function in _FUNCTIONS.items()}
