"""Literals of Spark SQL as typed constants: strings, numbers, dates, timestamps, binary and intervals."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction

import pyarrow as pa

from rules_index.errors import RuleError
from rules_index.language.cursor import Cursor
from rules_index.language.evaluation import datetime_parser
from rules_index.language.tokens import NUMBER, STRING, words
from rules_index.language.type_names import DAY_INTERVAL, MONTH_INTERVAL, TIME, TIMESTAMP, TIMESTAMP_NTZ
from rules_index.language.typed import Constant

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([01][0-7]{2})|(.))", re.DOTALL)
_CONTROL = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_INTEGERS = {
    "Y": (pa.int8(), "TINYINT", 7),
    "S": (pa.int16(), "SMALLINT", 15),
    "L": (pa.int64(), "BIGINT", 63),
}
_LARGEST_DOUBLE = Decimal("1.7976931348623157E308")
_LARGEST_FLOAT = Decimal("3.4028234663852886E38")
_LONGEST_NUMBER = 1000
_YEAR_UNITS = words("YEAR YEARS MONTH MONTHS")
_DAY_UNITS = words(
    "WEEK WEEKS DAY DAYS HOUR HOURS MINUTE MINUTES SECOND SECONDS MILLISECOND MILLISECONDS "
    "MICROSECOND MICROSECONDS NANOSECOND NANOSECONDS"
)


def string(spelling: str) -> str:
    """The value of one string token: doubled quotes, escapes of Spark 4.2, raw strings. Lone surrogates become `?`."""
    if spelling[0] in "rR":
        return spelling[2:-1]
    quote = spelling[0]
    body = spelling[1:-1]
    if quote in body:
        body = _undouble(body, quote)
    if "\\" not in body:
        return body
    value = _ESCAPE.sub(_unescape, body)
    if any("\ud800" <= character <= "\udfff" for character in value):
        value = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\ufffd", "?")
    return value


def _undouble(body: str, quote: str) -> str:
    """Replaces doubled quotes by single ones, except behind a backslash."""
    return re.sub(rf"(\\.)|{quote}{quote}", lambda found: found[1] or quote, body, flags=re.DOTALL)


def _unescape(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 16))
    if found[2]:
        code = int(found[2], 16)
        return chr(code) if code <= 0x10FFFF else "?"
    if found[3]:
        return chr(int(found[3], 8))
    return _CONTROL.get(found[4], found[4])


def number(spelling: str, position: int) -> Constant:
    """The constant of a numeric literal, including its sign. Raises `LITERAL`, at `position`, if no type holds it."""
    text = spelling.upper()
    if len(text) > _LONGEST_NUMBER:
        raise RuleError("LITERAL", f"The number has more than {_LONGEST_NUMBER} digits.", position)
    if text.endswith("BD"):
        return _decimal(text[:-2], position)
    suffix = text[-1]
    if suffix in _INTEGERS:
        data_type, name, bits = _INTEGERS[suffix]
        value = int(text[:-1])
        if not -(1 << bits) <= value < 1 << bits:
            raise RuleError("LITERAL", f"{value} does not fit into {name}.", position)
        return Constant(value, data_type)
    if suffix == "F":
        exact = _exact(text[:-1], position)
        if exact.copy_abs() > _LARGEST_FLOAT:
            raise RuleError("LITERAL", f"{spelling} does not fit into FLOAT.", position)
        return Constant(nearest_float32(_fraction(exact)), pa.float32())
    if suffix == "D" or "E" in text:
        exact = _exact(text.removesuffix("D"), position)
        if exact.copy_abs() > _LARGEST_DOUBLE:
            raise RuleError("LITERAL", f"{spelling} does not fit into DOUBLE.", position)
        return Constant(float(exact), pa.float64())
    if "." in text:
        return _decimal(text, position)
    value = int(text)
    if -(1 << 31) <= value < 1 << 31:
        return Constant(value, pa.int32())
    if -(1 << 63) <= value < 1 << 63:
        return Constant(value, pa.int64())
    return _decimal(text, position)


def _exact(text: str, position: int) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise RuleError("LITERAL", f"The exponent of {text} has too many digits.", position) from None


def _decimal(text: str, position: int) -> Constant:
    """The constant of a decimal literal, with just the digits that are written."""
    exact = _exact(text, position)
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = len(digits) + max(0, exponent) if any(digits) else 1
    precision = max(precision, scale)
    if precision > 38:
        raise RuleError("LITERAL", f"{text} has {precision} digits; a DECIMAL holds at most 38.", position)
    unscaled = int("".join(map(str, digits))) * 10 ** max(0, exponent) if any(digits) else 0
    return Constant(-unscaled if sign else unscaled, pa.decimal128(precision, scale))


def _fraction(exact: Decimal) -> Fraction:
    if exact and exact.adjusted() < -400:  # below every FLOAT; the power of ten would be too large to compute
        return Fraction(0)
    return Fraction(exact)


def nearest_float32(exact: Fraction) -> float:
    """The FLOAT nearest to a number, ties to even, as a Python float; infinite if it is out of range."""
    if exact == 0:
        return 0.0
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    if exponent > 128:
        return -math.inf if exact < 0 else math.inf
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    value = float(round(magnitude / unit) * unit)  # `round` of a Fraction is half to even
    if value > 3.4028234663852886e38:
        value = float("inf")
    return -value if exact < 0 else value


def typed(kind: str, text: str, position: int, zone: str) -> Constant | pa.DataType | None:
    """The value of the literal `KIND 'text'`, or only its type if Spark must evaluate it; None if only Spark knows its
    type.

    Raises `RuleError`, at `position`, if the literal is not valid or means another value whenever it is read.
    """
    if kind == "DATE":
        return _date(text, position)
    if kind in ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"):
        return _timestamp(kind, text, position, zone)
    if kind == "X":
        digits = "0" + text if len(text) % 2 else text
        if not re.fullmatch(r"[0-9A-Fa-f]*", digits):
            raise RuleError("LITERAL", f"X'{text}' is not a string of hexadecimal digits.", position)
        return Constant(bytes.fromhex(digits), pa.binary())
    if kind == "INTERVAL":
        words = set(re.findall(r"[A-Z]+", text.upper())) - {"INTERVAL"}
        if words and words <= _YEAR_UNITS:
            return MONTH_INTERVAL
        return DAY_INTERVAL if words and words <= _DAY_UNITS else None
    if kind == "TIME":
        return TIME
    raise RuleError(
        "SYNTAX",
        f"{kind} '...' is not a kind of literal; there are DATE, TIMESTAMP, TIMESTAMP_NTZ, TIMESTAMP_LTZ, TIME, X and "
        "INTERVAL. If it is a name, an operator is missing after it.",
        position,
    )


def _refuse_moving(kind: str, text: str, position: int) -> None:
    """Raises `NOT_REPEATABLE` for a text such as `today`, or a time without a date."""
    found = datetime_parser.MOVING.match(text)
    if found or datetime_parser.is_time_of_day(text):
        raise RuleError(
            "NOT_REPEATABLE",
            f"{kind} '{text}' means a different moment whenever it is read; write the date itself.",
            position,
        )


def refuse_time_of_day(text: str, position: int) -> None:
    """Raises `NOT_REPEATABLE` for a text that Spark, if it casts it to TIMESTAMP, reads as a time of the current
    day."""
    if datetime_parser.is_time_of_day(text):
        raise RuleError(
            "NOT_REPEATABLE",
            f"'{text[:40]}' is that time of the current day here, which differs from day to day; write the date too. "
            "For the time of day of each row, compare date_format(..., 'HH:mm').",
            position,
        )


def _date(text: str, position: int) -> Constant:
    if datetime_parser.is_epoch(text):
        return Constant(0, pa.date32())
    if datetime_parser.MOVING.match(text):
        _refuse_moving("DATE", text, position)
    days = datetime_parser.parse_date(text)
    if days is None:
        raise RuleError("LITERAL", f"DATE '{text}' is not a date like 2024-12-31.", position)
    return Constant(days, pa.date32())


def _timestamp(kind: str, text: str, position: int, zone: str) -> Constant | pa.DataType:
    """The constant of a timestamp literal; only its type if only Spark knows which instant it is."""
    local = kind == "TIMESTAMP_NTZ"
    data_type = TIMESTAMP_NTZ if local else TIMESTAMP
    if datetime_parser.is_epoch(text):
        return Constant(0, data_type)
    if not local or datetime_parser.MOVING.match(text):
        _refuse_moving(kind, text, position)
    parsed = datetime_parser.parse_timestamp(text)
    if parsed is None:
        raise RuleError("LITERAL", f"{kind} '{text}' is not a timestamp like 2024-12-31 23:59:59.", position)
    if parsed.zone is not None and not datetime_parser.is_zone(parsed.zone.strip(" ")):
        raise RuleError("LITERAL", f"{parsed.zone!r} in {kind} '{text}' is not a time zone that Java knows.", position)
    if parsed.zone is not None and not datetime_parser.is_known(parsed.zone):
        return data_type
    micros = parsed.local if local else datetime_parser.to_instant(parsed.local, parsed.zone or zone)
    if micros is None:
        return data_type
    if not -(1 << 63) <= micros < 1 << 63:
        raise RuleError("LITERAL", f"{kind} '{text}' is beyond the range of timestamps.", position)
    return Constant(micros, data_type)


def interval(cursor: Cursor) -> pa.DataType | None:
    """Reads the INTERVAL literal at the cursor and returns its type. Returns None, with nothing read, if there is
    none."""
    kinds, first = cursor.tokens.kinds, cursor.at
    units: set[str] = set()
    at = first + 1
    while True:
        start = at
        at += kinds[at] in ("+", "-")
        if kinds[at] not in (NUMBER, STRING) or kinds[at + 1] not in _YEAR_UNITS | _DAY_UNITS:
            at = start
            break
        units.add(kinds[at + 1])
        at += 2
        if kinds[at] == "TO" and kinds[at + 1] in _YEAR_UNITS | _DAY_UNITS:
            units.add(kinds[at + 1])
            at += 2
            break
    if not units:
        return None
    if not (units <= _YEAR_UNITS or units <= _DAY_UNITS):
        raise RuleError(
            "LITERAL",
            "An interval holds years and months, or weeks and smaller units, not both.",
            cursor.tokens.starts[first],
        )
    cursor.at = at
    return MONTH_INTERVAL if units <= _YEAR_UNITS else DAY_INTERVAL


MICROS = {"WEEK": 604_800_000_000, "DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000,
          "SECOND": 1_000_000, "MILLISECOND": 1_000, "MICROSECOND": 1}  # fmt: skip
"""The units of day-time intervals in microseconds."""
DAYS = {"DAY": 1}
"""The units of an INTERVAL of days that is added to a date."""
MONTHS = {"YEAR": 12, "MONTH": 1}
"""The units of year-month intervals in months."""
_PART = re.compile(r"\s*([+-]?)\s*(?:([0-9]{1,9})|'(-?[0-9]{1,9})')\s*([A-Z]+?)S?\b", re.IGNORECASE)


def length_of_interval(text: str, units: Mapping[str, int]) -> int | None:
    """The length of the INTERVAL literal `text`; `units` has the length of each unit by its singular name in upper
    case.

    None if the literal has another form than whole numbers with units, or names other units.
    """
    position, total = len("INTERVAL"), 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or part[4].upper() not in units:
            return None
        total += (-1 if part[1] == "-" else 1) * int(part[2] or part[3]) * units[part[4].upper()]
        position = part.end()
    return total if abs(total) < 1 << 62 else None
