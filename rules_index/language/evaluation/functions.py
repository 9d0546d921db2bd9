"""The functions of Spark SQL that are evaluated here, one entry each; Spark evaluates the others.

An entry says for which argument types its function is evaluated exactly as in Spark, and returns the values of columns.
All are strict: the value is NULL where an argument is, and where evaluation raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.language.coercion import BIGINT, INT, STRING, is_decimal, is_float, is_integer
from rules_index.language.evaluation.comparison import compare
from rules_index.language.evaluation.moments import DATES
from rules_index.language.evaluation.scalar import Columns, Result, ScalarFunction, Types, filled, like
from rules_index.language.typed import Constant, Expression, Operation


def build(
    name: str, arguments: Sequence[Expression | None], result: pa.DataType | None, zone: str
) -> Expression | None:
    """The call as an operation; None where only Spark can evaluate it."""
    function = FUNCTIONS.get(name)
    known = [each for each in arguments if each is not None]
    if function is None or result is None or len(known) < len(arguments):
        return None
    if all(isinstance(each, Constant) for each in known) or not function.accepts([each.type for each in known]):
        return None
    fixed = [known[place] for place in function.constants if place < len(known)]
    values = [each.value for each in fixed if isinstance(each, Constant) and each.value is not None]
    if len(values) < len(fixed) or (function.units is not None and values[0] not in function.units):
        return None
    return Operation("call", tuple(known), result, (name, zone))


def raises(operation: Operation) -> bool:
    """Whether a call can raise."""
    return FUNCTIONS[operation.parameters[0]].raises


def call(operation: Operation, columns: Columns) -> Result:
    """The values of a call, in its type."""
    name, zone = operation.parameters
    if not len(columns[0]):
        return pa.nulls(0, operation.type), None
    values, failed = FUNCTIONS[name].evaluate(columns, zone)
    return (values if values.type == operation.type else values.cast(operation.type)), failed


# Argument types


def _texts(kinds: Types) -> bool:
    return all(kind == STRING for kind in kinds)


def _one_text(kinds: Types) -> bool:
    return len(kinds) == 1 and kinds[0] == STRING


def _one_number(kinds: Types) -> bool:
    if len(kinds) != 1:
        return False
    if is_decimal(kinds[0]):
        return bool(kinds[0].precision < 38 or kinds[0].scale == 0)
    return is_integer(kinds[0]) or bool(kinds[0] == pa.float64())


def _one_list(kinds: Types) -> bool:
    return len(kinds) == 1 and bool(pa.types.is_list(kinds[0]) or pa.types.is_map(kinds[0]))


# Strings

_NEW_LETTERS = {
    0xA7DC: 0x19B,
    0xA7CB: 0x264,
    0x1C89: 0x1C8A,
    **{capital: capital + 1 for capital in (0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA)},
    **{capital: capital + 0x20 for capital in range(0x10D50, 0x10D66)},
    **{capital: capital + 0x1B for capital in range(0x16EA0, 0x16EB9)},
}
"""Capital letters added to Unicode since version 14, and their small letters; Spark knows them."""
_NEW_CAPITALS = {small: capital for capital, small in _NEW_LETTERS.items()}


def _upper(text: str) -> str:
    return text.translate(_NEW_CAPITALS).upper()


def _lower(text: str) -> str:
    return text.translate(_NEW_LETTERS).lower()


def _letters(change: Callable[[str], str], ascii_only: Callable[[pa.Array], pa.Array]) -> Any:
    def evaluate(columns: Columns, _: str) -> Result:
        """Converts each distinct string by `change`, or all at once by `ascii_only` where that is the same."""
        column = columns[0]
        if not _has_non_ascii(column):
            return ascii_only(column), None
        codes = column.dictionary_encode()
        changed = pa.array([None if text is None else change(text) for text in codes.dictionary.to_pylist()], STRING)
        return changed.take(codes.indices), None

    return evaluate


def _has_non_ascii(column: pa.Array) -> bool:
    return not pc.all(pc.fill_null(pc.string_is_ascii(column), True)).as_py()


def _trim(trimmed: Callable[..., pa.Array]) -> Callable[[Columns, str], Result]:
    return lambda columns, _: (trimmed(columns[0], characters=" "), None)


def _length(columns: Columns, _: str) -> Result:
    return pc.utf8_length(columns[0]), None


def _concat(columns: Columns, _: str) -> Result:
    return pc.binary_join_element_wise(*columns, "", null_handling="emit_null"), None


_INT_MAX = (1 << 31) - 1


def _substring(columns: Columns, _: str) -> Result:
    """`substring(text, place, length)` counts from 1 or, with a negative place, from the end; it clips at both ends."""
    text, place = columns[0], columns[1][0].as_py()
    length = columns[2][0].as_py() if len(columns) > 2 else _INT_MAX
    if length <= 0:
        return pc.if_else(text.is_valid(), "", pa.scalar(None, STRING)), None
    if place >= 0:
        start = max(place - 1, 0)
        return pc.utf8_slice_codeunits(text, start, start + length), None
    starts = filled(pc.utf8_length(text)).astype(np.int64) + place
    ends = np.maximum(starts + length, 0)
    starts = np.maximum(starts, 0)
    sliced = pl.select(
        pl.lit(pl.Series("t", pl.from_arrow(text))).str.slice(
            pl.lit(pl.Series("o", starts)), pl.lit(pl.Series("n", np.maximum(ends - starts, 0).astype(np.uint64)))
        )
    ).to_series()
    return sliced.to_arrow().cast(STRING), None


# Numbers


def _floor_or_ceiling(rounded: Callable[[pa.Array], pa.Array]) -> Callable[[Columns, str], Result]:
    def evaluate(columns: Columns, _: str) -> Result:
        """Rounds in the type that Spark returns for the column's: BIGINT or a DECIMAL."""
        column = columns[0]
        if is_integer(column.type):
            return column.cast(BIGINT), None
        if not is_float(column.type):
            # rounding can add a digit
            wider = pa.decimal128(min(column.type.precision + 1, 38), column.type.scale)
            return rounded(column.cast(wider)), None
        values = np.nan_to_num(filled(rounded(column)), nan=0.0, posinf=2.0**63, neginf=-(2.0**63))
        limits = np.iinfo(np.int64)
        whole = np.clip(values, -(2.0**63), 2.0**62).astype(np.int64)
        # Java clamps values beyond BIGINT to its limits
        large = values >= 2.0**62
        whole[large] = [min(int(value), limits.max) for value in values[large].tolist()]
        return like(column, whole, BIGINT), None

    return evaluate


# Arrays and maps


def _size(columns: Columns, _: str) -> Result:
    column = columns[0]
    if pa.types.is_map(column.type):
        offsets = np.diff(column.offsets.to_numpy())
        return like(column, offsets, INT), None
    return pc.list_value_length(column), None


def _array_contains(columns: Columns, _: str) -> Result:
    """TRUE where an item is equal, else NULL where an item is NULL, else FALSE."""
    lists, value = columns[0], columns[1]
    items = pc.list_flatten(lists)
    owner = pc.list_parent_indices(lists).to_numpy()
    wanted = pa.repeat(value[0], len(items))
    equal = compare("=", items, wanted)
    found, unknown = np.zeros(len(lists), bool), np.zeros(len(lists), bool)
    found[owner[pc.fill_null(equal, False).to_numpy(zero_copy_only=False)]] = True
    unknown[owner[items.is_null().to_numpy(zero_copy_only=False)]] = True
    is_null = lists.is_null().to_numpy(zero_copy_only=False)
    return pa.array(found, mask=is_null | (unknown & ~found)), None


def _contains_accepts(kinds: Types) -> bool:
    return (
        len(kinds) == 2
        and bool(pa.types.is_list(kinds[0]))
        and kinds[0].value_type == kinds[1]
        and (kinds[1] == STRING or is_integer(kinds[1]) or is_float(kinds[1]))
    )


FUNCTIONS: dict[str, ScalarFunction] = {
    **DATES,
    **dict.fromkeys(("upper", "ucase"), ScalarFunction(_one_text, _letters(_upper, pc.ascii_upper))),
    **dict.fromkeys(("lower", "lcase"), ScalarFunction(_one_text, _letters(_lower, pc.ascii_lower))),
    # not trim: `TRIM(LEADING FROM s)` is also a call of it with one argument
    "btrim": ScalarFunction(_one_text, _trim(pc.utf8_trim)),
    "ltrim": ScalarFunction(_one_text, _trim(pc.utf8_ltrim)),
    "rtrim": ScalarFunction(_one_text, _trim(pc.utf8_rtrim)),
    **dict.fromkeys(("length", "char_length", "character_length", "len"), ScalarFunction(_one_text, _length)),
    "concat": ScalarFunction(_texts, _concat),
    **dict.fromkeys(
        ("substring", "substr"),
        ScalarFunction(
            lambda kinds: kinds[0] == STRING and all(kind == INT for kind in kinds[1:]), _substring, constants=(1, 2)
        ),
    ),
    "floor": ScalarFunction(_one_number, _floor_or_ceiling(pc.floor)),
    **dict.fromkeys(("ceil", "ceiling"), ScalarFunction(_one_number, _floor_or_ceiling(pc.ceil))),
    **dict.fromkeys(("size", "cardinality"), ScalarFunction(_one_list, _size)),
    "array_contains": ScalarFunction(_contains_accepts, _array_contains, constants=(1,)),
}
