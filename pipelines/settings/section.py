"""Typed access to one table of deltatag.toml, with sizes, durations and environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.errors import ConfigurationError
from rules_index.names import did_you_mean

MOST_BYTES = (1 << 63) - 1
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?\Z", re.IGNORECASE)
_DURATION = re.compile(r"(\d+)\s*([A-Za-z]+)\Z")
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_MICROSECONDS = {
    1: ("us", "microsecond"),
    1_000: ("ms", "millisecond"),
    1_000_000: ("s", "sec", "second"),
    60_000_000: ("min", "minute"),
    3_600_000_000: ("h", "hour"),
    86_400_000_000: ("d", "day"),
}
_DURATION_UNITS = {name: size for size, names in _MICROSECONDS.items() for n in names for name in (n, n + "s")}

_MINUTE = 60_000_000

_LONGEST = 3_652_500 * 86_400_000_000
"""The longest duration in microseconds; its sum with any event time fits 64 bits."""
_MOST_DIGITS = 18


_OWNER = re.compile(r"team:\S.*|[A-Za-z0-9_][A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")
"""Matches what Dagster accepts as an asset's owner."""


def parse_size(text: str | int) -> int:
    """Bytes of a size such as 1048576, "512m" or "1g" (powers of 1,024); ValueError if it is invalid or zero."""
    if isinstance(text, int) and not isinstance(text, bool):
        size = text
    else:
        found = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
        if found is None:
            raise ValueError('expected a size such as "512m" or "1g"')
        size = int(found[1]) * _SIZE_UNITS[found[2].lower()]
    if not 0 < size <= MOST_BYTES:
        raise ValueError("expected a size above zero and below 8 EiB")
    return size


def parse_duration(text: str) -> int:
    """Microseconds of a duration such as "1 hour", "0 s" or "15min"; ValueError if it is invalid."""
    found = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    unit = _DURATION_UNITS.get(found[2] if found[2] in ("us", "ms") else found[2].lower()) if found else None
    if found is None or unit is None:
        raise ValueError('expected an integer and one of us, ms, s, min, hour, day, such as "15 min"')
    if len(found[1].lstrip("0")) > _MOST_DIGITS or int(found[1]) * unit > _LONGEST:
        raise ValueError("expected a duration of at most 3,652,500 days, which are 10,000 years")
    return int(found[1]) * unit


def duration_text(microseconds: int) -> str:
    """A duration in the largest unit that divides it, as the configuration has it: "1 hour", "90 min", "0 s"."""
    size = (
        next((each for each in reversed(_MICROSECONDS) if microseconds % each == 0), 1) if microseconds else 1_000_000
    )
    names, count = _MICROSECONDS[size], microseconds // size
    return f"{count} {names[-1] if size > _MINUTE else names[0]}{'s' if size > _MINUTE and count != 1 else ''}"


class Section:
    """One table of the document. Its methods check the type of a key, and raise ConfigurationError with its name."""

    def __init__(self, path: Path, name: str, values: Mapping[str, Any]) -> None:
        """path: of the file; name: the table's dotted name; both for messages."""
        self.path, self.name, self.values = path, name, values

    def error(self, key: str, message: str) -> ConfigurationError:
        """An error about a key, for the caller to raise."""
        where = f"[{self.name}] {key}" if self.name and key else self.name or key
        return ConfigurationError(f"{self.path}: {where}: {message}.")

    def table(self, key: str) -> Mapping[str, Any]:
        """A nested table; empty if it is missing."""
        value = self.values.get(key, {})
        if not isinstance(value, Mapping):
            raise self.error(key, "expected a table")
        return value

    def section(self, key: str) -> Section:
        """A nested table as a section."""
        return Section(self.path, f"{self.name}.{key}" if self.name else key, self.table(key))

    def text(self, key: str, default: str | None = None) -> str | None:
        """A text that is not empty, or the default if the key is missing."""
        value = self.values.get(key, default)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise self.error(key, "expected a text that is not empty")
        if value is not None and "\0" in value:
            raise self.error(key, "a text here cannot hold the character NUL")
        return value

    def duration(self, key: str) -> int:
        """A duration in microseconds; the key must be there."""
        try:
            return parse_duration(self.values[key])
        except ValueError as error:
            raise self.error(key, str(error)) from None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of names that are distinct, case aside; empty if it is missing."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.error(key, 'expected a list of names such as ["id"]')
        if len({item.lower() for item in value}) != len(value):
            raise self.error(key, "a name is in the list twice")
        return tuple(value)

    def owners(self) -> tuple[str, ...]:
        """The key `owners`: a list of e-mail addresses and of teams such as team:fraud."""
        found = self.texts("owners")
        for owner in found:
            if _OWNER.fullmatch(owner) is None:
                expected = "expected e-mail addresses and teams such as team:fraud"
                raise self.error("owners", f"{expected}, found {owner!r}")
        return found

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """One of some words; the first one if the key is missing."""
        value = self.values.get(key, choices[0])
        if value not in choices:
            raise self.error(key, f"expected one of {', '.join(choices)}, found {value!r}")
        return str(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"expected true or false, found {value!r}")
        return value

    def share(self, key: str) -> float:
        """A number from 0 to 1; 1 if the key is missing."""
        value = self.values.get(key, 1.0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise self.error(key, f"expected a number from 0 to 1, found {value!r}")
        return float(value)

    def expect(self, *known: str) -> None:
        """Raise ConfigurationError if there is an unknown key; it names the most similar known one."""
        for key in self.values:
            if key not in known:
                raise self.error(key, f"there is no such key{did_you_mean(key, known)} Known here: {', '.join(known)}")


def substituted(value: Any, path: Path, where: str = "") -> Any:
    """A value of the document with each `${NAME}` in its texts replaced by the environment variable; ConfigurationError
    if one is not set."""
    if isinstance(value, str):

        def environment(found: re.Match[str]) -> str:
            """The value of the variable; ConfigurationError if it is not set."""
            if found[1] not in os.environ:
                message = f"the environment variable {found[1]} is not set"
                raise ConfigurationError(f"{path}: {where}: {message}.")
            return os.environ[found[1]]

        return _VARIABLE.sub(environment, value)
    if isinstance(value, Mapping):
        return {key: substituted(item, path, f"{where}.{key}" if where else key) for key, item in value.items()}
    if isinstance(value, list):
        return [substituted(item, path, where) for item in value]
    return value


def flattened(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Settings of nested tables with dotted names, so that `spark.x.y = 1` means the same unquoted and quoted."""
    pairs: list[tuple[str, Any]] = []
    for key, value in table.items():
        pairs += flattened(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(prefix + key, value)]
    return pairs
