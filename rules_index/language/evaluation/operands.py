"""The operands of an operation one by one, for expressions whose values together take too much memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.typed import Expression, Operation

ONE_BY_ONE = frozenset({"and", "or", "case", "coalesce", "greatest", "in", "least"})
"""Operations that can be evaluated with the values of one or two operands at a time, however many they have."""


class Operands(Sequence[Evaluated]):
    """The operands of an operation, each evaluated whenever it is asked for."""

    def __init__(self, operation: Operation, evaluated: Callable[[Expression], Evaluated]) -> None:
        self._expressions = operation.operands
        self._evaluated = evaluated

    def __len__(self) -> int:
        return len(self._expressions)

    @overload
    def __getitem__(self, position: int) -> Evaluated: ...
    @overload
    def __getitem__(self, position: slice) -> list[Evaluated]: ...
    def __getitem__(self, position: int | slice) -> Evaluated | list[Evaluated]:
        if isinstance(position, slice):
            return [self._evaluated(each) for each in self._expressions[position]]
        return self._evaluated(self._expressions[position])


def after_first(operands: Sequence[Evaluated]) -> Iterator[Evaluated]:
    """The operands but the first, each evaluated when its turn comes."""
    return (operands[position] for position in range(1, len(operands)))


def repeated_parts(expression: Expression) -> set[Expression]:
    """The operations that occur in an expression more than once; of those within such a part, the part counts once."""
    seen: set[Expression] = set()
    repeated: set[Expression] = set()
    waiting = [expression]
    while waiting:
        for part in getattr(waiting.pop(), "operands", ()):
            if part in seen:
                repeated.add(part)
            elif isinstance(part, Operation):
                seen.add(part)
                waiting.append(part)
    return repeated
