"""Sigma rules evaluated on one event, a mapping of fields to values: the slow way, by Python's regular expressions.

It shares no code with what it is an oracle for, and reads a rule's detection as Sigma's specification has it: texts
without regard to case, a missing field equal to nothing, a search TRUE or FALSE and never unknown.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any


def matches(detection: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether a rule's detection holds of an event."""
    searches = {name: _search(found, event) for name, found in detection.items() if name != "condition"}
    conditions = detection["condition"] if isinstance(detection["condition"], list) else [detection["condition"]]
    return any(_condition(str(each), searches) for each in conditions)


def _condition(text: str, searches: Mapping[str, bool]) -> bool:
    """The condition with each search replaced by its truth, read by Python."""

    def of(found: re.Match[str]) -> str:
        names = [
            name
            for name in searches
            if (found[2] == "them" and not name.startswith("_")) or fnmatchcase(name, found[2])
        ]
        assert names
        values = [searches[name] for name in names]
        return str(all(values) if found[1] == "all" else any(values))

    text = re.sub(r"(?i)\b(1|any|all) of ([\w*?]+)", of, text)
    words = re.findall(r"[()]|[^\s()]+", text)
    known = {"and", "or", "not", "(", ")", "True", "False"}
    return bool(
        eval(" ".join(w.lower() if w.lower() in known else w if w in known else str(searches[w]) for w in words))
    )


def _search(found: Any, event: Mapping[str, Any]) -> bool:
    if isinstance(found, list):
        return any(_search(each, event) for each in found)
    return all(_field(key, value, event) for key, value in found.items())


def _field(key: str, values: Any, event: Mapping[str, Any]) -> bool:
    name, *modifiers = key.split("|")
    listed = values if isinstance(values, list) else [values]
    there = event.get(name)
    if "exists" in modifiers:
        return (there is not None) == (str(listed[0]).lower() in ("true", "yes", "on"))
    tests = [_value(there, each, modifiers, event) for each in listed]
    found = all(tests) if "all" in modifiers else any(tests)
    return found != ("neq" in modifiers)


def _value(there: Any, wanted: Any, modifiers: list[str], event: Mapping[str, Any]) -> bool:
    if wanted is None:
        return there is None
    if there is None:
        return False
    for name, holds in (("lte", lambda a, b: a <= b), ("gte", lambda a, b: a >= b), ("lt", lambda a, b: a < b),
                        ("gt", lambda a, b: a > b)):  # fmt: skip
        if name in modifiers:
            return bool(holds(float(there), float(wanted)))
    if "fieldref" in modifiers:
        other = event.get(wanted)
        return other is not None and str(there).lower() == str(other).lower()
    if "cidr" in modifiers:
        try:
            return ipaddress.ip_address(there) in ipaddress.ip_network(wanted)
        except ValueError:
            return False
    if "re" in modifiers:
        flags = sum({"i": re.I, "m": re.M, "s": re.S}[each] for each in modifiers if each in "ims")
        return re.search(wanted, there, flags) is not None
    if not isinstance(there, str):
        return float(there) == float(wanted)
    texts = {str(wanted)}
    if "windash" in modifiers:
        for place in re.finditer(r"\B[-/]\b", str(wanted)):
            texts |= {
                text[: place.start()] + dash + text[place.end() :] for text in texts for dash in "-/\u2013\u2014\u2015"
            }
    return any(_like(there, text, modifiers) for text in texts)


def _like(there: str, wanted: str, modifiers: list[str]) -> bool:
    pattern = ""
    at = 0
    while at < len(wanted):
        letter, behind = wanted[at], wanted[at + 1 : at + 2]
        if letter == "\\" and behind in ("*", "?", "\\") and behind:
            pattern += re.escape(behind)
            at += 1
        else:
            pattern += {"*": ".*", "?": "."}.get(letter) or re.escape(letter)
        at += 1
    if "contains" in modifiers or "endswith" in modifiers:
        pattern = ".*" + pattern
    if "contains" in modifiers or "startswith" in modifiers:
        pattern += ".*"
    if "cased" not in modifiers:
        pattern, there = pattern.lower(), there.lower()
    return re.fullmatch(pattern, there, re.S) is not None
