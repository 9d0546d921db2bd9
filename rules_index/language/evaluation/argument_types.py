"""What the arguments of the functions evaluated here may be."""

from __future__ import annotations

import pyarrow as pa

from rules_index.language.coercion import BIGINT, DATE, INT, STRING, is_decimal, is_float, is_integer
from rules_index.language.evaluation.scalar import Types


def texts(kinds: Types) -> bool:
    """Any number of texts."""
    return all(kind == STRING for kind in kinds)


def one_text(kinds: Types) -> bool:
    """One text."""
    return len(kinds) == 1 and kinds[0] == STRING


def two_texts(kinds: Types) -> bool:
    """Two texts."""
    return len(kinds) == 2 and texts(kinds)


def text_and_numbers(kinds: Types) -> bool:
    """A text, then INTs."""
    return kinds[0] == STRING and all(kind == INT for kind in kinds[1:])


def text_and_number(kinds: Types) -> bool:
    """A text and an INT."""
    return len(kinds) == 2 and text_and_numbers(kinds)


def padded_text(kinds: Types) -> bool:
    """A text, an INT, and perhaps another text."""
    return text_and_numbers(kinds[:2]) and texts(kinds[2:])


def three_texts(kinds: Types) -> bool:
    """Three texts."""
    return len(kinds) == 3 and texts(kinds)


def two_texts_and_perhaps_a_number(kinds: Types) -> bool:
    """Two texts, and perhaps an INT."""
    return two_texts(kinds) or two_texts_and_number(kinds)


def two_texts_and_number(kinds: Types) -> bool:
    """Two texts, then an INT."""
    return len(kinds) == 3 and texts(kinds[:2]) and bool(kinds[2] == INT)


def one_number(kinds: Types) -> bool:
    """One integer, DOUBLE or DECIMAL that floor and ceiling do not run out of."""
    if len(kinds) != 1:
        return False
    if is_decimal(kinds[0]):
        return bool(kinds[0].precision < 38 or kinds[0].scale == 0)
    return one_plain_number(kinds)


def one_plain_number(kinds: Types) -> bool:
    """One integer or DOUBLE."""
    return len(kinds) == 1 and (is_integer(kinds[0]) or bool(kinds[0] == pa.float64()))


def number_and_digits(kinds: Types) -> bool:
    """One integer or DOUBLE, and perhaps an INT."""
    return one_plain_number(kinds[:1]) and all(kind == INT for kind in kinds[1:])


def one_integer(kinds: Types) -> bool:
    """One integer."""
    return len(kinds) == 1 and is_integer(kinds[0])


def two_integers(kinds: Types) -> bool:
    """Two integers of one type."""
    return len(kinds) == 2 and is_integer(kinds[0]) and kinds[0] == kinds[1]


def integer_and_places(kinds: Types) -> bool:
    """An integer, and a number of at most an INT."""
    return len(kinds) == 2 and is_integer(kinds[0]) and is_integer(kinds[1]) and kinds[1] != BIGINT


def one_map(kinds: Types) -> bool:
    """One map of plain values."""
    return len(kinds) == 1 and bool(pa.types.is_map(kinds[0])) and not pa.types.is_nested(kinds[0].item_type)


def one_array_in_order(kinds: Types) -> bool:
    """One array of numbers, DATEs or times."""
    if len(kinds) != 1 or not pa.types.is_list(kinds[0]):
        return False
    item = kinds[0].value_type
    return is_integer(item) or is_float(item) or is_decimal(item) or one_moment([item])


def one_list(kinds: Types) -> bool:
    """One array or map."""
    return len(kinds) == 1 and bool(pa.types.is_list(kinds[0]) or pa.types.is_map(kinds[0]))


def array_and_item(kinds: Types) -> bool:
    """An array, and a value of its items' type that has one equality: a text or a number."""
    return (
        len(kinds) == 2
        and bool(pa.types.is_list(kinds[0]))
        and kinds[0].value_type == kinds[1]
        and (kinds[1] == STRING or is_integer(kinds[1]) or is_float(kinds[1]))
    )


def array_and_place(kinds: Types) -> bool:
    """An array of plain values, and a place of at most an INT."""
    return (
        len(kinds) == 2
        and bool(pa.types.is_list(kinds[0]))
        and not pa.types.is_nested(kinds[0].value_type)
        and is_integer(kinds[1])
        and kinds[1] != BIGINT
    )


def map_and_key(kinds: Types) -> bool:
    """A map of plain values, and a text or integer of its keys' type."""
    return (
        len(kinds) == 2
        and bool(pa.types.is_map(kinds[0]))
        and not pa.types.is_nested(kinds[0].item_type)
        and kinds[0].key_type == kinds[1]
        and (kinds[1] == STRING or is_integer(kinds[1]))
    )


def one_date(kinds: Types) -> bool:
    """One DATE."""
    return len(kinds) == 1 and kinds[0] == DATE


def one_time(kinds: Types) -> bool:
    """One TIMESTAMP or TIMESTAMP_NTZ."""
    return len(kinds) == 1 and bool(pa.types.is_timestamp(kinds[0]))


def one_moment(kinds: Types) -> bool:
    """One DATE, TIMESTAMP or TIMESTAMP_NTZ."""
    return one_date(kinds) or one_time(kinds)


def two_moments(kinds: Types) -> bool:
    """Two of DATE, TIMESTAMP and TIMESTAMP_NTZ."""
    return len(kinds) == 2 and one_moment(kinds[:1]) and one_moment(kinds[1:])


def two_of_a_kind(kinds: Types) -> bool:
    """Two DATEs, two TIMESTAMPs or two TIMESTAMP_NTZs."""
    return two_moments(kinds) and kinds[0] == kinds[1]


def one_instant(kinds: Types) -> bool:
    """One TIMESTAMP."""
    return one_time(kinds) and kinds[0].tz is not None


def unit_and_instant(kinds: Types) -> bool:
    """A unit and a TIMESTAMP."""
    return len(kinds) == 2 and kinds[0] == STRING and one_instant(kinds[1:])


def unit_and_instants(kinds: Types) -> bool:
    """A unit and two TIMESTAMPs. Dates and wall times are excluded: in a zone they may not exist."""
    return len(kinds) == 3 and unit_and_instant(kinds[:2]) and one_instant(kinds[2:])


def moment_and_pattern(kinds: Types) -> bool:
    """A DATE or TIMESTAMP, and a text."""
    return len(kinds) == 2 and (one_date(kinds[:1]) or one_instant(kinds[:1])) and kinds[1] == STRING


def date_and_unit(kinds: Types) -> bool:
    """A DATE and a unit."""
    return len(kinds) == 2 and one_date(kinds[:1]) and kinds[1] == STRING


def date_and_days(kinds: Types) -> bool:
    """A DATE and a number of at most an INT."""
    return len(kinds) == 2 and one_date(kinds[:1]) and is_integer(kinds[1]) and kinds[1] != BIGINT


def time_and_length(kinds: Types) -> bool:
    """A TIMESTAMP or TIMESTAMP_NTZ, and microseconds."""
    return len(kinds) == 2 and one_time(kinds[:1]) and kinds[1] == BIGINT


def time_and_months(kinds: Types) -> bool:
    """A TIMESTAMP or TIMESTAMP_NTZ, and an INT."""
    return len(kinds) == 2 and one_time(kinds[:1]) and bool(kinds[1] == INT)


def instant_and_text(kinds: Types) -> bool:
    """A TIMESTAMP and a text."""
    return len(kinds) == 2 and one_instant(kinds[:1]) and bool(kinds[1] == STRING)


def two_instants(kinds: Types) -> bool:
    """Two TIMESTAMPs."""
    return len(kinds) == 2 and one_instant(kinds[:1]) and one_instant(kinds[1:])
