"""Asks Spark whether it understands the parts of rules that only Spark can evaluate; no row is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import pyarrow as pa

from pipelines.error_texts import spark_message
from pipelines.errors import SparkNotStartedError
from pipelines.lake.column_types import arrow_schema_of, spark_name
from pipelines.rule_set import NEEDS_SPARK
from pipelines.runners.choice import why_spark_rules_are_refused
from pipelines.spark.session import know_internals
from rules_index.errors import RuleError, unforeseen
from rules_index.language.typed import Leaf, authors_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from pipelines.scopes import Scope

_T = TypeVar("_T")
Analyse: TypeAlias = Callable[[Sequence[Leaf]], list[RuleError | None]]
"""Returns None, or the error, for each derived leaf."""
_AT_ONCE = 64
"""Maximum number of leaves that are analysed in one query."""
_UPGRADE = "You may get a different result due to the upgrading to Spark >= 3.0: "
_ABOUT_PATTERN = re.compile(r"DateTimeFormatter|datetime pattern|week-based")
_PATTERNS = " In such a pattern yyyy is the year, MM the month, dd the day, and HH:mm:ss the time."
_CLOCK = "NOT_REPEATABLE"
_MOVING = ("now", "today", "tomorrow", "yesterday")
"""Texts that Spark casts to another time on each run; "epoch" is always the same time."""


def analyser_of(scope: Scope) -> Analyse:
    """What decides whether the derived leaves of a scope's rules are accepted: Spark, or nobody if Spark is ruled out.

    If it were not the rule that is refused, one rule would stop the compiling and tagging of its scope.
    """

    def analyse(leaves: Sequence[Leaf]) -> list[RuleError | None]:
        """None, or the error, for each leaf, in their order."""
        reason = why_spark_rules_are_refused(scope.workspace, scope.name)
        if reason is None:
            try:
                return spark_analyser(scope)(leaves)
            except SparkNotStartedError as error:
                reason = why_spark_rules_are_refused(scope.workspace, scope.name, error)
                if reason is None:
                    raise
        return [RuleError(NEEDS_SPARK, f"Only Spark evaluates {authors_text(leaf)}, {reason}") for leaf in leaves]

    return analyse


def spark_analyser(scope: Scope) -> Analyse:
    """Returns a function that checks derived leaves over the scope's columns: for each, None or Spark's error.

    Spark is started only when the function is called, so rules without derived leaves need no JVM.
    """

    def analyse(leaves: Sequence[Leaf]) -> list[RuleError | None]:
        """None, or Spark's error, for each leaf, in their order."""
        answers: dict[Leaf, RuleError | None] = {}
        with scope.workspace.active_session() as spark:
            know_internals(spark)
            analyser = _Analyser(spark, scope.no_rows())
            for start in range(0, len(leaves), _AT_ONCE):
                answers |= analyser.analyse(list(leaves[start : start + _AT_ONCE]))
        return [answers[leaf] for leaf in leaves]

    return analyse


class _Analyser:
    """Analyses leaves over a DataFrame without rows.

    Each text is put into a struct as it is, to get its own type: the guard that the jobs put around it would cast it.
    """

    def __init__(self, spark: SparkSession, rows: DataFrame) -> None:
        from pipelines.spark.catalyst import with_no_partition

        self._spark, self._rows = spark, with_no_partition(spark, rows)

    def analyse(self, leaves: list[Leaf]) -> dict[Leaf, RuleError | None]:
        """Maps leaves to Spark's error or None: texts are parsed one by one, then all types are resolved together."""
        refused: dict[Leaf, RuleError | None] = {}
        columns: list[tuple[Leaf, Column]] = []
        for leaf in leaves:
            try:
                column = self._column(leaf.text or "")
                if isinstance(column, RuleError):
                    refused[leaf] = column
                else:
                    columns.append((leaf, column))
            except MemoryError:
                raise
            except Exception as error:  # no error of one rule may stop the others from being compiled
                refused[leaf] = self._unforeseen(error)
        return refused | (self._of_columns(columns) if columns else {})

    def _of_columns(self, asked: list[tuple[Leaf, Column]]) -> dict[Leaf, RuleError | None]:
        """Resolve the types of many leaves in one query; if it fails, bisect down to the leaf at fault."""
        try:
            answer = self._types([column for _, column in asked])
            if not isinstance(answer, RuleError) and self._reads_clock(asked):
                answer = RuleError(
                    _CLOCK,
                    "Spark reads a text such as 'today' or 'now' here as another moment on each run; write the date "
                    "itself.",
                )
            if not isinstance(answer, RuleError):
                return {leaf: _type_differs(leaf, found) for (leaf, _), found in zip(asked, answer, strict=True)}
            if len(asked) == 1:
                reason = answer if answer.error == _CLOCK else self._no_condition(asked[0][0]) or answer
                return {asked[0][0]: reason}
        except MemoryError:
            raise
        except Exception as error:
            reason = self._unforeseen(error)
            if len(asked) == 1:
                return {asked[0][0]: reason}
        middle = len(asked) // 2
        return self._of_columns(asked[:middle]) | self._of_columns(asked[middle:])

    def _unforeseen(self, error: Exception) -> RuleError:
        """Returns an unexpected error as a reject of the rule; raises it if Spark's JVM has ended.

        The end of the JVM is not the rule's fault.
        """
        from pipelines.spark.jvm import is_alive

        if not is_alive(self._spark):
            raise error
        return unforeseen(error)

    def _column(self, text: str) -> Column | RuleError:
        """The text as a column, or Spark's error."""
        from pipelines.spark.catalyst import column_in_struct

        return _refusal(lambda: column_in_struct(self._spark, text))

    def _types(self, columns: Sequence[Column]) -> list[DataType] | RuleError:
        """The types that Spark gives to columns, or its error for one of them.

        The plan is optimised too, and code is generated for it: Spark then looks at constants, and an error there would
        fail the whole job.
        """
        from pipelines.spark.catalyst import generate_code

        def ask() -> StructType:
            """The schema of a query with these columns."""
            asked = self._selected(columns)
            schema = asked.schema
            generate_code(self._spark, asked)
            return schema

        schema = _refusal(ask)
        if isinstance(schema, RuleError):
            return schema
        return [cast("StructType", field.dataType)["value"].dataType for field in schema.fields]

    def _reads_clock(self, asked: list[tuple[Leaf, Column]]) -> bool:
        """Whether a column casts a string that depends on the clock, such as 'now'; 'epoch' alone does not."""
        from pipelines.spark.catalyst import reads_clock

        if not reads_clock(self._spark, self._selected([column for _, column in asked])):
            return False
        text = (asked[0][0].text or "").lower()
        return len(asked) > 1 or "epoch" not in text or any(word in text for word in _MOVING)

    def _selected(self, columns: Sequence[Column]) -> DataFrame:
        return self._rows.select(*(column.alias(str(i)) for i, column in enumerate(columns)))

    def _no_condition(self, leaf: Leaf) -> RuleError | None:
        """A NOT_BOOLEAN error if Spark refused the leaf because it, or an operand of its AND or OR, is no condition.

        None if Spark refused it for another reason.
        """
        from pipelines.spark.catalyst import operands_in_structs

        text = authors_text(leaf)
        if text != leaf.text:
            column = self._column(text)
            columns: RuleError | list[Column] = column if isinstance(column, RuleError) else [column]
        else:
            columns = _refusal(lambda: operands_in_structs(self._spark, text))
        types = columns if isinstance(columns, RuleError) else self._types(columns)
        if isinstance(types, RuleError):
            return None
        names = [each.simpleString().upper() for each in types]
        found = next((name for name in names if name not in ("BOOLEAN", "VOID")), None)
        if found is None:
            return None
        return RuleError("NOT_BOOLEAN", f"A condition is needed here, and Spark says that this is {found}.")


def _refusal(action: Callable[[], _T]) -> _T | RuleError:
    """The result of an action, or the error with which Spark refused it, as a RuleError."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from pipelines.spark.delta_internals import java_message

    try:
        return action()
    except RuleError as error:
        return error
    except PySparkException as error:
        return _refused(spark_message(error))
    except Py4JJavaError as error:
        return _refused(java_message(error))


def _refused(message: str) -> RuleError:
    """The error with what Spark says, and how patterns of dates are written if it is about one."""
    message = message.removeprefix(_UPGRADE)
    return RuleError("ANALYSIS", message + _PATTERNS if _ABOUT_PATTERN.search(message) else message)


def _type_differs(leaf: Leaf, found: DataType) -> RuleError | None:
    """The error of a leaf if Spark gives it another type, `found`, than the compiler expects; None if they agree."""
    from pyspark.sql.types import StructField, StructType

    name = found.simpleString().upper()
    if pa.types.is_boolean(leaf.type):
        message = f"A rule must be a condition, and Spark says that this is {name}."
        return None if name == "BOOLEAN" else RuleError("NOT_BOOLEAN", message)
    if arrow_schema_of(StructType([StructField("value", found)]).jsonValue()["fields"]).field(0).type == leaf.type:
        return None
    return RuleError("ANALYSIS", f"Spark gives {name} for {leaf.text}, where the rules expect {spark_name(leaf.type)}.")
