"""Caches look-ups of names in the JVM: py4j makes a round trip for each part of a dotted name, each time."""

from __future__ import annotations

from functools import reduce
from typing import Any

_known: tuple[Any, dict[str, Any]] = (None, {})
"""The JVM that was used last, and its cached names."""


def java(jvm: Any, name: str) -> Any:
    """The class, or static member of a class, that a dotted name denotes; `jvm`: a session's view of the JVM.

    Py4JError if there is none.
    """
    global _known
    known_jvm, names = _known
    if known_jvm is not jvm:
        names = {}
        _known = (jvm, names)
    if name not in names:
        names[name] = reduce(getattr, name.split("."), jvm)
    return names[name]
