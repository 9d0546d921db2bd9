"""Value lists: lists of values that rules name instead of spelling them out, as in `account IN LIST('sanctioned')`.

A list divides an attribute into two regions (`region_codes.py`): the values in it, and the others. Ten million values
are a hash table or sorted cuts, which are mapped into memory with the index; each row costs one lookup. These arrays
are the list's *base*. An edit does not change them: the values in which the list differs from its base are a small list
of their own (`list_edits.py`), in which each row is looked up, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from rules_index.domains.list_digest import digest_of
from rules_index.domains.list_keys import Values, are_in, keys_of, regions_of
from rules_index.domains.list_names import NAMED
from rules_index.domains.region_codes import Regions
from rules_index.domains.values import is_indexable
from rules_index.errors import RulesIndexError

if TYPE_CHECKING:
    import polars as pl

_LEAST_COUNTED = 1_000
_COUNTED_SHARE = 64
"""A list of n values counts the rows of at most n / 64 of them, or of `_LEAST_COUNTED`, whichever is more."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The file that a list's base was loaded from: the file's name and checksum, and the digest of the list in that
    file."""

    file: str
    checksum: str
    digest: str


@dataclass(frozen=True, eq=False)
class ValueList:
    """The distinct values of a list; NULL is not among them.

    count       the number of values
    digest      differs for lists with other values or of another type
    regions     the base: its values have the code 1, all others 0
    difference  the values that either the list or its base has, but not both; None if there are none
    rows        the number of rows that the list was made from, including repeated values and NULLs
    counts      `key`, `rows`: how many rows have a value, for the values of the base for which that is not 1, and the
                others for which it is not 0; keys (`list_keys`) ascend. None if there are too many: the list cannot be
                edited then
    stamp       says what the list was read from; the caller of `value_list` chooses it
    origin      the file that the base was loaded from; None if it is in no file, or in one not named by its content
    """

    name: str
    count: int
    digest: str
    regions: Regions
    difference: Regions | None
    rows: int
    counts: pl.DataFrame | None
    stamp: str = ""
    origin: Origin | None = None

    @property
    def type(self) -> pa.DataType:
        """The type of the values: integers are BIGINT, floating-point numbers DOUBLE."""
        return self.regions.type

    def contains(self, values: pa.Array) -> np.ndarray:
        """Which values [.] of the list's type are in it, bool; False for NULL."""
        codes = np.zeros(len(values), np.int32)
        self.regions.encode(values, None, codes)
        found: np.ndarray = codes == 1
        if self.difference is not None:
            self.difference.encode(values, None, codes)
            found ^= codes == 1
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueList) and (self.name, self.digest) == (other.name, other.digest)

    def __hash__(self) -> int:
        return hash((self.name, self.digest))


@dataclass(frozen=True, slots=True)
class MissingList:
    """A list whose values could not be read: rules that name it are refused, with the reason."""

    name: str
    reason: str
    digest: str = ""


AnyList: TypeAlias = ValueList | MissingList


def value_list(name: str, values: Values, stamp: str = "") -> ValueList:
    """Makes a value list. The values may be in any order, repeat, and be NULL. stamp: what they were read from, which
    the list keeps.

    Raises `RulesIndexError` for a name that rules cannot write, for values that are no pyarrow array or of a type that
    cannot be compared, and for more than 2 GiB of values.
    """
    if NAMED.fullmatch(f"LIST('{name}')") is None:
        raise RulesIndexError(f"{name!r} cannot be a list's name; use letters, digits, points, - and _.")
    if not isinstance(values, (pa.Array, pa.ChunkedArray)):
        kind = type(values).__name__
        raise RulesIndexError(
            f"The values of the list {name} are a {kind}; make them a pyarrow array: pa.array(values)."
        )
    data_type = list_type(values.type)
    if data_type is None:
        raise RulesIndexError(f"The list {name} holds {values.type}, and values of that type are not compared.")
    rows = len(values)
    try:
        keys = keys_of(values, data_type)
    except pa.ArrowException as error:
        reason = f"The list {name} holds more than 2 GiB, or values that {data_type} cannot hold: {error}"
        raise RulesIndexError(reason) from error
    del values
    keys, counts = _distinct(keys)
    base = regions_of(keys, data_type)
    digest = digest_of(data_type, len(keys), base, None)
    return ValueList(name, len(keys), digest, base, None, rows, counts, stamp)


def by_name(lists: Iterable[AnyList]) -> dict[str, AnyList]:
    """The lists by name. Raises `RulesIndexError` for anything else than lists."""
    found: dict[str, AnyList] = {}
    for each in lists:
        if not isinstance(each, (ValueList, MissingList)):
            raise RulesIndexError(
                f"A list of values is a ValueList, not {type(each).__name__}; make it by value_list(name, values)."
            )
        found[each.name] = each
    return found


def most_counted(count: int) -> int:
    """The most values of which a list of `count` values counts the rows."""
    return max(_LEAST_COUNTED, count // _COUNTED_SHARE)


def list_type(data_type: pa.DataType) -> pa.DataType | None:
    """The type of a list with such values; None if values of the type cannot be compared."""
    t = pa.types
    if t.is_dictionary(data_type):
        return list_type(data_type.value_type)
    if t.is_integer(data_type):
        return pa.int64()
    if t.is_floating(data_type):
        return pa.float64()
    if t.is_large_string(data_type) or t.is_string_view(data_type):
        return pa.string()
    if t.is_large_binary(data_type) or t.is_binary_view(data_type):
        return pa.binary()
    if t.is_decimal(data_type):
        is_known = 0 <= data_type.scale <= data_type.precision <= 38
        return pa.decimal128(data_type.precision, data_type.scale) if is_known else None
    if t.is_timestamp(data_type):
        return pa.timestamp("us", "UTC" if data_type.tz else None)
    return data_type if is_indexable(data_type) else None


def difference_of(base: Regions, counts: pl.DataFrame) -> Regions | None:
    """The values that either have rows or are in the base, but not both; None if there are none."""
    import polars as pl

    if counts.is_empty():
        return None
    differs = (counts["rows"] > 0).to_numpy() != are_in(base, counts["key"])
    return regions_of(counts["key"].filter(pl.Series(differs)), base.type) if differs.any() else None


def _distinct(keys: pl.Series) -> tuple[pl.Series, pl.DataFrame | None]:
    """The distinct keys, ascending; and the rows of the keys that repeat, None if too many do."""
    import polars as pl

    ordered = keys.sort()
    opens = np.ones(len(ordered), bool)
    opens[1:] = (ordered[1:] != ordered[:-1]).to_numpy() if len(ordered) else True
    places = np.flatnonzero(opens)
    if len(places) == len(ordered):
        return ordered, pl.DataFrame({"key": keys.clear(), "rows": pl.Series([], dtype=pl.Int64)})
    rows = np.diff(np.append(places, len(ordered)))
    found = ordered.filter(pl.Series(opens))
    repeated = rows > 1
    if int(repeated.sum()) > most_counted(len(found)):
        return found, None
    return found, pl.DataFrame({"key": found.filter(pl.Series(repeated)), "rows": rows[repeated]})
