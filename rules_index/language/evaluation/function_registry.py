"""The functions of Spark SQL that are evaluated here, one entry each; Spark evaluates the others.

An entry says for which argument types its function is evaluated exactly as in Spark, and computes its values from
columns. A value is NULL where evaluation raises and, for a strict function, where an argument is NULL.
"""

from __future__ import annotations

import pyarrow as pa

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
from rules_index.language.evaluation.url_texts import URL_TEXTS
from rules_index.language.patterns.strings import decodable
from rules_index.language.typed import Operation

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
    **URL_TEXTS,
}


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
