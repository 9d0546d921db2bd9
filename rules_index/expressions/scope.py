"""What a rule may name: the columns of its scope, their types, and the session's time zone."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

import pyarrow as pa

from rules_index.errors import RuleError
from rules_index.expressions.coercion import Type, normalise
from rules_index.expressions.tree import Leaf


@dataclass(frozen=True)
class Scope:
    """The columns that rules of one scope may name, and the zone of timestamps written without one."""

    schema: pa.Schema
    time_zone: str = "UTC"
    _columns: dict[str, list[str]] = field(init=False, repr=False, compare=False)
    _types: dict[str, Type] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        columns: dict[str, list[str]] = {}
        for name in self.schema.names:
            columns.setdefault(name.lower(), []).append(name)
        object.__setattr__(self, "_columns", columns)
        object.__setattr__(self, "_types", {each.name: normalise(each.type) for each in self.schema})

    def has(self, name: str) -> bool:
        """True where a column is called so, in any case of letters."""
        return name.lower() in self._columns

    def column(self, name: str, position: int) -> tuple[str, Type]:
        """The column's own spelling and its type (None where only Spark knows it)."""
        found = self._columns.get(name.lower())
        if found is None:
            raise RuleError("UNKNOWN_COLUMN", f"There is no column {name!r}{self._hint(name)}", position)
        if len(found) > 1:
            raise RuleError(
                "AMBIGUOUS_COLUMN",
                f"The name {name!r} fits {len(found)} columns ({', '.join(found)}), and case makes no difference.",
                position,
            )
        return found[0], self._types[found[0]]

    def _hint(self, name: str) -> str:
        close = difflib.get_close_matches(name.lower(), list(self._columns)[:2000], n=1, cutoff=0.5)
        return f"; did you mean {self._columns[close[0]][0]!r}?" if close else "."


def quote(part: str) -> str:
    """One part of a column's path, in back-quotes where a dot or a back-quote in it could mislead."""
    return "`" + part.replace("`", "``") + "`" if "." in part or "`" in part else part


def field_of(struct: pa.StructType, name: str, position: int) -> tuple[str, Type]:
    """The spelling and type of a struct's field, by its name in any case of letters."""
    found = [each for each in struct if each.name.lower() == name.lower()]
    if not found:
        close = difflib.get_close_matches(name.lower(), [each.name.lower() for each in struct], n=1, cutoff=0.5)
        hint = f"; did you mean {next(e.name for e in struct if e.name.lower() == close[0])!r}?" if close else "."
        raise RuleError("UNKNOWN_COLUMN", f"There is no field {name!r}{hint}", position)
    if len(found) > 1:
        raise RuleError("AMBIGUOUS_COLUMN", f"The name {name!r} fits {len(found)} fields of the struct.", position)
    return found[0].name, normalise(found[0].type)


def column_leaf(parts: list[str], data_type: pa.DataType) -> Leaf:
    """The leaf of a column or nested field."""
    return Leaf(".".join(quote(part) for part in parts), data_type)
