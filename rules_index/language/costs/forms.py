"""Upper bounds as linear forms over the sizes of lambda variables, and bounds of a value's size."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

VALUE = 16.0
"""Bytes of a number, a BOOLEAN, a date or a timestamp."""
SLOT = 32.0
"""Bytes of an item's slot in an array, a map or a struct, in addition to those of the item."""
LEAST_ITEM = 8.0
"""The fewest bytes that an item counts for in the size of a row."""
MOST = 1e300
"""The value at which sums and products saturate."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """The bytes of one item that a lambda is called with, at most `most`."""

    most: float
    id: object = field(default_factory=object, compare=True)

    def __hash__(self) -> int:
        return id(self.id)


@dataclass(frozen=True, slots=True)
class Form:
    """`constant + coefficient x symbol + ...`; no coefficient is negative, so that the form is monotonic in every
    symbol.

    A product of two forms is bounded by one of them times the maximum of the other.
    """

    constant: float
    terms: tuple[tuple[Symbol, float], ...] = ()

    @property
    def most(self) -> float:
        """The form's maximum."""
        if not self.terms:
            return self.constant
        return min(MOST, self.constant + sum(coefficient * symbol.most for symbol, coefficient in self.terms))

    def __add__(self, other: Form | float) -> Form:
        constant = min(MOST, self.constant + (other.constant if isinstance(other, Form) else other))
        if not isinstance(other, Form) or not other.terms:
            return Form(constant, self.terms)
        terms = dict(self.terms)
        for symbol, coefficient in other.terms:
            terms[symbol] = min(MOST, terms.get(symbol, 0.0) + coefficient)
        return Form(constant, tuple(terms.items()))

    def __mul__(self, other: Form | float) -> Form:
        if isinstance(other, Form):
            if not self.terms:
                return other * self.constant
            other = other.most
        if other == 1:
            return self
        constant = min(MOST, self.constant * other)
        if not self.terms:
            return Form(constant)
        return Form(constant, tuple((symbol, min(MOST, coefficient * other)) for symbol, coefficient in self.terms))

    def among(self, items: Form, symbol: Symbol, together: Form) -> Form:
        """The form's sum over `items` values of `symbol` that have `together` bytes in total."""
        total = items * self.constant
        for each, coefficient in self.terms:
            if each == symbol:
                total = total + together * coefficient
            else:
                total = total + Form(0.0, ((each, coefficient),)) * items.most
        return total

    def without(self, symbol: Symbol) -> Form:
        """The form's maximum over all values of `symbol`."""
        terms = tuple(term for term in self.terms if term[0] != symbol)
        found = dict(self.terms).get(symbol, 0.0)
        return Form(min(MOST, self.constant + found * symbol.most), terms)


def least(first: Form, second: Form) -> Form:
    """The smaller of two bounds of the same value."""
    return first if first.most <= second.most else second


def greatest(forms: list[Form]) -> Form:
    """A bound of a value that may have any of these bounds."""
    terms: dict[Symbol, float] = {}
    for form in forms:
        for symbol, coefficient in form.terms:
            terms[symbol] = max(terms.get(symbol, 0.0), coefficient)
    return Form(max((form.constant for form in forms), default=0.0), tuple(terms.items()))


def sum_of(forms: list[Form]) -> Form:
    """The sum of bounds."""
    total = Form(0.0)
    for form in forms:
        total = total + form
    return total


@dataclass(frozen=True, slots=True)
class Size:
    """Bounds of a value's size.

    `bytes` bounds the whole value, including its items and their slots; `items` the number of items of an array or a
    map; `each` a single item (None if all that is known is that it is a part of the whole). `names` bounds the letters
    of the field names in its type. `constant` is the value itself if it is constant.
    """

    bytes: Form
    items: Form
    each: Size | None = None
    names: float = 0.0
    constant: Any = None

    @property
    def item(self) -> Size:
        """The bounds of one of the value's items."""
        return self.each or of_bytes(self.bytes, self.names)

    def but(self, **changes: Any) -> Size:
        """The same size with some fields replaced. It is not constant, unless `constant` is among them."""
        kept = {"bytes": self.bytes, "items": self.items, "each": self.each, "names": self.names}
        return Size(**{**kept, **changes})


def of_bytes(content: Form, names: float = 0.0) -> Size:
    """A value of which only the number of bytes is known."""
    return Size(content, content * (1 / LEAST_ITEM), None, names)


@lru_cache(1024)
def scalar(content: float = VALUE) -> Size:
    """A value of at most `content` bytes."""
    return of_bytes(Form(content))


def array(content: Form, items: Form, each: Size | None = None, names: float = 0.0) -> Size:
    """An array of items that have `content` bytes in total."""
    return Size(content + items * SLOT, items, each, names)


def either(sizes: list[Size]) -> Size:
    """The size of a value that is one of several."""
    items = [size.item for size in sizes if size.each is not None]
    each = either(items) if len(items) == len(sizes) and items else None
    names = max((size.names for size in sizes), default=0.0)
    return Size(greatest([size.bytes for size in sizes]), greatest([size.items for size in sizes]), each, names)
