"""What Spark itself answers to Boolean expressions on given rows, and how an index's answers differ from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.classic.column import Column as ClassicColumn

import rules_index as ri
from pipelines.spark.active_session import active
from pipelines.spark.catalyst import derived_column
from pipelines.spark.java_names import java

FALSE, TRUE, NULL, RAISED = range(4)
REFUSALS = (PySparkException, Py4JJavaError, ri.RuleError)
AT_ONCE = 60
"""Expressions in one query: more would leave Spark's code generation behind."""
_CONNECTIVE = re.compile(r"\b(and|or)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Difference:
    """One rule on which an index and Spark disagree; `row` is None where one of the two refuses the rule."""

    text: str
    kind: str
    spark: str
    index: str
    row: dict[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}\n    Spark: {self.spark}\n    index: {self.index}\n    row: {self.row}"


@dataclass
class Tally:
    """What was compared."""

    compared: int = 0
    refused_by_both: int = 0
    too_costly: int = 0
    with_errors: int = 0
    raised_rows: int = 0
    matches: int = 0
    differences: list[Difference] = field(default_factory=list)

    def is_refused(self, text: str, truth: Any, refused: str | None) -> bool:
        """Whether Spark (`truth` is its message) or we refuse an expression; a difference if only one does, unless we
        do for what it may cost."""
        if refused and refused.startswith("TOO_COSTLY"):
            self.too_costly += 1
        elif isinstance(truth, str) and refused:
            self.refused_by_both += 1
        elif isinstance(truth, str) or refused:
            spark = truth if isinstance(truth, str) else "accepts it"
            self.differences.append(Difference(text, "refused", spark, refused or "accepts it"))
        return isinstance(truth, str) or bool(refused)

    def __str__(self) -> str:
        return (
            f"{self.compared} expressions compared, {len(self.differences)} differences; {self.matches} matches; "
            f"{self.with_errors} expressions raised, on {self.raised_rows} rows; "
            f"{self.refused_by_both} refused by both, {self.too_costly} refused for their cost"
        )


def whole(spark: SparkSession, text: str) -> Column:
    """The expression's truth code as `WHERE` sees it; NULL on rows where it raises."""
    coded = f"named_struct('code', coalesce(CAST(((\n{text}\n) AND TRUE) AS TINYINT), {NULL}Y))"
    with active(spark):
        parsed = spark._jsparkSession.sessionState().sqlParser().parseExpression(coded)
        tried = java(spark._jvm, "org.apache.spark.sql.catalyst.expressions.TryEval")(parsed)
        column = ClassicColumn(java(spark._jvm, "org.apache.spark.sql.classic.ExpressionUtils.column")(tried))
    # Outside of a condition Spark would evaluate ahead what is constant or occurs twice, and fail where that raises.
    # Under one that repeats, it would take `a OR b` and `b OR a` of two columns for one, though only one may raise.
    return functions.when(functions.spark_partition_id() >= 0, column).getField("code")


class Oracle:
    """Spark's answers over one table with a key `pk`."""

    def __init__(self, spark: SparkSession, rows: DataFrame) -> None:
        self.spark = spark
        self.rows = rows

    def truths(self, texts: Sequence[str]) -> list[np.ndarray | str]:
        """For each expression its truth code per row, or Spark's reason to refuse it."""
        answers = self._ask(texts, lambda text: whole(self.spark, text), _truth_codes)
        for place, answer in enumerate(answers):
            # Spark may know from the text that a condition is NULL, and then makes all around it NULL as well
            if isinstance(answer, np.ndarray) and (answer == RAISED).all() and self._keeps_no_row(texts[place]):
                answers[place] = np.full(len(answer), NULL, answer.dtype)
        return answers

    def _keeps_no_row(self, text: str) -> bool:
        """True where WHERE keeps none and raises nothing."""
        try:
            with active(self.spark):
                return not self.rows.where(f"(\n{text}\n) AND TRUE").take(1)
        except REFUSALS:
            return False

    def derived(self, leaves: Sequence[Any]) -> list[pa.Array | str]:
        """For each derived leaf its column as the jobs would hand it to an index, or Spark's reason to refuse it."""
        return self._ask(leaves, lambda leaf: derived_column(self.spark, leaf.text, leaf.type), lambda column: column)

    def _ask(self, items: Sequence[Any], column: Callable[[Any], Column], read: Callable[[pa.Array], Any]) -> list[Any]:
        answers: list[Any] = []
        with active(self.spark):
            for start in range(0, len(items), AT_ONCE):
                made = [self._made(column, item) for item in items[start : start + AT_ONCE]]
                sound = self._ask_some([each for each in made if not isinstance(each, str)], read)
                answers += [each if isinstance(each, str) else next(sound) for each in made]
        return answers

    def _made(self, column: Callable[[Any], Column], item: Any) -> Column | str:
        """The item's column, or Spark's reason to refuse its text: analysed alone, so that only an error of a row
        costs a search for the column at fault."""
        try:
            made = column(item)
            self.rows.select(made)
            return made
        except REFUSALS as error:
            return _reason(error)

    def _ask_some(self, columns: Sequence[Column], read: Callable[[pa.Array], Any]) -> Iterator[Any]:
        """One query; where Spark refuses it, one for each half, down to the one at fault."""
        if not columns:
            return
        try:
            named = [column.alias(f"c{number}") for number, column in enumerate(columns)]
            # unlike toArrow() this takes a struct for what it is, NULL or not
            table = pa.Table.from_batches(self.rows.select("pk", *named)._collect_as_arrow()).sort_by("pk")
            yield from [read(table.column(f"c{number}").combine_chunks()) for number in range(len(columns))]
            return
        except REFUSALS as error:
            if len(columns) == 1:
                yield _reason(error)
                return
        middle = len(columns) // 2
        yield from self._ask_some(columns[:middle], read)
        yield from self._ask_some(columns[middle:], read)


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _truth_codes(column: pa.Array) -> np.ndarray:
    return column.fill_null(RAISED).to_numpy(zero_copy_only=False)


def compare(
    oracle: Oracle,
    table: pa.Table,
    texts: Sequence[str],
    tally: Tally,
    engine: str = "auto",
    time_zone: str = "UTC",
) -> None:
    """Compiles the expressions as one rule set, matches the rows in one pass, and adds to `tally` what differs."""
    schema = pa.schema([each for each in table.schema if each.name != "pk"])
    refusals: dict[Any, str] = {}
    columns: dict[str, pa.Array] = {}

    def analyse(leaves: Sequence[Any]) -> list[str | None]:
        for leaf, answer in zip(leaves, oracle.derived(leaves), strict=True):
            if isinstance(answer, str):
                refusals[leaf] = answer
            else:
                columns[leaf.name] = answer
        return [refusals.get(leaf) for leaf in leaves]

    compiled = ri.compile_rules(list(enumerate(texts)), schema, engine=engine, time_zone=time_zone, analyse=analyse)
    batch = table
    for leaf in compiled.derived:
        batch = batch.append_column(leaf.name, columns[leaf.name])
    matched = np.zeros((len(texts), table.num_rows), bool)
    for row, numbers in enumerate(compiled.match(batch).to_pylist()):
        matched[numbers, row] = True
    raised = raised_rows(compiled, batch, len(texts))
    rejects = {reject["rule_id"]: f"{reject['error']} {reject['message']}" for reject in compiled.rejects.to_pylist()}
    for number, (text, truth) in enumerate(zip(texts, oracle.truths(texts), strict=True)):
        refused = rejects.get(number)
        if tally.is_refused(text, truth, refused):
            continue
        tally.compared += 1
        tally.matches += int((truth == TRUE).sum())
        tally.raised_rows += int((truth == RAISED).sum())
        tally.with_errors += bool((truth == RAISED).any())
        wrong = (truth != RAISED) & (matched[number] != (truth == TRUE))
        uncounted = (truth == RAISED) & ~raised[number]
        # of two operands of AND or OR, Spark may meet the one that raises before the one that decides
        unforeseen = (truth == RAISED) & matched[number] & (_CONNECTIVE.search(text) is None)
        counted = compiled.errors.get(number, 0)
        for kind, rows in (("answer", wrong), ("error not counted", uncounted), ("matched", unforeseen)):
            if rows.any():
                row = int(np.flatnonzero(rows)[0])
                index = f"matched {matched[number, row]}, raised {raised[number, row]}, {counted} errors counted"
                spark = f"{('FALSE', 'TRUE', 'NULL', 'raised')[truth[row]]} ({rows.sum()} rows differ)"
                tally.differences.append(Difference(text, kind, spark, index, _named(text, table, row)))
        assert counted == raised[number].sum()


def raised_rows(compiled: ri.CompiledRules, batch: pa.Table, rules: int) -> np.ndarray:
    """[rules, rows] bool: where the index counts an error of the rule; `errors` holds only their numbers."""
    _, by_attribute = compiled.codes(batch)
    starts, used = compiled.raising
    raised = np.zeros((rules, batch.num_rows), bool)
    for ordinal, number in enumerate(compiled.ids.to_pylist()):
        for attribute in used[starts[ordinal] : starts[ordinal + 1]].tolist():
            if attribute in by_attribute:
                raised[number] |= by_attribute[attribute]
    return raised


def _named(text: str, table: pa.Table, row: int) -> dict[str, Any]:
    words = set("".join(letter if letter.isalnum() else " " for letter in text).split())
    return {name: table.column(name)[row].as_py() for name in table.column_names if name in words}
