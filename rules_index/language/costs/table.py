"""How large the result of each allowed function is, and how much work it takes, from its arguments.

One line for each kind of function: `result | work | names`. The words are defined below, each by one function of the
arguments. Bytes are those of the value in memory, steps are about a nanosecond of one core each; both are upper
bounds for whatever a row holds, so that they never fall where an argument grows. A text may hold bytes that are no
UTF-8: each becomes U+FFFD, three bytes, where Spark makes a text of Java's of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from rules_index.language.coercion import BINARY, STRING, Type, is_decimal
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
from rules_index.language.patterns import java_degree

COSTS = """
fixed      | pass     | abs acos acosh add_months ascii asin asinh atan atan2 atanh bigint bit_count bit_get bit_length
fixed      | pass     | boolean bround cbrt ceil ceiling char_length character_length chr char cos cosh cot csc date
fixed      | pass     | date_add date_diff date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart
fixed      | pass     | day dayname dayofmonth dayofweek dayofyear decimal degrees div double e exp expm1 extract
fixed      | pass     | factorial float floor from_utc_timestamp getbit hour hypot int is_variant_null isnan isnotnull
fixed      | pass     | isnull last_day len length ln log log10 log1p log2 luhn_check is_valid_utf8 make_date
fixed      | pass     | make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz
fixed      | pass     | make_ym_interval minute mod month monthname months_between nanvl negative next_day octet_length
fixed      | pass     | pi pmod positive pow power quarter radians rint round sec second shiftleft shiftright
fixed      | pass     | shiftrightunsigned sign signum sin sinh smallint sqrt tan tanh time time_bucket time_diff
fixed      | pass     | time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis time_trunc
fixed      | pass     | time_to_seconds timestamp timestamp_micros timestamp_millis timestamp_seconds timestampadd
fixed      | pass     | timestampdiff tinyint to_utc_timestamp trunc try_add try_divide try_mod try_multiply
fixed      | pass     | try_subtract unix_date unix_micros unix_millis unix_seconds weekday weekofyear width_bucket year
fixed      | pass     | zeroifnull cardinality size array_size convert_timezone nullifzero try_make_interval
fixed      | raising  | try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz
fixed      | raising  | to_date try_to_date to_timestamp to_timestamp_ltz try_to_timestamp to_timestamp_ntz to_time
fixed      | raising  | try_to_time unix_timestamp to_unix_timestamp to_number try_to_number
fixed      | read     | crc32 hash xxhash64 equal_null array_contains array_position map_contains_key
fixed      | read     | startswith endswith
fixed      | read     | vector_cosine_similarity vector_inner_product vector_l2_distance
fixed      | search   | instr locate position contains find_in_set
fixed      | distance | levenshtein
fixed      | match    | rlike regexp regexp_like like ilike regexp_count regexp_instr
fixed      | set      | arrays_overlap
fixed      | lambda   | exists forall
fixed      | parse    | json_array_length
short      | read     | md5 sha sha1 sha2 bin
short      | text     | conv
printed    | text     | format_number
dated      | text     | date_format from_unixtime to_char to_varchar
same       | text     | trim ltrim rtrim btrim
halved     | text     | unhex
same       | text     | soundex unbase64 reverse validate_utf8 try_validate_utf8 nullif
same       | text     | right
tripled    | text     | url_decode try_url_decode
tripled    | raising  | to_binary try_to_binary
tripled    | text     | upper ucase lower lcase initcap make_valid_utf8
hex        | text     | hex
base64     | text     | base64
quoted     | text     | quote
percent    | text     | url_encode
encoded    | text     | encode
wide       | letters  | translate mask
cut        | text     | left
cut-third  | text     | substring substr
tripled    | search   | split_part substring_index
tripled    | parse    | parse_url try_parse_url
tripled    | match    | regexp_extract regexp_substr
string     | text     | string
same       | text     | binary
total      | read     | overlay
decoded    | text     | decode
concat     | read     | concat
joined-ws  | read     | concat_ws
joined     | read     | array_join
formatted  | text     | format_string printf
replaced   | search   | replace
rewritten  | match    | regexp_replace
repeated   | read     | repeat
spaces     | read     | space
padded     | read     | lpad rpad
json       | print    | to_json
printed    | print    | schema_of_json schema_of_csv
json       | print    | to_csv
wide       | parse    | get_json_object
schema     | parse    | schema_of_variant
declared   | pass     | typeof
variant    | parse    | parse_json try_parse_json
json       | parse    | to_variant_object
fields     | parse    | from_json from_csv
typed      | parse    | variant_get try_variant_get
parts      | match    | split regexp_extract_all
parts      | parse    | json_object_keys
parts      | words    | sentences
either     | pass     | coalesce ifnull nvl elt if nvl2
either     | read     | greatest least
items      | read     | array
record     | read     | struct named_struct map
item       | read     | element_at try_element_at get
item       | sort     | array_max array_min
same-items | sort     | sort_array array_sort
same-items | set      | array_distinct
same-items | read     | array_compact array_remove
same-items | lambda   | filter
slice      | read     | slice
pushed     | read     | array_append array_prepend
inserted   | read     | array_insert
joined-set | set      | array_union
same-items | set      | array_intersect array_except
zipped     | read     | arrays_zip
flat       | read     | flatten
entries    | build    | map_entries
same-items | read     | map_keys map_values
copies     | read     | array_repeat
range      | read     | sequence
mapped     | lambda   | transform
last       | lambda   | aggregate reduce
"""

NODE = 100.0
"""Steps of evaluating one part, whatever it is."""
RAISING = 30_000.0
"""Steps of an error that is raised and caught within a function."""
DECLARED = 1 << 16
"""Bytes of a type in words."""


@dataclass(frozen=True)
class Call:
    """A call: the sizes of its arguments, and their types where they are known."""

    name: str
    sizes: list[Size]
    types: list[Type]

    def bytes(self, index: int) -> Form:
        """The bytes of an argument, none where it is not given."""
        return self.sizes[index].bytes if index < len(self.sizes) else Form(0.0)

    def count(self, index: int, otherwise: float = 1.0) -> float:
        """The magnitude of a constant argument."""
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


# Results


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
    """Of bytes in a character set the letters, of which ISO-8859-1 has the most; else one of the arguments."""
    return of_bytes((call.bytes(0) * 2 if len(call.sizes) == 2 else call.total) + VALUE)


_ENCODED = {"utf-8": 3.0, "us-ascii": 1.0, "iso-8859-1": 1.0, "utf-16le": 2.0, "utf-16be": 2.0, "utf-16": 2.0}


def _encoded(call: Call) -> Size:
    """Each byte is a letter at most: one that is no UTF-8 becomes U+FFFD. UTF-32 has four bytes for each."""
    name = call.sizes[1].constant if len(call.sizes) > 1 else None
    factor = _ENCODED.get(name.lower(), 4.0) if isinstance(name, str) else 4.0
    return of_bytes(call.bytes(0) * factor + VALUE)


def _string(call: Call) -> Size:
    """A number has at most 64 letters; of an array, so has each of its items."""
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
    """Each argument may be written once for each two letters of the format, and a value padded to 1,000."""
    places = Form(0.5) * call.bytes(0) + 1
    widest = greatest([size.bytes for size in call.sizes[1:]])
    return of_bytes(call.bytes(0) + places * (widest * 8 + 1024))


def _replaced(call: Call) -> Size:
    sought = call.sizes[1].constant
    length = max(1, len(sought.encode())) if isinstance(sought, str) else 1
    return of_bytes(greatest([call.bytes(0), call.bytes(0) * call.bytes(2) * (1 / length)]) + VALUE)


def _rewritten(call: Call) -> Size:
    """The replacement may stand before each letter, and name each match once for every two of its letters."""
    factor = 2.5 if isinstance(call.sizes[2].constant, str) else 4.5
    return of_bytes(call.bytes(0) * 3 + (call.bytes(0) + 1) * (call.bytes(2) * factor + 1))


def _repeated(call: Call) -> Size:
    return of_bytes(call.bytes(0) * call.count(1, 0.0) + VALUE)


def _spaces(call: Call) -> Size:
    return scalar(call.count(0, 0.0) + VALUE)


def _padded(call: Call) -> Size:
    return scalar(4 * call.count(1, 0.0) + VALUE)


def _json(call: Call) -> Size:
    """Letters may be escaped with six, numbers have up to 64, and each struct names its fields."""
    return of_bytes((call.bytes(0) + VALUE) * (8 + call.names / SLOT))


def _variant(call: Call) -> Size:
    return of_bytes(call.bytes(0) * 16 + 256, call.bytes(0).most)


def _fields(call: Call) -> Size:
    return _structured(call.bytes(0), call.sizes[1], 2)


def _typed(call: Call) -> Size:
    return _structured(call.bytes(0), call.sizes[2], 1)


def _structured(read: Form, schema: Size, shortest: float) -> Size:
    """A value of a schema; each item in the text of at least `shortest` bytes may hold all fields of its struct."""
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
    """An array of some of the items: those of a column stand in one piece there, and here each by itself."""
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
    # in lines of 76 letters, each with two at its end
    "base64": _scaled(1.4),
    # what is no UTF-8 becomes three bytes
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
"""Each word for a result: its size."""


# Work


def _read(call: Call, result: Size) -> Form:
    return call.total + result.bytes + sum_of([size.items for size in call.sizes]) * 20


def _search(call: Call, result: Size) -> Form:
    """A search goes on at the next place where the first letters were right."""
    read = (call.total + result.bytes) * 5
    return read + (call.bytes(0) * call.bytes(1)) * 0.5 if len(call.sizes) > 1 else read


def _letters(call: Call, result: Size) -> Form:
    return (call.total + result.bytes) * 50


def _distance(call: Call, result: Size) -> Form:
    """A table of all pairs of letters; with a threshold only the band about its diagonal."""
    pairs = call.bytes(0) * call.bytes(1)
    if len(call.sizes) == 3:
        pairs = least(pairs, call.total * (2 * call.count(2, math.inf) + 1)) if call.count(2, math.inf) < 1e9 else pairs
    return pairs * 5 + call.total * 10


def _match(call: Call, result: Size) -> Form:
    """What `java_degree` says of the pattern; LIKE and RLIKE are linear in the value."""
    pattern = call.sizes[1].constant if len(call.sizes) > 1 else None
    letters = float(len(pattern)) if isinstance(pattern, str) else 1.0
    read = (call.total + result.bytes) * 50
    if call.name in ("rlike", "regexp", "regexp_like", "like", "ilike"):
        return read + call.bytes(0) * (10 * letters)
    degree, factor = java_degree(pattern) if isinstance(pattern, str) else (1, 1)
    steps = call.bytes(0) if degree < 2 else call.bytes(0) * call.bytes(0)
    return read + steps * float(5 * factor)


def _sort(call: Call, result: Size) -> Form:
    """Each item is compared some twenty times."""
    return (call.bytes(0) + call.first.items * 50) * 25


def _set(call: Call, result: Size) -> Form:
    """By hashing where items are plain; else each is compared with each."""
    sizes = call.sizes
    other = sizes[1] if len(sizes) > 1 else sizes[0]
    kind = call.types[0] if call.types[0] is not None else call.types[-1]
    item = getattr(kind, "value_type", None)
    read = call.total * 5 + sum_of([size.items for size in sizes]) * 100
    if item is not None and (item == STRING or is_decimal(item) or _is_scalar(item)):
        return read
    first, second = sizes[0], other
    whole = Size(first.bytes + second.bytes, first.items + second.items)
    return read + (whole.items * whole.items) * 20 + whole.items * whole.bytes


def _is_scalar(item: object) -> bool:
    import pyarrow as pa

    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_date, pa.types.is_timestamp, pa.types.is_boolean)
    return any(kind(item) for kind in kinds)


WORK: dict[str, Callable[[Call, Size], Form]] = {
    "pass": lambda call, result: call.total * 5,
    "read": _read,
    "text": lambda call, result: (call.total + result.bytes) * 10,
    "letters": _letters,
    "search": _search,
    "raising": lambda call, result: call.total * 20 + RAISING,
    "parse": lambda call, result: (call.total + result.bytes) * 20 + RAISING,
    "print": lambda call, result: (call.total + result.bytes) * 10 + 2000.0,
    "words": lambda call, result: (call.total + result.bytes) * 100,
    "match": _match,
    "distance": _distance,
    "sort": _sort,
    "set": _set,
    "build": lambda call, result: (call.total + result.bytes) * 25,
    "lambda": lambda call, result: call.first.items * 30 + result.bytes,
}
"""Each word for work: the steps of a call beside those of its arguments."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a function costs: its result's size and its own work."""

    result: Callable[[Call], Size]
    work: Callable[[Call, Size], Form]


def _read_table() -> dict[str, Cost]:
    costs: dict[str, Cost] = {}
    for line in COSTS.strip().splitlines():
        result, work, names = (part.strip() for part in line.split("|"))
        for name in names.split():
            costs[name] = Cost(RESULTS[result], WORK[work])
    return costs


BY_NAME: dict[str, Cost] = _read_table()
"""What each allowed function costs, by its lower-case name."""

TIMES: dict[str, Callable[[int, int], int]] = {
    "nullif": lambda index, count: 2 if index == 0 else 1,
    "nullifzero": lambda index, count: 2,
    "regexp_substr": lambda index, count: 2,
    "decode": lambda index, count: max(1, (count - 1) // 2) if index == 0 else 1,
}
"""How often Spark copies an argument (its place, how many there are) while it plans; once where it is not here."""
