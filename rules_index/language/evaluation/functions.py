"""The functions of Spark SQL that are evaluated here, one entry each; the others are left to Spark.

An entry says for which types of arguments its function is evaluated exactly as Spark does, and gives values for columns
without rows that raise elsewhere: NULL where an argument is (all are strict), and where evaluating it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.language.coercion import BIGINT, DATE, INT, STRING, is_decimal, is_float, is_integer
from rules_index.language.evaluation.comparison import compare
from rules_index.language.evaluation.times import zone_of
from rules_index.language.typed import Constant, Expression, Operation

Mask = npt.NDArray[np.bool_]
Columns = Sequence[pa.Array]
Result = tuple[pa.Array, Mask | None]
"""Values, and where evaluating them raised (None: nowhere)."""
Types = Sequence[pa.DataType]


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """accepts: for which types of its arguments it is evaluated here; evaluate: its values from its arguments, in the
    time zone given; raises: whether it may raise; constants: the places of arguments that must be constants."""

    accepts: Callable[[Types], bool]
    evaluate: Callable[[Columns, str], Result]
    raises: bool = False
    constants: tuple[int, ...] = ()


def build(
    name: str, arguments: Sequence[Expression | None], result: pa.DataType | None, zone: str
) -> Expression | None:
    """The call as an operation; None where only Spark evaluates it."""
    function = FUNCTIONS.get(name)
    known = [each for each in arguments if each is not None]
    if function is None or result is None or len(known) < len(arguments):
        return None
    if all(isinstance(each, Constant) for each in known) or not function.accepts([each.type for each in known]):
        return None
    fixed = [known[place] for place in function.constants if place < len(known)]
    if any(not isinstance(each, Constant) or each.value is None for each in fixed):
        return None
    return Operation("call", tuple(known), result, (name, zone))


def raises(operation: Operation) -> bool:
    """Whether a call may raise."""
    return FUNCTIONS[operation.parameters[0]].raises


def call(operation: Operation, columns: Columns) -> Result:
    """The values of a call of its type."""
    name, zone = operation.parameters
    if not len(columns[0]):
        return pa.nulls(0, operation.type), None
    values, failed = FUNCTIONS[name].evaluate(columns, zone)
    return (values if values.type == operation.type else values.cast(operation.type)), failed


# What arguments may be


def _texts(kinds: Types) -> bool:
    return all(kind == STRING for kind in kinds)


def _one_text(kinds: Types) -> bool:
    return len(kinds) == 1 and kinds[0] == STRING


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or kind == DATE)


def _one_moment(kinds: Types) -> bool:
    return len(kinds) == 1 and _is_moment(kinds[0])


def _one_time(kinds: Types) -> bool:
    return len(kinds) == 1 and bool(pa.types.is_timestamp(kinds[0]))


def _two_moments(kinds: Types) -> bool:
    return len(kinds) == 2 and all(map(_is_moment, kinds))


def _one_number(kinds: Types) -> bool:
    if len(kinds) != 1:
        return False
    if is_decimal(kinds[0]):
        return bool(kinds[0].precision < 38 or kinds[0].scale == 0)
    return is_integer(kinds[0]) or bool(kinds[0] == pa.float64())


def _one_list(kinds: Types) -> bool:
    return len(kinds) == 1 and bool(pa.types.is_list(kinds[0]) or pa.types.is_map(kinds[0]))


# Dates and times

_DAY = 86_400_000_000


def local_micros(values: pa.Array, zone: str) -> np.ndarray:
    """[rows] int64: microseconds since 1970 on the local clock of the zone; 0 where the value is NULL."""
    if values.type == DATE:
        days = _filled(values.cast(pa.int32())).astype(np.int64)
        return np.asarray(days * _DAY)
    micros = _filled(values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()))
    if values.type.tz is None or zone in ("UTC", "Etc/UTC", "Z"):
        return micros
    return np.asarray(micros + _offsets(micros, zone))


def _offsets(micros: np.ndarray, zone: str) -> np.ndarray:
    """The zone's distance from UTC at each instant, in microseconds."""
    starts, shifts = transitions(zone)
    folded = np.where(micros < _REPEATS, micros, _REPEATS - _CYCLE + (micros - _REPEATS) % _CYCLE)
    return np.asarray(shifts[np.searchsorted(starts, folded, side="right") - 1])


_CYCLE = 146_097 * _DAY
"""Microseconds of 400 years, after which the calendar, weekdays included, is as before."""
_REPEATS = 16_725_225_600_000_000
"""The begin of the year 2500: by then each zone goes by a rule that holds for ever."""


@lru_cache(maxsize=64)
def transitions(zone: str) -> tuple[np.ndarray, np.ndarray]:
    """The instants, ascending, from which a zone has another distance from UTC, until the year 2500, and that distance,
    both in microseconds; the first instant is before all others.

    Found by bisection between moments three days apart (twelve from 2100 on), between which no zone goes and comes
    back; it has whole seconds.
    """
    info, epoch = zone_of(zone), datetime(1970, 1, 1, tzinfo=UTC)

    def shift(second: int) -> int:
        offset = (epoch + timedelta(seconds=second)).astimezone(info).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())

    day, first, later, last = 86_400, -5_000_000_000, 4_102_444_800, _REPEATS // 1_000_000
    before, known = first, shift(first)
    starts, shifts = [-(1 << 62)], [known]
    for probe in (*range(first, later, 3 * day), *range(later, last, 12 * day)):
        now = shift(probe)
        if now != known:
            left, right = before, probe
            while right - left > 1:
                middle = (left + right) // 2
                left, right = (middle, right) if shift(middle) == known else (left, middle)
            starts.append(right * 1_000_000)
            shifts.append(now)
            known = now
        before = probe
    return np.array(starts, np.int64), np.array(shifts, np.int64) * 1_000_000


def _of_day(divisor: int, modulus: int) -> Callable[[Columns, str], Result]:
    def evaluate(columns: Columns, zone: str) -> Result:
        micros = local_micros(columns[0], zone)
        return _like(columns[0], (micros // divisor) % modulus, INT), None

    return evaluate


def _of_date(part: Callable[[np.ndarray], np.ndarray]) -> Callable[[Columns, str], Result]:
    def evaluate(columns: Columns, zone: str) -> Result:
        return _like(columns[0], part(_days(columns[0], zone).astype(np.int64)), INT), None

    return evaluate


def _since(days: np.ndarray, unit: str) -> np.ndarray:
    """Days since the begin of the month (M) or the year (Y)."""
    return np.asarray(days - days.astype("M8[D]").astype(f"M8[{unit}]").astype("M8[D]").astype(np.int64))


def _count(days: np.ndarray, unit: str) -> np.ndarray:
    """Whole months (M) or years (Y) since 1970."""
    return np.asarray(days.astype("M8[D]").astype(f"M8[{unit}]").astype(np.int64))


def _week(days: np.ndarray) -> np.ndarray:
    """The week of ISO 8601: that of the year in which its Thursday lies."""
    thursdays = days - (days + 3) % 7 + 3
    return np.asarray(_since(thursdays, "Y") // 7 + 1)


def _days(values: pa.Array, zone: str) -> np.ndarray:
    """[rows] int32: days since 1970 on the local clock."""
    return np.asarray((local_micros(values, zone) // _DAY).astype(np.int32))


def _date(columns: Columns, zone: str) -> Result:
    return _like(columns[0], _days(columns[0], zone), INT).cast(DATE), None


def _date_difference(columns: Columns, zone: str) -> Result:
    days = _days(columns[0], zone) - _days(columns[1], zone)
    return _like(columns[0], days, INT, columns[1]), None


# Texts

_NEW_LETTERS = {
    0xA7DC: 0x19B,
    0xA7CB: 0x264,
    0x1C89: 0x1C8A,
    **{capital: capital + 1 for capital in (0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA)},
    **{capital: capital + 0x20 for capital in range(0x10D50, 0x10D66)},
    **{capital: capital + 0x1B for capital in range(0x16EA0, 0x16EB9)},
}
"""Capitals that Unicode has had since version 14, and their small letters: Spark's edition knows them."""
_NEW_CAPITALS = {small: capital for capital, small in _NEW_LETTERS.items()}


def _upper(text: str) -> str:
    return text.translate(_NEW_CAPITALS).upper()


def _lower(text: str) -> str:
    return text.translate(_NEW_LETTERS).lower()


def _letters(change: Callable[[str], str], ascii_only: Callable[[pa.Array], pa.Array]) -> Any:
    def evaluate(columns: Columns, _: str) -> Result:
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
    """`substring(text, place, length)` counts from 1, or, below 0, from the end; what lies outside is left out."""
    text, place = columns[0], columns[1][0].as_py()
    length = columns[2][0].as_py() if len(columns) > 2 else _INT_MAX
    if length <= 0:
        return pc.if_else(text.is_valid(), "", pa.scalar(None, STRING)), None
    if place >= 0:
        start = max(place - 1, 0)
        return pc.utf8_slice_codeunits(text, start, start + length), None
    starts = _filled(pc.utf8_length(text)).astype(np.int64) + place
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
        column = columns[0]
        if is_integer(column.type):
            return column.cast(BIGINT), None
        if not is_float(column.type):
            # the next whole number may have a digit more
            wider = pa.decimal128(min(column.type.precision + 1, 38), column.type.scale)
            return rounded(column.cast(wider)), None
        values = np.nan_to_num(_filled(rounded(column)), nan=0.0, posinf=2.0**63, neginf=-(2.0**63))
        limits = np.iinfo(np.int64)
        whole = np.clip(values, -(2.0**63), 2.0**62).astype(np.int64)
        # Java takes what is beyond a BIGINT for the greatest or least one
        large = values >= 2.0**62
        whole[large] = [min(int(value), limits.max) for value in values[large].tolist()]
        return _like(column, whole, BIGINT), None

    return evaluate


# Arrays and maps


def _size(columns: Columns, _: str) -> Result:
    column = columns[0]
    if pa.types.is_map(column.type):
        offsets = np.diff(column.offsets.to_numpy())
        return _like(column, offsets, INT), None
    return pc.list_value_length(column), None


def _array_contains(columns: Columns, _: str) -> Result:
    """TRUE where an item is equal; else NULL where an item is NULL, else FALSE."""
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


def _filled(values: pa.Array) -> np.ndarray:
    """The values with 0 for NULL."""
    return np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False))


def _like(values: pa.Array, found: np.ndarray, kind: pa.DataType, other: pa.Array | None = None) -> pa.Array:
    """An array of what was found, NULL where the values are."""
    mask = values.is_null().to_numpy(zero_copy_only=False)
    if other is not None:
        mask = mask | other.is_null().to_numpy(zero_copy_only=False)
    return pa.array(found, kind, mask=mask)


_HOUR = 3_600_000_000
_DATE_PARTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "year": lambda days: _count(days, "Y") + 1970,
    "quarter": lambda days: _count(days, "M") % 12 // 3 + 1,
    "month": lambda days: _count(days, "M") % 12 + 1,
    **dict.fromkeys(("day", "dayofmonth"), lambda days: _since(days, "M") + 1),
    "dayofyear": lambda days: _since(days, "Y") + 1,
    "dayofweek": lambda days: (days + 4) % 7 + 1,
    "weekday": lambda days: (days + 3) % 7,
    "weekofyear": _week,
}

FUNCTIONS: dict[str, ScalarFunction] = {
    "hour": ScalarFunction(_one_time, _of_day(_HOUR, 24)),
    "minute": ScalarFunction(_one_time, _of_day(60_000_000, 60)),
    "second": ScalarFunction(_one_time, _of_day(1_000_000, 60)),
    **{name: ScalarFunction(_one_moment, _of_date(part)) for name, part in _DATE_PARTS.items()},
    "date": ScalarFunction(_one_moment, _date),
    "to_date": ScalarFunction(_one_moment, _date),
    **dict.fromkeys(("datediff", "date_diff"), ScalarFunction(_two_moments, _date_difference)),
    **dict.fromkeys(("upper", "ucase"), ScalarFunction(_one_text, _letters(_upper, pc.ascii_upper))),
    **dict.fromkeys(("lower", "lcase"), ScalarFunction(_one_text, _letters(_lower, pc.ascii_lower))),
    # not trim: `TRIM(LEADING FROM s)` is a call of it with one argument, too
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
