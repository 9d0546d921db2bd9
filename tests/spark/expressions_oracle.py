"""What Spark says of a rule on each row, and what the rule's formula says: the two must agree."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.column import Column

from pipelines.spark.active_session import active
from rules_index.domains.values import float_key
from rules_index.errors import RuleError
from rules_index.language.compiler import Compiler
from rules_index.language.evaluation.evaluate import evaluate
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.formula import And, Fixed, Formula, Not, Or, Predicate, Truth
from rules_index.language.scope import Scope
from rules_index.language.typed import Expression, Leaf, Operation

RAISED = 3
_WIDE = Context(prec=60)


def session(spark: SparkSession, time_zone: str) -> SparkSession:
    """A session of its own for a test's settings."""
    found = spark.newSession()
    found.conf.set("spark.sql.session.timeZone", time_zone)
    found.conf.set("spark.sql.ansi.enabled", "true")
    return found


def try_eval(spark: SparkSession, text: str) -> Column:
    """The expression's value in a one-field struct, which is NULL where evaluating it raised.

    It stands in a branch of an `if` that Spark cannot decide while it plans: else Spark would compute constants,
    and what occurs twice, outside of what catches the error.
    """
    jvm = spark._jvm
    assert jvm is not None
    parse = spark._jsparkSession.sessionState().sqlParser().parseExpression
    caught = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(parse(f"named_struct('v', ({text}))"))
    choice = parse("if(spark_partition_id() >= 0, 0, null)")
    condition, never = choice.children().head(), choice.children().last()
    branches = jvm.org.apache.spark.api.python.PythonUtils.toSeq([condition, caught, never])
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(choice.withNewChildren(branches)))


def load(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows of a small Arrow table, in order, in one partition."""
    path = os.path.join(tempfile.mkdtemp(), "rows.parquet")
    pq.write_table(table, path, coerce_timestamps=None, version="2.6")
    return spark.read.option("spark.sql.parquet.int96RebaseModeInRead", "CORRECTED").parquet(path)


def collect(
    spark: SparkSession, frame: DataFrame, texts: Sequence[str], size: int = 100
) -> list[tuple[pa.Array, list[bool]]]:
    """Each expression's values and on which rows it raised; a chunk of expressions at a time."""
    found: list[tuple[pa.Array, list[bool]]] = []
    for start in range(0, len(texts), size):
        columns = [try_eval(spark, text) for text in texts[start : start + size]]
        values = [column.getField("v").alias(f"v{i}") for i, column in enumerate(columns)]
        raised = [column.isNull().alias(f"r{i}") for i, column in enumerate(columns)]
        table = frame.select(*values, *raised).toArrow()
        found += [
            (table.column(f"v{i}").combine_chunks(), table.column(f"r{i}").to_pylist()) for i in range(len(columns))
        ]
    return found


def leaves(expression: Expression) -> Iterator[Leaf]:
    """Every leaf of a tree."""
    if isinstance(expression, Leaf):
        yield expression
    elif isinstance(expression, Operation):
        for operand in expression.operands:
            yield from leaves(operand)


def predicates(formula: Formula) -> Iterator[Predicate]:
    """Every predicate of a formula."""
    if isinstance(formula, Predicate):
        yield formula
    elif isinstance(formula, Not):
        yield from predicates(formula.operand)
    elif isinstance(formula, And | Or):
        for operand in formula.operands:
            yield from predicates(operand)


def keys(values: pa.Array) -> list[Any]:
    """The key of every value, None for NULL."""
    kind = values.type
    if pa.types.is_floating(kind):
        return [None if v is None else float_key(v) for v in values.to_pylist()]
    if pa.types.is_string(kind):
        return [None if v is None else v.encode() for v in values.to_pylist()]
    if pa.types.is_decimal(kind):
        return [None if v is None else int(Decimal(v).scaleb(kind.scale, _WIDE)) for v in values.to_pylist()]
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).to_pylist()
    if pa.types.is_timestamp(kind):
        return values.cast(pa.int64()).to_pylist()
    if pa.types.is_boolean(kind):
        return [None if v is None else int(v) for v in values.to_pylist()]
    return values.to_pylist()


def truth(formula: Formula, answers: Mapping[int, Sequence[Truth]], row: int) -> Truth:
    """The formula's truth value on one row, from those of its predicates (by identity)."""
    if isinstance(formula, Predicate):
        return answers[id(formula)][row]
    if isinstance(formula, Fixed):
        return formula.truth
    if isinstance(formula, Not):
        inner = truth(formula.operand, answers, row)
        return inner if inner == Truth.NULL else Truth(1 - inner)
    found = [truth(operand, answers, row) for operand in formula.operands]
    decisive = Truth.FALSE if isinstance(formula, And) else Truth.TRUE
    if decisive in found:
        return decisive
    return Truth.NULL if Truth.NULL in found else Truth(1 - decisive)


@dataclass
class Outcome:
    """One rule: what Spark said on each row (0, 1, 2 NULL, 3 raised) and what the formula says."""

    text: str
    formula: Formula | None
    error: RuleError | None
    spark: list[int]
    spark_error: str | None
    ours: list[int]
    raised: list[bool]

    def differences(self) -> list[int]:
        """Rows on which neither raises and the two disagree.

        A part that raises is unknown on its row also where Spark's planner sees that it need not evaluate it.
        """
        answers = zip(self.spark, self.ours, self.raised, strict=True)
        return [i for i, (spark, ours, raised) in enumerate(answers) if spark not in (RAISED, ours) and not raised]


def compiled(table: pa.Table, texts: Sequence[str], time_zone: str = "UTC") -> list[str]:
    """The texts that compile."""
    compiler = Compiler(Scope(table.schema, time_zone))
    found = []
    for text in texts:
        with contextlib.suppress(RuleError):
            compiler.compile(text)
            found.append(text)
    return found


def is_derived(outcome: Outcome) -> bool:
    """Whether Spark evaluates a part of the rule."""
    found = predicates(outcome.formula) if outcome.formula is not None else ()
    return any(leaf.text is not None for predicate in found for leaf in leaves(predicate.attribute))


def compare(
    spark: SparkSession, table: pa.Table, texts: Sequence[str], time_zone: str = "UTC", strict: bool = True
) -> list[Outcome]:
    """Evaluate every rule both ways over the rows of `table`.

    A part to which Spark gives another type than the formula is an error or, if not `strict`, refuses the rule as
    compiling for a table does.
    """
    spark = session(spark, time_zone)
    with active(spark):
        return _compare(spark, table, texts, time_zone, strict)


def _compare(spark: SparkSession, table: pa.Table, texts: Sequence[str], time_zone: str, strict: bool) -> list[Outcome]:
    frame = load(spark, table)
    frame.cache()
    compiler = Compiler(Scope(table.schema, time_zone))
    outcomes = [_compile(spark, compiler, frame, text) for text in texts]
    valid = [outcome for outcome in outcomes if outcome.spark_error is None and outcome.error is None]
    for outcome, (values, raised) in zip(valid, collect(spark, frame, [o.text + "\n" for o in valid]), strict=True):
        outcome.spark = [
            RAISED if failed else int(Truth.NULL) if value is None else int(value)
            for failed, value in zip(raised, values.to_pylist(), strict=True)
        ]
    parts = [predicate for outcome in valid if outcome.formula for predicate in predicates(outcome.formula)]
    derived = {leaf.name: leaf for predicate in parts for leaf in leaves(predicate.attribute)}
    asked = [leaf for leaf in derived.values() if leaf.text is not None]
    inputs: dict[str, Evaluated] = {}
    for leaf, (values, failed) in zip(asked, collect(spark, frame, [leaf.text or "" for leaf in asked]), strict=True):
        if values.type != leaf.type and not (pa.types.is_timestamp(leaf.type) and pa.types.is_timestamp(values.type)):
            if strict:
                raise AssertionError(f"{leaf.text}: expected {leaf.type}, Spark gives {values.type}")
            _refuse(valid, leaf, values.type)
            continue
        inputs[leaf.name] = Evaluated(values.cast(leaf.type), np.array(failed) if any(failed) else None)
    for leaf in derived.values():
        if leaf.text is None:
            inputs[leaf.name] = Evaluated(_path(table, leaf.name).cast(leaf.type))
    for outcome in valid:
        if outcome.formula is not None and outcome.error is None:
            _evaluate(outcome, inputs, table.num_rows)
    frame.unpersist()
    return outcomes


def _refuse(outcomes: Sequence[Outcome], leaf: Leaf, found: pa.DataType) -> None:
    for outcome in outcomes:
        assert outcome.formula is not None
        if any(leaf in leaves(predicate.attribute) for predicate in predicates(outcome.formula)):
            outcome.error = RuleError("ANALYSIS", f"Spark gives {found} for {leaf.text}.")


def _path(table: pa.Table, name: str) -> pa.Array:
    first, *rest = [part.strip("`") for part in name.split(".")]
    column = table.column(first).combine_chunks()
    for part in rest:
        column = pa.compute.struct_field(column, part)
    return column


def _compile(spark: SparkSession, compiler: Compiler, frame: DataFrame, text: str) -> Outcome:
    outcome = Outcome(text, None, None, [], None, [], [])
    try:
        outcome.formula = compiler.compile(text)
    except RuleError as error:
        outcome.error = error
    try:
        frame.filter(text)
        tried = frame.select(try_eval(spark, text + "\n"))
        tried._jdf.queryExecution().optimizedPlan()
    except Exception as error:  # whatever Spark raises, it refuses the rule
        outcome.spark_error = str(error).strip().splitlines()[0]
    return outcome


def _evaluate(outcome: Outcome, inputs: Mapping[str, Evaluated], rows: int) -> None:
    assert outcome.formula is not None
    answers: dict[int, list[Truth]] = {}
    raised = [False] * rows
    for predicate in predicates(outcome.formula):
        result = evaluate(predicate.attribute, inputs, rows)
        failed = [False] * rows if result.raised is None else list(map(bool, result.raised))
        raised = [a or b for a, b in zip(raised, failed, strict=True)]
        answer = []
        for key, fault in zip(keys(result.values), failed, strict=True):
            if fault:
                answer.append(Truth.NULL)
            elif key is None:
                answer.append(predicate.null)
            else:
                answer.append(
                    Truth.TRUE if key in predicate.true else Truth.FALSE if key in predicate.false else Truth.NULL
                )
        answers[id(predicate)] = answer
    outcome.raised = raised
    outcome.ours = [int(truth(outcome.formula, answers, row)) for row in range(rows)]
