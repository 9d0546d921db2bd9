"""Upper bounds of the size of a call's result from the sizes of its arguments, whatever a row contains.

Sizes are bytes of values in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from rules_index.language.coercion import BINARY, STRING, Type
from rules_index.language.costs.forms import (
    SLOT,
    VALUE,
    Form,
    Size,
    array,
    either,
    greatest,
    least,
    of_bytes,
    scalar,
    sum_of,
)
from rules_index.language.costs.options import schema_shape

DECLARED = 1 << 16
"""Bytes of a type written as text."""


@dataclass(frozen=True)
class Call:
    """A call: the sizes of its arguments, and their types (None if only Spark knows them)."""

    name: str
    sizes: list[Size]
    types: list[Type]

    def bytes(self, index: int) -> Form:
        """The bytes of an argument; 0 if it is not given."""
        return self.sizes[index].bytes if index < len(self.sizes) else Form(0.0)

    def count(self, index: int, otherwise: float = 1.0) -> float:
        """The magnitude of an argument that is a constant integer; else `otherwise`."""
        value = self.sizes[index].constant if index < len(self.sizes) else None
        return float(abs(value)) if isinstance(value, int) and not isinstance(value, bool) else otherwise

    @property
    def total(self) -> Form:
        """The bytes of all arguments."""
        return sum_of([size.bytes for size in self.sizes])

    @property
    def names(self) -> float:
        """The letters of the field names in any argument's type."""
        return max((size.names for size in self.sizes), default=0.0)

    @property
    def first(self) -> Size:
        """The first argument."""
        return self.sizes[0]


def _same(call: Call) -> Size:
    return of_bytes(call.bytes(0) + VALUE, call.names)


def _scaled(factor: float, more: float = 64.0) -> Callable[[Call], Size]:
    return lambda call: of_bytes(call.bytes(0) * factor + more, call.names)


def _cut(index: int) -> Callable[[Call], Size]:
    def cut(call: Call) -> Size:
        length = call.count(index, math.inf)
        return of_bytes(least(call.bytes(0), Form(min(4 * length, 1e300))) + VALUE)

    return cut


def _printed(call: Call) -> Size:
    return of_bytes(call.total * 4 + 2048)


def _decoded(call: Call) -> Size:
    """`decode(bytes, charset)`: at most the letters that ISO-8859-1 would give. With more arguments, one of these."""
    return of_bytes((call.bytes(0) * 2 if len(call.sizes) == 2 else call.total) + VALUE)


_ENCODED = {"utf-8": 3.0, "us-ascii": 1.0, "iso-8859-1": 1.0, "utf-16le": 2.0, "utf-16be": 2.0, "utf-16": 2.0}


def _encoded(call: Call) -> Size:
    """Each byte is at most one letter; invalid UTF-8 becomes U+FFFD. UTF-32 has four bytes for each letter."""
    name = call.sizes[1].constant if len(call.sizes) > 1 else None
    factor = _ENCODED.get(name.lower(), 4.0) if isinstance(name, str) else 4.0
    return of_bytes(call.bytes(0) * factor + VALUE)


def _string(call: Call) -> Size:
    """A number has at most 64 letters, and so has each item of an array."""
    if call.types[0] in (STRING, BINARY):
        return _same(call)
    return of_bytes(call.bytes(0) * 8 + 64)


def _concat(call: Call) -> Size:
    each = either([size.item for size in call.sizes])
    return Size(call.total + VALUE, sum_of([size.items for size in call.sizes]), each, call.names)


def _joined_ws(call: Call) -> Size:
    items = sum_of([size.items for size in call.sizes[1:] if size.each is not None])
    plain = [size for size in call.sizes[1:] if size.each is None]
    items = items + sum_of([size.items for size, kind in zip(call.sizes, call.types, strict=True) if kind != STRING])
    return of_bytes(call.total + call.bytes(0) * (items + len(plain)) + VALUE)


def _joined(call: Call) -> Size:
    return of_bytes(call.bytes(0) + (call.bytes(1) + call.bytes(2)) * call.first.items + VALUE)


def _formatted(call: Call) -> Size:
    """Each argument can be written once for every two letters of the format, and each value can be padded to 1,000."""
    places = Form(0.5) * call.bytes(0) + 1
    widest = greatest([size.bytes for size in call.sizes[1:]])
    return of_bytes(call.bytes(0) + places * (widest * 8 + 1024))


def _replaced(call: Call) -> Size:
    sought = call.sizes[1].constant
    length = max(1, len(sought.encode())) if isinstance(sought, str) else 1
    return of_bytes(greatest([call.bytes(0), call.bytes(0) * call.bytes(2) * (1 / length)]) + VALUE)


def _rewritten(call: Call) -> Size:
    """The replacement can occur before each letter, and can contain each match once for every two of its own
    letters."""
    factor = 2.5 if isinstance(call.sizes[2].constant, str) else 4.5
    return of_bytes(call.bytes(0) * 3 + (call.bytes(0) + 1) * (call.bytes(2) * factor + 1))


def _repeated(call: Call) -> Size:
    return of_bytes(call.bytes(0) * call.count(1, 0.0) + VALUE)


def _spaces(call: Call) -> Size:
    return scalar(call.count(0, 0.0) + VALUE)


def _padded(call: Call) -> Size:
    return scalar(4 * call.count(1, 0.0) + VALUE)


def _json(call: Call) -> Size:
    """A letter can take six when escaped, a number has up to 64, and each struct contains its field names."""
    return of_bytes((call.bytes(0) + VALUE) * (8 + call.names / SLOT))


def _variant(call: Call) -> Size:
    return of_bytes(call.bytes(0) * 16 + 256, call.bytes(0).most)


def _fields(call: Call) -> Size:
    return _structured(call.bytes(0), call.sizes[1], 2)


def _typed(call: Call) -> Size:
    return _structured(call.bytes(0), call.sizes[2], 1)


def _structured(read: Form, schema: Size, shortest: float) -> Size:
    """A value of a schema. Each item takes at least `shortest` bytes of the text, and can have all fields of its
    struct."""
    shape = schema_shape(schema.constant)
    repeated = read * ((SLOT + VALUE * shape.repeated_fields) / shortest) if shape.repeats else Form(0.0)
    return of_bytes(read * 3 + repeated + shape.fields * (VALUE + SLOT) + SLOT, shape.names)


def _parts(call: Call) -> Size:
    content = call.bytes(0) * 3 + VALUE
    return array(content, call.bytes(0) + VALUE, of_bytes(content), call.names)


def _either(call: Call) -> Size:
    return either(call.sizes)


def _items(call: Call) -> Size:
    return array(call.total, Form(float(len(call.sizes))), either(call.sizes) if call.sizes else None, call.names)


def _record(call: Call) -> Size:
    names = sum(size.names + (len(size.constant) if isinstance(size.constant, str) else 8) for size in call.sizes)
    return of_bytes(call.total + SLOT * len(call.sizes), float(names))


def _item(call: Call) -> Size:
    return call.first.item.but()


def _same_items(call: Call) -> Size:
    """An array of some of the argument's items. In a column items are contiguous; here each is an object of its own."""
    return call.first.but(bytes=call.bytes(0) + call.first.items * SLOT)


def _slice(call: Call) -> Size:
    size = _same_items(call)
    length = call.count(2, math.inf)
    if math.isinf(length):
        return size
    items = least(size.items, Form(length))
    return size.but(bytes=least(size.bytes, (size.item.bytes + SLOT) * length), items=items, each=size.item)


def _pushed(call: Call) -> Size:
    return _longer(call, call.sizes[1], 1.0)


def _inserted(call: Call) -> Size:
    return _longer(call, call.sizes[2], call.count(1, 0.0) + 1)


def _longer(call: Call, more: Size, items: float) -> Size:
    size = _same_items(call)
    each = either([size.item, more])
    return Size(size.bytes + more.bytes + items * SLOT, size.items + items, each, call.names)


def _joined_set(call: Call) -> Size:
    size = _concat(call)
    return size.but(bytes=size.bytes + size.items * SLOT)


def _zipped(call: Call) -> Size:
    items = greatest([size.items for size in call.sizes])
    return array(
        call.total, items * len(call.sizes), of_bytes(call.total, call.names + 8 * len(call.sizes)), call.names
    )


def _entries(call: Call) -> Size:
    return array(call.bytes(0), call.first.items * 3, of_bytes(call.bytes(0), call.names + 8), call.names + 8)


def _total(call: Call) -> Size:
    return of_bytes(call.total + VALUE, call.names)


def _flat(call: Call) -> Size:
    inner = call.first.item
    items = least(call.first.items * inner.items, call.bytes(0) * 0.125)
    return array(call.bytes(0), items, inner.item, call.names)


def _copies(call: Call) -> Size:
    count = call.count(1, 0.0)
    return array(call.bytes(0) * count, Form(count), call.first.but(), call.names)


def _range(call: Call) -> Size:
    items = call.count(0, 0.0) + call.count(1, 0.0) + 1
    return array(Form(items * VALUE), Form(items), scalar(), 0.0)


RESULTS: dict[str, Callable[[Call], Size]] = {
    "fixed": lambda call: scalar(),
    "short": lambda call: scalar(256.0),
    "declared": lambda call: scalar(DECLARED + call.names),
    "printed": _printed,
    "dated": lambda call: of_bytes(call.total * 40 + 64),
    "same": _same,
    "tripled": _scaled(3),
    "wide": _scaled(6),
    "halved": _scaled(0.5),
    "hex": _scaled(2),
    # lines of 76 letters, each followed by two
    "base64": _scaled(1.4),
    # each invalid byte becomes three
    "quoted": _scaled(3),
    "percent": _scaled(9),
    "encoded": _encoded,
    "cut": _cut(1),
    "cut-third": _cut(2),
    "string": _string,
    "total": _total,
    "decoded": _decoded,
    "concat": _concat,
    "joined-ws": _joined_ws,
    "joined": _joined,
    "formatted": _formatted,
    "replaced": _replaced,
    "rewritten": _rewritten,
    "repeated": _repeated,
    "spaces": _spaces,
    "padded": _padded,
    "json": _json,
    "schema": _scaled(16, 256.0),
    "variant": _variant,
    "fields": _fields,
    "typed": _typed,
    "parts": _parts,
    "either": _either,
    "items": _items,
    "record": _record,
    "item": _item,
    "same-items": _same_items,
    "slice": _slice,
    "pushed": _pushed,
    "inserted": _inserted,
    "joined-set": _joined_set,
    "zipped": _zipped,
    "entries": _entries,
    "flat": _flat,
    "copies": _copies,
    "range": _range,
    "mapped": _same_items,
    "last": lambda call: either([call.sizes[1], *call.sizes[3:]]),
}
"""The size of the result, by the first word of a line of the table (`costs.table`)."""
