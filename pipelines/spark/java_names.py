"""Names of the JVM, each looked up once: py4j would ask the JVM about every part of a dotted name, each time."""

from __future__ import annotations

from functools import reduce
from typing import Any

_known: tuple[Any, dict[str, Any]] = (None, {})
"""The JVM that was asked last, and what its names stand for."""


def java(jvm: Any, name: str) -> Any:
    """The class, or the static member of a class, that a dotted name stands for in a JVM, as sessions know it.

    Py4JError where there is none.
    """
    global _known
    of, found = _known
    if of is not jvm:
        found = {}
        _known = (jvm, found)
    if name not in found:
        found[name] = reduce(getattr, name.split("."), jvm)
    return found[name]
