"""Names of columns and fields as Spark compares them where the case of letters makes no difference."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence


def field_key(name: str) -> str:
    """Equal for the names of fields that Spark takes for one: Java's `equalsIgnoreCase`, letter by letter."""
    if name.isascii():
        return name.lower()
    return "".join(_lower(_upper(letter)) for letter in name)


def column_key(name: str) -> Hashable:
    """Equal for the names of columns that Spark takes for one: those whose lower case is equal as well.

    So a column `ſ` is not `s`, whose upper case it has; the field of a struct is.
    """
    return name.lower() if name.isascii() else (name.lower(), field_key(name))


def spelled(names: Sequence[str], wanted: str, key: Callable[[str], Hashable]) -> str | None:
    """The one name that is `wanted`, exactly or else by its key; None where there is none, or several."""
    if names.count(wanted) == 1:
        return wanted
    alike = [name for name in names if key(name) == key(wanted)]
    return alike[0] if len(alike) == 1 else None


def _upper(letter: str) -> str:
    """The letter's one capital, which 'ß' has not."""
    upper = letter.upper()
    if len(upper) > 1:
        upper = letter.title()
    return upper if len(upper) == 1 else letter


def _lower(letter: str) -> str:
    lower = letter.lower()
    return lower if len(lower) == 1 else lower[0]


def path_parts(name: str) -> list[str]:
    """The parts of a leaf's name: `a.b` is two, a part in backticks is one whatever it holds."""
    parts = re.findall(r"`((?:[^`]|``)*)`|([^.`]+)", name)
    return [quoted.replace("``", "`") if quoted else bare for quoted, bare in parts]
