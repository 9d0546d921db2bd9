"""The names that rules can use: columns with their types, and value lists; and the session's time zone."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa

from rules_index.domains.value_lists import AnyList, MissingList, ValueList
from rules_index.errors import RuleError
from rules_index.language.coercion import Type, normalise
from rules_index.language.typed import Leaf
from rules_index.names import back_quoted, column_key, did_you_mean, field_key


@dataclass(frozen=True)
class Scope:
    """The columns and value lists that rules of one scope can name, and the zone of timestamps written without one."""

    schema: pa.Schema
    time_zone: str = "UTC"
    lists: Mapping[str, AnyList] = field(default_factory=dict, compare=False)
    _columns: dict[Hashable, list[str]] = field(init=False, repr=False, compare=False)
    _types: dict[str, Type] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        columns: dict[Hashable, list[str]] = {}
        for name in self.schema.names:
            columns.setdefault(column_key(name), []).append(name)
        object.__setattr__(self, "_columns", columns)
        object.__setattr__(self, "_types", {each.name: normalise(each.type) for each in self.schema})

    def has(self, name: str) -> bool:
        """Whether there is a column of this name; case is ignored."""
        return column_key(name) in self._columns

    def value_list(self, name: str, position: int) -> ValueList:
        """The list of this name. Raises `RuleError` if it is unknown or missing."""
        found = self.lists.get(name)
        if found is None:
            raise RuleError("UNKNOWN_LIST", f"There is no list {_shown(name)}{_hint(name, self.lists)}", position)
        if isinstance(found, MissingList):
            raise RuleError("UNKNOWN_LIST", found.reason, position)
        return found

    def leaf(self, path: str, data_type: pa.DataType) -> Leaf:
        """The leaf of a column or nested field, given its path.

        If there is also a column called `a.b`, the leaf of field b of column a is called ``"`a`.b"``.
        """
        if "." in path and path[0] != "`" and self.has(path):
            first, _, rest = path.partition(".")
            path = f"`{first}`.{rest}"
        return Leaf(path, data_type)

    def column(self, name: str, position: int) -> tuple[str, Type]:
        """The column's own spelling and its type (None if only Spark knows it). Raises `RuleError` for an unknown
        name."""
        found = self._columns.get(column_key(name))
        if found is None:
            hint = _hint(name, self.schema.names)
            raise RuleError("UNKNOWN_COLUMN", f"There is no column {_shown(name)}{hint}", position)
        if len(found) > 1:
            raise RuleError(
                "AMBIGUOUS_COLUMN",
                f"The name {name!r} fits {len(found)} columns ({', '.join(found)}), and case makes no difference.",
                position,
            )
        return found[0], self._types[found[0]]


_MOST_COMPARED = 2_000
_LONGEST_SHOWN = 100
"""The most letters of an unknown name, or of a known one, that a message shows."""


def _shown(name: str) -> str:
    return repr(name if len(name) <= _LONGEST_SHOWN else name[: _LONGEST_SHOWN - 3] + "...")


def _hint(name: str, known: Iterable[str]) -> str:
    compared = islice(known, _MOST_COMPARED)  # very many rules may each have another unknown name
    return did_you_mean(name, (each for each in compared if len(each) <= _LONGEST_SHOWN), cutoff=0.5)


def quote(part: str) -> str:
    """One part of a column's path, in back-quotes if it contains a dot or a back-quote, or is empty."""
    return back_quoted(part) if not part or "." in part or "`" in part else part


def field_of(struct: pa.StructType, name: str, position: int) -> tuple[str, Type]:
    """The spelling and type of a struct's field, given its name in any case. Raises `RuleError` for an unknown name."""
    found = [each for each in struct if field_key(each.name) == field_key(name)]
    if not found:
        hint = _hint(name, struct.names)
        raise RuleError("UNKNOWN_COLUMN", f"There is no field {_shown(name)}{hint}", position)
    if len(found) > 1:
        raise RuleError("AMBIGUOUS_COLUMN", f"The name {name!r} fits {len(found)} fields of the struct.", position)
    return found[0].name, normalise(found[0].type)


def path_of(parts: Sequence[str]) -> str:
    """The path of a column or nested field, as `Leaf.name` has it."""
    return ".".join(quote(part) for part in parts)
