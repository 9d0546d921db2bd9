"""The functions of texts that are evaluated here. Places and lengths count code points, as Spark's do."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.language.coercion import INT, STRING
from rules_index.language.evaluation import argument_types
from rules_index.language.evaluation.malformed_texts import Texts, made_valid
from rules_index.language.evaluation.scalar import Columns, Result, ScalarFunction, filled, like, nulls_of

if TYPE_CHECKING:
    import polars as pl

_NEW_LETTERS = {
    0xA7DC: 0x19B,
    0xA7CB: 0x264,
    0x1C89: 0x1C8A,
    **{capital: capital + 1 for capital in (0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA)},
    **{capital: capital + 0x20 for capital in range(0x10D50, 0x10D66)},
    **{capital: capital + 0x1B for capital in range(0x16EA0, 0x16EB9)},
}
"""Capital letters added to Unicode since version 14, and their small letters. Spark converts them."""
_NEW_CAPITALS = {small: capital for capital, small in _NEW_LETTERS.items()}


def _upper(text: str) -> str:
    return text.translate(_NEW_CAPITALS).upper()


def _lower(text: str) -> str:
    return text.translate(_NEW_LETTERS).lower()


def _letters(change: Callable[[str], str], ascii_only: Callable[[pa.Array], pa.Array]) -> Any:
    def evaluate(columns: Columns, _: str) -> Result:
        """Converts each distinct string by `change`, or all strings by `ascii_only` if all of them are ASCII."""
        column = made_valid(columns[0])
        if not _has_non_ascii(column):
            # a copy: Arrow 26 converts other bytes if the texts do not begin at the first byte of their buffer
            return ascii_only(pa.concat_arrays([column, column.slice(0, 0)])), None
        return _of_each(column, change, STRING), None

    return evaluate


def _of_each(column: pa.Array, change: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """The values after `change`, which is called once for each distinct value that is not NULL."""
    codes = column.dictionary_encode()
    changed = pa.array([None if text is None else change(text) for text in codes.dictionary.to_pylist()], kind)
    return changed.take(codes.indices)


def _has_non_ascii(column: pa.Array) -> bool:
    return not pc.all(pc.fill_null(pc.string_is_ascii(column), True)).as_py()


def _trim(trimmed: Callable[..., pa.Array]) -> Callable[[Columns, str], Result]:
    """Trims spaces, whatever bytes are beside them."""
    return lambda columns, _: (trimmed(columns[0], characters=" "), None)


def _trim_letters(trimmed: Callable[..., pa.Array]) -> Callable[[Columns, str], Result]:
    """Trims the letters in the first column, a constant, from the texts in the second one."""
    return lambda columns, _: (trimmed(columns[1], characters=columns[0][0].as_py()), None)


def _length(columns: Columns, _: str) -> Result:
    return pc.utf8_length(columns[0]), None


def _concat(columns: Columns, _: str) -> Result:
    return pc.binary_join_element_wise(*columns, "", null_handling="emit_null"), None


_INT_MAX = (1 << 31) - 1


def _substring(columns: Columns, _: str) -> Result:
    """`substring(text, place, length)` counts from 1 or, with a negative place, from the end; both ends are clipped."""
    text, places = columns[0], filled(columns[1]).astype(np.int64)
    lengths = filled(columns[2]).astype(np.int64) if len(columns) > 2 else np.full(len(text), _INT_MAX)
    starts = np.maximum(places - 1, 0)
    if (places < 0).any():
        starts = np.where(places < 0, filled(pc.utf8_length(text)) + places, starts)
    return _sliced(text, starts, starts + lengths, columns[1:]), None


def _left(columns: Columns, _: str) -> Result:
    text, lengths = columns
    return _sliced(text, np.zeros(len(text), np.int64), filled(lengths), [lengths]), None


def _right(columns: Columns, _: str) -> Result:
    text, lengths = columns
    ends = filled(pc.utf8_length(text)).astype(np.int64)
    return _sliced(text, ends - np.maximum(filled(lengths), 0), ends, [lengths]), None


def _sliced(text: pa.Array, starts: np.ndarray, ends: np.ndarray, others: Columns) -> pa.Array:
    """The characters of each text between two places, [rows] int, that count from 0 and may be beyond its ends; NULL
    where one of the `others` is NULL."""
    starts, ends = np.maximum(starts, 0), np.maximum(ends, 0)
    if len(text) and not any(each.null_count for each in others) and np.ptp(starts) == np.ptp(ends) == 0:
        return pc.utf8_slice_codeunits(text, int(starts[0]), int(max(starts[0], ends[0])))
    import polars as pl

    rows = pl.DataFrame({"text": pl.from_arrow(text), "start": starts, "length": np.maximum(ends - starts, 0)})
    sliced = rows.select(pl.col("text").str.slice("start", "length")).to_series().to_arrow().cast(STRING)
    missing = np.logical_or.reduce([nulls_of(each) for each in others])
    return pc.if_else(pa.array(missing), pa.scalar(None, STRING), sliced) if missing.any() else sliced


def _replace(columns: Columns, _: str) -> Result:
    """`replace(text, search, replacement)`, from left to right; an empty `search` replaces nothing."""
    search = columns[1][0].as_py()
    replacement = columns[2][0].as_py() if len(columns) > 2 else ""
    if not search:
        return columns[0], None
    found = pc.replace_substring(columns[0].cast(pa.binary()), search.encode(), replacement.encode())
    return found.view(STRING), None


def _never_lengthens(texts: Sequence[str]) -> bool:
    """Whether a replacement is not longer than the searched text. One that can lengthen its text is left to Spark,
    because only there are the costs of nested calls bounded."""
    search, replacement = (texts[0], "") if len(texts) == 1 else texts
    return not search or len(replacement.encode()) <= len(search.encode())


def _place(text: pa.Array, searched: str) -> pa.Array:
    """Where the searched text occurs first, counting from 1; 0 if it does not occur."""
    if not _has_non_ascii(text):
        return pc.add(pc.find_substring(text, searched), 1) if searched else like(text, np.ones(len(text)), INT)
    return _of_each(text, lambda each: each.find(searched) + 1, INT)


_LONGEST_PADDED = 1_000
"""The longest padded text, in characters."""


def _padded(is_before: bool) -> Callable[[Columns, str], Result]:
    def evaluate(columns: Columns, _: str) -> Result:
        """`lpad(text, length, padding)` or `rpad`. A longer text is cut at its end; an empty padding adds nothing."""
        text, length = columns[0], max(columns[1][0].as_py(), 0)
        padding = columns[2][0].as_py() if len(columns) > 2 else " "
        kept = pc.utf8_slice_codeunits(text, 0, length)
        if not padding:
            return kept, None
        longest = padding * (length // len(padding) + 1)
        paddings = pa.array([longest[:size] for size in range(length + 1)], STRING)
        added = paddings.take(pa.array(np.maximum(length - filled(pc.utf8_length(text)), 0)))
        parts = (added, kept) if is_before else (kept, added)
        return pc.binary_join_element_wise(*parts, "", null_handling="emit_null"), None

    return evaluate


_MOST_SPLITS = 1_000
"""The most splits of a text that Arrow is told to stop at: it reserves memory for them."""


def _substring_index(columns: Columns, _: str) -> Result:
    """`substring_index(text, delimiter, count)`: the text before the delimiter's occurrence number `count`. If `count`
    is negative, occurrences are counted from the end, and the result is the text behind. Occurrences may overlap."""
    delimiter, count = columns[1][0].as_py().encode(), columns[2][0].as_py()
    texts = columns[0].cast(pa.binary())
    if not delimiter or not count or abs(count) > _MOST_SPLITS or _overlaps_itself(delimiter):
        return _of_each(texts, lambda each: _before_or_behind(each, delimiter, count), pa.binary()).view(STRING), None
    parts = pc.split_pattern(texts, delimiter, max_splits=abs(count), reverse=count < 0)
    offsets = parts.offsets.to_numpy()
    has_more = np.diff(offsets) > abs(count)
    is_kept = np.ones(offsets[-1], bool)
    is_kept[(offsets[:-1] if count < 0 else offsets[1:] - 1)[has_more]] = False
    offsets = offsets - np.concatenate([[0], np.cumsum(has_more)])
    kept = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), parts.flatten().filter(pa.array(is_kept)), mask=texts.is_null()
    )
    return pc.binary_join(kept, delimiter).view(STRING), None


_LONGEST_DELIMITER = 1_000
"""A longer delimiter is not compared with itself, which would take the square of its length."""


def _overlaps_itself(delimiter: bytes) -> bool:
    """Whether an occurrence may begin within another one; True for a very long delimiter."""
    if len(delimiter) > _LONGEST_DELIMITER:
        return True
    return any(delimiter.startswith(delimiter[place:]) for place in range(1, len(delimiter)))


def _before_or_behind(text: bytes, delimiter: bytes, count: int) -> bytes:
    """What `substring_index` is for one text."""
    if not delimiter or not count:
        return b""
    at = -1 if count > 0 else len(text) - len(delimiter) + 1
    for _ in range(abs(count)):
        at = text.find(delimiter, at + 1) if count > 0 else text.rfind(delimiter, 0, max(at - 1 + len(delimiter), 0))
        if at < 0:
            return text
    return text[:at] if count > 0 else text[at + len(delimiter) :]


def _split_part(columns: Columns, _: str) -> Result:
    """`split_part(text, delimiter, number)`: a part, counting from 1 or, if negative, from the end; "" if there is
    none."""
    texts, delimiter, number = columns[0], columns[1][0].as_py(), columns[2][0].as_py()
    if delimiter:
        parts = pc.split_pattern(texts, delimiter, max_splits=number if 0 < number <= _MOST_SPLITS else None)
    else:
        parts = pa.ListArray.from_arrays(pa.array(range(len(texts) + 1), pa.int32()), texts)
    offsets = parts.offsets.to_numpy().astype(np.int64)
    places = offsets[:-1] + number - 1 if number > 0 else offsets[1:] + number
    is_missing = (places < offsets[:-1]) | (places >= offsets[1:])
    found = pc.fill_null(parts.values.take(pa.array(places, mask=is_missing)), "")
    return pc.if_else(texts.is_null(), pa.scalar(None, STRING), found), None


def _translated(columns: Columns, _: str) -> Result:
    """`translate(text, from, to)`: replaces each character of `from` by the one at its place in `to`, or removes it if
    `to` is shorter or has NUL there."""
    import polars as pl

    old, new = columns[1][0].as_py(), columns[2][0].as_py()
    letters: dict[str, str] = {}
    for place, letter in enumerate(old):
        letters.setdefault(letter, new[place] if place < len(new) and new[place] != "\0" else "")
    if not letters:
        return columns[0], None
    texts = pl.Series(columns[0]).str.replace_many(list(letters), list(letters.values()))
    return texts.to_arrow().cast(STRING), None


def _ascii(columns: Columns, _: str) -> Result:
    """`ascii(text)`: the code point of the first character; 0 if there is none."""
    firsts = pc.utf8_slice_codeunits(columns[0], 0, 1)
    return _of_each(firsts, lambda each: ord(each or "\0"), INT), None


def _find_in_set(columns: Columns, _: str) -> Result:
    """`find_in_set(text, 'a,b')`: the place of the first part that is equal to the text, counting from 1; 0 if none
    is."""
    places: dict[str, int] = {}
    for place, part in enumerate(columns[1][0].as_py().split(","), 1):
        places.setdefault(part, place)
    found = pc.index_in(columns[0], pa.array(list(places), STRING))
    numbers = pa.array(list(places.values()), INT).take(found)
    return pc.if_else(columns[0].is_null(), pa.scalar(None, INT), pc.fill_null(numbers, 0)), None


def _digits(letter: str) -> Callable[[Columns, str], Result]:
    """The bits of each integer as an unsigned number, in the format `letter`."""
    return lambda columns, _: (
        _of_each(columns[0].cast(pa.int64()), lambda each: format(each & (1 << 64) - 1, letter), STRING),
        None,
    )


def _keeps_bytes(old: str, new: str) -> bool:
    """Whether no character is replaced by one with more bytes."""
    return all(len(after.encode()) <= len(before.encode()) for before, after in zip(old, new, strict=False))


def _digest(name: str) -> Callable[[Columns, str], Result]:
    def hexadecimal(data: bytes) -> str:
        """The digest of a text. Machines that forbid MD5 for security still compute it if it is not used for that."""
        return hashlib.new(name, data, usedforsecurity=False).hexdigest()

    return lambda columns, _: (_of_each(columns[0].cast(pa.binary()), hexadecimal, STRING), None)


_SHA2 = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}


def _sha2(columns: Columns, zone: str) -> Result:
    """`sha2(text, bits)`; 0 bits are 256."""
    return _digest(_SHA2[columns[1][0].as_py()])(columns, zone)


def _beside(test: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Callable[[Columns, str], Result]:
    """`startswith`, `endswith` or `contains`, by `test`."""

    def evaluate(columns: Columns, _: str) -> Result:
        """Tests the bytes of each text in the first column against those beside it in the second."""
        import polars as pl

        rows = pl.DataFrame(
            {name: pl.from_arrow(column.cast(pa.binary())) for name, column in zip("tu", columns, strict=True)}
        )
        found = rows.select(test(pl.col("t"), pl.col("u"))).to_series()
        return like(columns[0], found.fill_null(False).to_numpy(), pa.bool_(), columns[1]), None

    return evaluate


_OF_BYTES: dict[str, ScalarFunction] = {
    "concat": ScalarFunction(argument_types.texts, _concat, eager=True),
    "octet_length": ScalarFunction(argument_types.one_text, lambda columns, _: (pc.binary_length(columns[0]), None)),
    "bit_length": ScalarFunction(
        argument_types.one_text, lambda columns, _: (pc.multiply(pc.binary_length(columns[0]), 8), None)
    ),
    "md5": ScalarFunction(argument_types.one_text, _digest("md5")),
    **dict.fromkeys(("sha", "sha1"), ScalarFunction(argument_types.one_text, _digest("sha1"))),
    "sha2": ScalarFunction(argument_types.text_and_number, _sha2, constants=(1,), fits=lambda fixed: fixed[0] in _SHA2),
    "startswith": ScalarFunction(argument_types.two_texts, _beside(lambda text, part: text.bin.starts_with(part))),
    "endswith": ScalarFunction(argument_types.two_texts, _beside(lambda text, part: text.bin.ends_with(part))),
    "contains": ScalarFunction(argument_types.two_texts, _beside(lambda text, part: text.bin.contains(part))),
    **dict.fromkeys(("trim", "btrim"), ScalarFunction(argument_types.one_text, _trim(pc.ascii_trim))),
    "ltrim": ScalarFunction(argument_types.one_text, _trim(pc.ascii_ltrim)),
    "rtrim": ScalarFunction(argument_types.one_text, _trim(pc.ascii_rtrim)),
    "find_in_set": ScalarFunction(argument_types.two_texts, _find_in_set, constants=(1,)),
    "hex": ScalarFunction(argument_types.one_integer, _digits("X")),
    "bin": ScalarFunction(argument_types.one_integer, _digits("b")),
    "replace": ScalarFunction(argument_types.texts, _replace, constants=(1, 2), fits=_never_lengthens),
    "substring_index": ScalarFunction(
        argument_types.two_texts_and_number,
        _substring_index,
        constants=(1, 2),
        fits=lambda fixed: fixed[1] >= -_INT_MAX,  # with the least INT Spark's task fails; also in split_part
    ),
    # replace malformed bytes in their own way
    **dict.fromkeys(("upper", "ucase"), ScalarFunction(argument_types.one_text, _letters(_upper, pc.ascii_upper))),
    **dict.fromkeys(("lower", "lcase"), ScalarFunction(argument_types.one_text, _letters(_lower, pc.ascii_lower))),
}
"""Functions of the bytes of texts, which need not be valid UTF-8."""

_OF_DECODED: dict[str, ScalarFunction] = {
    "ascii": ScalarFunction(argument_types.one_text, _ascii),
    "split_part": ScalarFunction(
        argument_types.two_texts_and_number,
        _split_part,
        constants=(1, 2),
        fits=lambda fixed: fixed[1] != 0 and fixed[1] >= -_INT_MAX,
    ),
    "translate": ScalarFunction(
        argument_types.three_texts, _translated, constants=(1, 2), fits=lambda fixed: _keeps_bytes(*fixed)
    ),
}
"""Functions for which Spark decodes texts as Java does."""

_OF_CHARACTERS: dict[str, ScalarFunction] = {
    "reverse": ScalarFunction(argument_types.one_text, lambda columns, _: (pc.utf8_reverse(columns[0]), None)),
    **{
        name: ScalarFunction(
            argument_types.two_texts, _trim_letters(trimmed), constants=(0,), fits=lambda fixed: fixed[0]
        )
        for name, trimmed in (
            ("trim_letters", pc.utf8_trim),
            ("ltrim_letters", pc.utf8_ltrim),
            ("rtrim_letters", pc.utf8_rtrim),
        )
    },
    **dict.fromkeys(
        ("length", "char_length", "character_length", "len"), ScalarFunction(argument_types.one_text, _length)
    ),
    **dict.fromkeys(("substring", "substr"), ScalarFunction(argument_types.text_and_numbers, _substring)),
    "left": ScalarFunction(argument_types.text_and_number, _left),
    "right": ScalarFunction(argument_types.text_and_number, _right),
    **{
        name: ScalarFunction(
            argument_types.padded_text,
            _padded(name == "lpad"),
            constants=(1, 2),
            fits=lambda fixed: abs(fixed[0]) <= _LONGEST_PADDED,
        )
        for name in ("lpad", "rpad")
    },
    "instr": ScalarFunction(
        argument_types.two_texts, lambda columns, _: (_place(columns[0], columns[1][0].as_py()), None), constants=(1,)
    ),
    **dict.fromkeys(
        ("locate", "position"),
        ScalarFunction(
            argument_types.two_texts,
            lambda columns, _: (_place(columns[1], columns[0][0].as_py()), None),
            constants=(0,),
        ),
    ),
}
"""Functions of the characters of texts."""

TEXTS: dict[str, ScalarFunction] = {
    **_OF_BYTES,
    **{name: replace(function, texts=Texts.DECODED) for name, function in _OF_DECODED.items()},
    **{name: replace(function, texts=Texts.CHARACTERS) for name, function in _OF_CHARACTERS.items()},
}
