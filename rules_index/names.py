"""Names of columns and fields as Spark compares them when case is ignored, names and texts as SQL writes them, and the
suggestion for an unknown name."""

from __future__ import annotations

import difflib
import functools
import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Sequence

_MOST_COMPARED = 10_000
"""Maximum number of names that an unknown one is compared with, which takes a second at most."""
_LONGEST_COMPARED = 100


def field_key(name: str) -> str:
    """A key that is equal for two names of fields if Spark takes them for the same. It follows Java's
    `equalsIgnoreCase`: letter by letter, upper case, then lower case."""
    if name.isascii():
        return name.lower()
    return "".join(_lower(_upper(letter)) for letter in name)


def column_key(name: str) -> Hashable:
    """A key that is equal for two names of columns if Spark takes them for the same: their lower case must be equal,
    too.

    So a column `ſ` is not `s`, though their upper case is equal; as fields of a struct they are the same.
    """
    return name.lower() if name.isascii() else (name.lower(), field_key(name))


def spelled(names: Sequence[str], wanted: str, key: Callable[[str], Hashable]) -> str | None:
    """Returns the name in `names` that equals `wanted`, or else the one whose key is equal; None if there is none, or
    more than one."""
    if names.count(wanted) == 1:
        return wanted
    key_wanted = key(wanted)
    alike = [name for name in names if key(name) == key_wanted]
    return alike[0] if len(alike) == 1 else None


def _upper(letter: str) -> str:
    """The letter's upper case; the letter itself if that is several letters, as for 'ß'."""
    upper = letter.upper()
    if len(upper) > 1:
        upper = letter.title()
    return upper if len(upper) == 1 else letter


def _lower(letter: str) -> str:
    lower = letter.lower()
    return lower if len(lower) == 1 else lower[0]


def path_parts(name: str) -> list[str]:
    """The parts of a leaf's name, which points separate: `a.b` has two. A part in backticks may contain points."""
    parts = re.findall(r"`((?:[^`]|``)*)`|([^.`]+)", name)
    return [quoted.replace("``", "`") if quoted else bare for quoted, bare in parts]


def back_quoted(name: str) -> str:
    """The name in backticks, so that Spark takes it literally."""
    return f"`{name.replace('`', '``')}`"


def back_quoted_path(name: str) -> str:
    """A leaf's name in Spark SQL, whatever characters its parts have."""
    return ".".join(map(back_quoted, path_parts(name)))


def quoted_text(text: str) -> str:
    """The text as a literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def did_you_mean(unknown: object, known: Iterable[object], otherwise: str = ".", cutoff: float = 0.6) -> str:
    """The end of a sentence about an unknown name or id: `; did you mean ...?` with the most similar known one, or else
    `otherwise`. Only the first `_MOST_COMPARED` known ones are compared.

    cutoff: the least similarity of a suggestion (`difflib.SequenceMatcher`).
    """
    return _suggestion(str(unknown), tuple(itertools.islice(known, _MOST_COMPARED)), cutoff) or otherwise


@functools.lru_cache(maxsize=1024)  # after a column is renamed, very many rules have the same mistake
def _suggestion(unknown: str, known: tuple[object, ...], cutoff: float) -> str:
    names = {str(each).strip().lower(): each for each in known}
    close = difflib.get_close_matches(unknown.strip().lower()[:_LONGEST_COMPARED], names, n=1, cutoff=cutoff)
    return f"; did you mean {names[close[0]]!r}?" if close else ""
