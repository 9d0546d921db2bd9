"""Which assertions of a regular expression hold between two code points of a string, by Java's definition of lines."""

from __future__ import annotations

from rules_index.kernels.jit import bare, inlined
from rules_index.language.patterns.syntax import Place

_START, _LAST = int(Place.START), int(Place.END)
_DOLLAR, _DOLLAR_UNIX = int(Place.DOLLAR), int(Place.DOLLAR_UNIX)
_DOLLAR_MULTI, _DOLLAR_MULTI_UNIX = int(Place.DOLLAR_MULTI), int(Place.DOLLAR_MULTI_UNIX)
_CARET_MULTI, _CARET_MULTI_UNIX = int(Place.CARET_MULTI), int(Place.CARET_MULTI_UNIX)
_INSIDE_PAIR = int(Place.INSIDE_PAIR)


@inlined
def is_terminator(code):  # type: ignore[no-untyped-def]
    """Whether a code point ends a line in Java."""
    return code == 0x0A or code == 0x0D or code == 0x85 or code == 0x2028 or code == 0x2029


@bare
def last_terminator(data, begin, end):  # type: ignore[no-untyped-def]
    """The offset of the line terminator that ends the string `data[begin:end]`; `end` if there is none."""
    length = end - begin
    if length >= 1 and data[end - 1] == 0x0A:
        return end - 2 if length >= 2 and data[end - 2] == 0x0D else end - 1
    if length >= 1 and data[end - 1] == 0x0D:
        return end - 1
    if length >= 2 and data[end - 2] == 0xC2 and data[end - 1] == 0x85:
        return end - 2
    if length >= 3 and data[end - 3] == 0xE2 and data[end - 2] == 0x80 and 0xA8 <= data[end - 1] <= 0xA9:
        return end - 3
    return end


@inlined
def assertion_bit(slots, place, holds):  # type: ignore[no-untyped-def]
    """The bit of a kind of place if it holds and the pattern tests it, else 0."""
    return (1 << slots[place]) if holds and slots[place] >= 0 else 0


@bare
def line_bits(slots, data, begin, end, last, position, previous, code):  # type: ignore[no-untyped-def]
    """The bits of line assertions that hold between the code points `previous` and `code` (-1: none)."""
    at_end = position == end
    inside_pair = previous == 0x0D and code == 0x0A
    bits = assertion_bit(slots, _INSIDE_PAIR, inside_pair)
    bits |= assertion_bit(slots, _START, position == begin) | assertion_bit(slots, _LAST, at_end)
    bits |= assertion_bit(slots, _DOLLAR, at_end or position == last)
    bits |= assertion_bit(slots, _DOLLAR_UNIX, at_end or (code == 0x0A and position == end - 1))
    bits |= assertion_bit(slots, _DOLLAR_MULTI, at_end or (is_terminator(code) and not inside_pair))
    bits |= assertion_bit(slots, _DOLLAR_MULTI_UNIX, at_end or code == 0x0A)
    after_line = position == begin or (is_terminator(previous) and not inside_pair)
    bits |= assertion_bit(slots, _CARET_MULTI, after_line and not at_end)
    bits |= assertion_bit(slots, _CARET_MULTI_UNIX, (position == begin or previous == 0x0A) and not at_end)
    return bits
