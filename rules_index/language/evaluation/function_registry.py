"""The functions of Spark SQL that are evaluated here, one entry each; Spark evaluates the others.

An entry says for which argument types its function is evaluated exactly as in Spark, and computes its values from
columns. A value is NULL where evaluation raises and, for a strict function, where an argument is NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rules_index.language.coercion import STRING
from rules_index.language.evaluation import datetime_parser
from rules_index.language.evaluation.constant_values import constant_of, constant_scalar
from rules_index.language.evaluation.date_format import FORMATTED_TIMES
from rules_index.language.evaluation.datetime_arithmetic import CALENDAR
from rules_index.language.evaluation.datetime_functions import DATES
from rules_index.language.evaluation.hashes import HASHES
from rules_index.language.evaluation.malformed_texts import Texts, with_private_use
from rules_index.language.evaluation.nested import NESTED
from rules_index.language.evaluation.numbers import NUMBERS
from rules_index.language.evaluation.parsed_times import PARSED_TIMES
from rules_index.language.evaluation.regular_expressions import REGULAR_EXPRESSIONS
from rules_index.language.evaluation.scalar import Columns, Result, ScalarFunction
from rules_index.language.evaluation.string_functions import TEXTS
from rules_index.language.evaluation.text_measures import MEASURES
from rules_index.language.evaluation.timestamp_casts import SPELLED_TIMES
from rules_index.language.patterns.strings import decodable
from rules_index.language.typed import Constant, Expression, Operation

FUNCTIONS: dict[str, ScalarFunction] = {
    **DATES,
    **CALENDAR,
    **SPELLED_TIMES,
    **FORMATTED_TIMES,
    **PARSED_TIMES,
    **TEXTS,
    **NUMBERS,
    **HASHES,
    **MEASURES,
    **NESTED,
    **REGULAR_EXPRESSIONS,
}


def build(
    name: str, arguments: Sequence[Expression | None], result: pa.DataType | None, zone: str
) -> Expression | None:
    """The call as an operation or, if all arguments are constants, its value or an operation that raises on every row.
    None if only Spark can evaluate it, or if an argument is None."""
    function = FUNCTIONS.get(name)
    known = [each for each in arguments if each is not None]
    if function is None or result is None or len(known) < len(arguments):
        return None
    if not known or not function.accepts([each.type for each in known]):
        return None
    fixed = [known[place] for place in function.constants if place < len(known)]
    values = [each.value for each in fixed if isinstance(each, Constant) and each.value is not None]
    if len(values) < len(fixed) or (function.fits is not None and not function.fits(values)):
        return None
    found = Operation("call", tuple(known), result, (name, zone))
    return _value(found) if all(isinstance(each, Constant) for each in known) else found


_LONGEST_TEXTS = 1_000
"""The greatest length in characters of the constant texts of a call that is evaluated while a rule is compiled:
`levenshtein` takes time quadratic in it."""


def _value(operation: Operation) -> Constant | Operation | None:
    """The value of a call of constants, or an operation that raises. None if it may read a text as a moment of the
    current day, or is left to Spark because its texts are long."""
    columns = [pa.repeat(constant_scalar(each), 1) for each in operation.operands if isinstance(each, Constant)]
    texts = [column[0].as_py() for column in columns if column.type == STRING and not column.null_count]
    if sum(map(len, texts)) > _LONGEST_TEXTS:
        return None
    if any(datetime_parser.names_moment(text) or datetime_parser.is_time_of_day(text) for text in texts):
        return None
    values, failed = call(operation, columns)
    if failed is not None and failed.any():
        return Operation("raise", operation.operands[:1], operation.type)
    return constant_of(values)


def raises(operation: Operation) -> bool:
    """Whether a call can raise."""
    return FUNCTIONS[operation.parameters[0]].raises


def is_strict(operation: Operation) -> bool:
    """Whether a call is NULL where one of its arguments is NULL."""
    return FUNCTIONS[operation.parameters[0]].strict


def is_eager(operation: Operation) -> bool:
    """Whether Spark evaluates all arguments of a call, even those behind a NULL."""
    return FUNCTIONS[operation.parameters[0]].eager


def call(operation: Operation, columns: Columns) -> Result:
    """The values of a call, cast to its type."""
    name, zone = operation.parameters
    if not len(columns[0]):
        return pa.nulls(0, operation.type), None
    function = FUNCTIONS[name]
    restore = None
    if function.texts is Texts.DECODED:
        columns = [each if place in function.constants else decodable(each) for place, each in enumerate(columns)]
    elif function.texts is Texts.CHARACTERS:
        columns, restore = with_private_use(columns)
    values, failed = function.evaluate(columns, zone)
    values = values if restore is None else restore(values)
    return (values if values.type == operation.type else values.cast(operation.type)), failed
