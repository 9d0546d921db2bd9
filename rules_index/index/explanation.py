"""What `CompiledRules.explain` returns, as its callers see it.

The package `explaining`, which makes it, is imported only when asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Explanation(Protocol):
    """What `explain` returns for a rule or a part of it (`explaining.tree.Explanation`); `str` of it is readable."""

    @property
    def text(self) -> str:
        """The part as its author wrote it."""

    @property
    def value(self) -> bool | str | None:
        """True, False, None for NULL, or "error"."""

    @property
    def values(self) -> Mapping[str, Any]:
        """The row's value of each column that this part reads."""

    @property
    def children(self) -> Sequence[Explanation]:
        """The parts that this one consists of."""

    @property
    def matched(self) -> bool:
        """Whether `value` is True: for a whole rule, whether the rule matches the row."""

    @property
    def near_miss(self) -> Sequence[Any] | None:
        """The smallest change of one or two columns with which the rule would match; None if there is none."""

    def as_dict(self) -> dict[str, Any]:
        """text, value, values and children."""
