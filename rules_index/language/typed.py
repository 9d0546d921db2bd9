"""Typed expressions that are evaluated per row, before the index encodes their values.

They are the attributes of an index: a plain column, a computation that Arrow and NumPy do exactly as Spark does, or a
leaf that only Spark can evaluate, which arrives as a column.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rules_index.domains.value_lists import ValueList

OPERAND = "({}) AND TRUE"
"""The form of a derived leaf's text where a condition is needed and only Spark knows the type of what the author wrote.

Spark casts a STRING or a NULL there to BOOLEAN, and refuses any other type.
"""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that arrives with the batch.

    `name` is the column's path in the schema's own spelling, with parts joined by ".". A part that contains a dot or a
    backtick is quoted with backticks. The first part of a field's path is also quoted if the unquoted path would name a
    column. If `text` is set, the leaf is a derived column called `name`, which Spark evaluates from `text`, the
    author's own words.
    """

    name: str
    type: pa.DataType
    text: str | None = None


def authors_text(leaf: Leaf) -> str:
    """The text of a derived leaf as it is in the rule, without the OPERAND around it."""
    before, after = OPERAND.split("{}")
    text = leaf.text or ""
    return text[len(before) : -len(after)] if text.startswith(before) and text.endswith(after) else text


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal after coercion. `value` is None (NULL), bool, int (integers; days for DATE; microseconds
    for TIMESTAMP and TIMESTAMP_NTZ; the unscaled value for DECIMAL), float, str or bytes."""

    value: Any
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Operation:
    """One operator over operands whose types already agree (the analyser inserts the casts).

    | name | operands | parameters |
    |---|---|---|
    | add subtract negate abs | numbers of one type | |
    | multiply | two numbers of one type, or two DECIMALs | |
    | divide | two DOUBLEs, or two DECIMALs | |
    | quotient | two BIGINTs | |
    | remainder positive_remainder | two numbers of one type, or two DECIMALs of one scale | |
    | try_add try_subtract try_multiply try_divide try_remainder | like add and so on, but NULL where these raise | |
    | cast try_cast | one | |
    | raise | one: the constant whose cast raises on every row | |
    | = <> < <= > >= <=> | two of one type | |
    | and or | two or more BOOLEAN | |
    | not | one BOOLEAN | |
    | is_null | one | |
    | in | value, then the list, all of one type | |
    | case | condition, value, condition, value, ..., else | |
    | coalesce greatest least | one or more of one type | |
    | like | one STRING | pattern, escape, ignore_case |
    | concat_ws | one or more STRINGs | separator |
    | rlike | one STRING | pattern |
    | in_list | one of the list's type | the `ValueList` |
    | exists forall filter | one array | the condition, over leaves that are an item or its fields |
    | call | those of a function (evaluation.function_registry) | its name, time zone |

    `size` is the number of nodes; a part that occurs twice counts twice. `depth` is the number of levels.
    """

    name: str
    operands: tuple[Expression, ...]
    type: pa.DataType
    parameters: tuple[Any, ...] = ()
    size: int = field(init=False, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        inner = [operand for operand in self.operands if isinstance(operand, Operation)]
        nodes = 1 + len(self.operands) - len(inner) + sum(operand.size for operand in inner)
        object.__setattr__(self, "size", nodes)
        object.__setattr__(self, "depth", 1 + max((operand.depth for operand in inner), default=1))


Expression = Leaf | Constant | Operation


def leaves_of(attribute: Expression) -> Iterable[Leaf]:
    """The leaves of an attribute's expression: the columns that must arrive with a batch."""
    if isinstance(attribute, Leaf):
        yield attribute
    elif isinstance(attribute, Operation):
        for operand in attribute.operands:
            yield from leaves_of(operand)


def operations_of(attribute: Expression) -> Iterable[Operation]:
    """The operations of an attribute's expression, each before those within its operands."""
    if isinstance(attribute, Operation):
        yield attribute
        for operand in attribute.operands:
            yield from operations_of(operand)


def outcomes_of(case: Operation) -> tuple[Expression, ...]:
    """The values that a CASE chooses from; the last one is that of ELSE."""
    return (*case.operands[1::2], case.operands[-1])


def may_be_constant(expression: Expression | None) -> bool:
    """Whether Spark may replace an expression by a constant before it reads a row: it evaluates calls of constants, and
    simplifies CASE with a constant condition or equal values, and COALESCE that begins with a constant. What raises on
    every row stays as it is."""
    if not isinstance(expression, Operation) or expression.name == "raise":
        return isinstance(expression, Constant)
    operands = expression.operands
    if expression.name == "case":
        conditions, values = operands[:-1:2], outcomes_of(expression)
        if any(map(may_be_constant, conditions)):
            return any(map(may_be_constant, values))
        return all(map(may_be_constant, values)) and len({each for each in values if isinstance(each, Constant)}) < 2
    if expression.name == "coalesce":
        return may_be_constant(next((each for each in operands if each != Constant(None, each.type)), operands[-1]))
    return all(map(may_be_constant, operands))


def has_null(values: Iterable[Expression | None]) -> bool:
    """Whether one of the values is the constant NULL."""
    return any(isinstance(each, Constant) and each.value is None for each in values)


def lists_of(attribute: Expression) -> Iterable[ValueList]:
    """The value lists that an attribute's expression names."""
    return (each.parameters[0] for each in operations_of(attribute) if each.name == "in_list")
