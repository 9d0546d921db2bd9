"""Derived columns: parts of rules that only Spark evaluates, as columns that neither fail nor stall a job.

Only this module builds expressions of Spark's optimiser (catalyst, through py4j). `self_test`, which runs once for each
application, checks that they are as expected, so that no job fails later.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from pipelines.errors import SessionError
from pipelines.spark.active_session import active
from pipelines.spark.java_names import java
from rules_index.errors import RuleError
from rules_index.language.function_signatures import PATTERN_ARGUMENT
from rules_index.language.patterns import check_rlike, is_only_java, is_safe_in_java, like_as_java_regex, rlike_as_re2

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KNOWN_SPARK = "4.2"
_CATALYST = "org.apache.spark.sql.catalyst.expressions"
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
_RE2 = "org.apache.hadoop.shaded.com.google.re2j"
_MENTIONS_PATTERN = re.compile(r"like|regexp|split", re.IGNORECASE)
_COMPILER_ERROR = re.compile(r"InternalCompilerException|CompileException|failed to compile")
_MULTIPLE = {
    # class: (joined by AND, negated)
    "LikeAny": (False, False),
    "LikeAll": (True, False),
    "NotLikeAny": (False, True),
    "NotLikeAll": (True, True),
}
_FUNCTIONS = {"like": "Like", "ilike": "ILike", "rlike": "RLike", "regexp": "RLike", "regexp_like": "RLike"}

Java = Any
"""An object of the JVM."""


def derived_column(spark: SparkSession, text: str, data_type: pa.DataType) -> Column:
    """A column with the value of an expression on each row, which distinguishes errors from NULL.

    For BOOLEAN it is an INT8 truth code: 0 FALSE, 1 TRUE, 2 NULL, 3 error. For any other type it is a struct with the
    field `value`, and the struct is NULL where evaluation raised an error. RuleError (`PATTERN`) if a pattern in the
    text cannot be matched in linear time. Spark raises its own analysis errors when the column is used.
    """
    build = _builder(spark)
    with active(spark):
        expression = bare_expression(spark, text)
        if pa.types.is_boolean(data_type):
            known = build.make("KnownNullable", expression)
            null, unknown = build.operands_of("coalesce(cast(null as tinyint), 2Y)")
            cast = build.with_children(null, [known])
            code = build.with_children(build.constant("coalesce(cast(null as tinyint), 2Y)"), [cast, unknown])
            return build.column(build.without_errors(code, "3Y"))
        return build.column(_in_struct(build, expression))


def column_in_struct(spark: SparkSession, text: str) -> Column:
    """Like `derived_column`, but always in a struct, whose field `value` has the type that Spark gives the text."""
    with active(spark):
        return (build := _builder(spark)).column(_in_struct(build, bare_expression(spark, text)))


def operands_in_structs(spark: SparkSession, text: str) -> list[Column]:
    """`column_in_struct` of each operand of an AND or OR; empty for any other text."""
    with active(spark):
        build, expression = _builder(spark), bare_expression(spark, text)
        if expression.getClass().getSimpleName() not in ("And", "Or"):
            return []
        return [build.column(_in_struct(build, operand)) for operand in build.children(expression)]


def _in_struct(build: _Builder, expression: Java) -> Java:
    struct = "named_struct('value', null)"
    made = build.with_children(build.constant(struct), [build.operands_of(struct)[0], expression])
    return build.without_errors(made, "null")


def bare_expression(spark: SparkSession, text: str) -> Java:
    """The text parsed by Spark, with its patterns replaced by ones that are matched in linear time."""
    parsed = _builder(spark).parse(text)
    return linear_patterns(spark, parsed) if _MENTIONS_PATTERN.search(text) else parsed


def reads_clock(spark: SparkSession, rows: DataFrame) -> bool:
    """True if Spark replaces a string constant in the plan by a time, as in `CAST('today' AS DATE)` (or 'epoch').

    This applies the two rules of the optimiser that do so, and looks whether they change the plan.
    """
    rule = partial(java, spark._jvm)
    plan = rule(f"{_OPTIMIZER}.ReplaceExpressions$.MODULE$").apply(rows._jdf.queryExecution().analyzed())
    return not rule(f"{_OPTIMIZER}.SpecialDatetimeValues$.MODULE$").apply(plan).fastEquals(plan)


def with_no_partition(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Rows of no partition with the columns of `rows`. Spark does not know that there is none, so it plans all that is
    done with them."""
    from pyspark.sql.classic.dataframe import DataFrame

    session: Any = spark
    empty = session._jsc.emptyRDD()
    return DataFrame(session._jsparkSession.createDataFrame(empty, rows._jdf.schema()), spark)


def generate_code(spark: SparkSession, rows: DataFrame) -> None:
    """Let Spark optimise a query, which folds its constants, and generate and load the code of its columns. Errors are
    passed on, but not that the code is too long.

    Some functions look at a constant argument only then, outside of the guard: a pattern of dates, a time zone.
    """
    java_frame: Any = rows._jdf
    plan = java_frame.queryExecution().optimizedPlan()
    generate = java(spark._jvm, f"{_CATALYST}.codegen.GenerateUnsafeProjection$.MODULE$").generate
    try:
        generate(plan.expressions(), plan.children().head().output())
    except Py4JJavaError as error:
        if not _COMPILER_ERROR.search(str(error.java_exception)):  # else Spark evaluates it without code
            raise


def parsed_statement(spark: SparkSession, statement: str) -> Java:
    """The plan of a statement as Spark parses it. PySparkException or Py4JJavaError if it cannot."""
    session: Any = spark._jsparkSession
    return session.sessionState().sqlParser().parsePlan(statement)


def linear_patterns(spark: SparkSession, parsed: Java) -> Java:
    """A parsed expression with each LIKE, ILIKE and RLIKE replaced by a search that runs in linear time.

    RuleError (`PATTERN`) for a pattern that is not a literal, or that cannot be matched in linear time.
    """
    build = _builder(spark)
    children = build.children(parsed)
    changed = [linear_patterns(spark, child) for child in children]
    if any(new is not old for new, old in zip(changed, children, strict=True)):
        parsed = build.with_children(parsed, changed)
        children = changed
    name = parsed.getClass().getSimpleName()
    if name in _MULTIPLE:
        return _multiple(build, parsed, children[0], *_MULTIPLE[name])
    if name in ("Like", "ILike"):
        return _like(build, parsed, children, str(parsed.escapeChar()), name == "ILike")
    if name == "RLike":
        return _rlike(build, parsed, children)
    if name == "UnresolvedFunction":
        return _function(build, parsed, children)
    return parsed


def _like(build: _Builder, parsed: Java, children: list[Java], escape: str, ignore_case: bool) -> Java:
    pattern = build.text_of(children[1])
    if pattern is None:
        return parsed
    subject = children[0]
    if ignore_case:
        subject = build.with_children(build.parse("lower('')"), [subject])
        pattern = build.lowered(pattern)
    return build.rlike(subject, like_as_java_regex(pattern, escape))


def _rlike(build: _Builder, parsed: Java, children: list[Java]) -> Java:
    pattern = build.text_of(children[1])
    if pattern is None:
        return parsed
    check_rlike(pattern)
    build.check_in_java(pattern)
    if is_safe_in_java(pattern):
        return parsed
    return build.re2(children[0], rlike_as_re2(pattern))


def _multiple(build: _Builder, parsed: Java, subject: Java, every: bool, negated: bool) -> Java:
    """LIKE ANY and LIKE ALL as a balanced tree of OR or AND."""
    patterns = parsed.patterns()
    terms = []
    for index in range(patterns.size()):
        pattern = patterns.apply(index)
        if pattern is None:
            terms.append(build.parse("cast(null as boolean)"))
            continue
        term = build.rlike(subject, like_as_java_regex(str(pattern.toString()), "\\"))
        terms.append(build.make("Not", term) if negated else term)
    while len(terms) > 1:
        pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
        terms = [build.make("And" if every else "Or", *pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return terms[0]


def _function(build: _Builder, parsed: Java, children: list[Java]) -> Java:
    """A call that Spark's parser leaves unresolved.

    For `like(a, b)` and similar functions the pattern is replaced; for any other function it is only checked.
    """
    name = parsed.nameParts().last().lower()
    if name in PATTERN_ARGUMENT and len(children) > PATTERN_ARGUMENT[name]:
        build.check_in_java(build.text_of(children[PATTERN_ARGUMENT[name]]) or "")
    if name not in _FUNCTIONS or len(children) not in (2, 3):
        return parsed
    if _FUNCTIONS[name] == "RLike":
        return _rlike(build, parsed, children)
    escape = build.text_of(children[2]) if len(children) == 3 else "\\"
    if escape is None or len(escape) != 1:
        return parsed
    return _like(build, parsed, children, escape, name == "ilike")


class _Builder:
    """Builds catalyst expressions with few calls to the JVM, since a rule set may have thousands of columns."""

    def __init__(self, spark: SparkSession) -> None:
        self._java: Callable[[str], Java] = partial(java, spark._jvm)
        self._parse: Java = spark._jsparkSession.sessionState().sqlParser().parseExpression
        self._constants: dict[str, tuple[Java, list[Java]]] = {}

    def parse(self, text: str) -> Java:
        """The expression of a text, parsed by Spark."""
        return self._parse(text)

    def constant(self, text: str) -> Java:
        """The expression of a constant text of deltatag's, parsed once and cached."""
        return self._constant(text)[0]

    def operands_of(self, text: str) -> list[Java]:
        """The operands of a constant text's expression, cached with it."""
        return self._constant(text)[1]

    def _constant(self, text: str) -> tuple[Java, list[Java]]:
        if text not in self._constants:
            parsed = self.parse(text)
            self._constants[text] = (parsed, self.children(parsed))
        return self._constants[text]

    def make(self, name: str, *arguments: Java) -> Java:
        """A new expression of a catalyst class."""
        return self._java(f"{_CATALYST}.{name}")(*arguments)

    def column(self, expression: Java) -> Column:
        """An expression as a column."""
        from pyspark.sql.classic.column import Column

        made: Column = Column(self._java("org.apache.spark.sql.classic.ExpressionUtils.column")(expression))
        return made

    def children(self, expression: Java) -> list[Java]:
        """The operands of an expression."""
        found = expression.children()
        return [found.apply(index) for index in range(found.size())]

    def sequence(self, items: list[Java]) -> Java:
        """A Scala Seq of the items."""
        made = self._java("scala.collection.immutable.Nil$.MODULE$")
        for item in reversed(items):
            made = getattr(made, "$colon$colon")(item)
        return made

    def with_children(self, expression: Java, children: list[Java]) -> Java:
        """The same expression with other operands."""
        return expression.withNewChildren(self.sequence(children))

    def without_errors(self, expression: Java, otherwise: str) -> Java:
        """The expression's value, or `otherwise` (SQL) where evaluating it raises an error.

        The guard (TryEval) is put into a branch of an `if` whose condition Spark cannot fold. Otherwise Spark would
        evaluate common subexpressions and constants outside of the guard. The guard must not directly contain an `if`
        or CASE, not even after simplification, since Spark would push the guard into their branches. So `expression`
        must be a struct, or a `coalesce` that Spark cannot remove.
        """
        caught = self.make("Coalesce", self.sequence([self.make("TryEval", expression), self.constant(otherwise)]))
        choice = "if(spark_partition_id() >= 0, 0, null)"
        condition, _, never = self.operands_of(choice)
        return self.with_children(self.constant(choice), [condition, caught, never])

    def text_of(self, expression: Java) -> str | None:
        """The value of a string literal; None for literals that need no check: NULL, numbers and Booleans.

        RuleError (`PATTERN`) if the expression is no literal.
        """
        if expression.getClass().getSimpleName() != "Literal":
            raise RuleError(
                "PATTERN", "The pattern of LIKE and RLIKE must be a literal text, so that it can be checked.", None
            )
        value = expression.value()
        return str(value.toString()) if hasattr(value, "toString") else None

    def check_in_java(self, pattern: str) -> None:
        """Let Java compile a pattern with properties that only Java knows; Py4JJavaError if it does not know one."""
        if is_only_java(pattern):
            self._java("java.util.regex.Pattern").compile(pattern)

    def lowered(self, text: str) -> str:
        """The text in lower case, by Spark's function."""
        lower = self.make("Lower", self.text(text))
        evaluated = lower.eval(None)
        return str(evaluated.toString())

    def rlike(self, subject: Java, pattern: str) -> Java:
        """A search by java.util.regex."""
        made = self.parse("'' rlike ''")
        return self.with_children(made, [subject, self.text(pattern)])

    def text(self, value: str) -> Java:
        """A string literal."""
        return self.literals().apply(value)

    def literals(self) -> Java:
        """The companion object of Literal."""
        return self._java(f"{_CATALYST}.Literal$.MODULE$")

    def re2(self, subject: Java, pattern: str) -> Java:
        """A search by RE2, which takes time linear in the value for any pattern."""
        load, object_type = self._java("java.lang.Class.forName"), self._java("org.apache.spark.sql.types.ObjectType")
        target = self.literals().fromObject(self.re2_pattern(pattern), object_type(load(f"{_RE2}.Pattern")))
        value = self.with_children(self.parse("cast(null as string)"), [subject])
        string = self.invoke(value, "toString", object_type(load("java.lang.String")))
        matcher = self.invoke(target, "matcher", object_type(load(f"{_RE2}.Matcher")), string)
        return self.invoke(matcher, "find", self._java("org.apache.spark.sql.types.DataTypes.BooleanType"))

    def re2_pattern(self, pattern: str) -> Java:
        """A compiled pattern that can be deserialised on executors.

        When it is deserialised, Hadoop's RE2 takes the pattern's flags for flags of its compiler. So the pattern is
        created with the compiler's flags, by the constructor that `Pattern.compile` uses.
        """
        load = self._java("java.lang.Class.forName")
        compiled = self._java(f"{_RE2}.Pattern.compile")(pattern)
        perl = load(f"{_RE2}.RE2").getDeclaredField("PERL")
        inner = load(f"{_RE2}.Pattern").getDeclaredField("re2")
        (constructor,) = load(f"{_RE2}.Pattern").getDeclaredConstructors()
        for member in (perl, inner, constructor):
            member.setAccessible(True)
        arguments = self._java("java.util.ArrayList")()
        for argument in (pattern, perl.get(None), inner.get(compiled)):
            arguments.add(argument)
        return constructor.newInstance(arguments.toArray())

    def invoke(self, target: Java, method: str, data_type: Java, *arguments: Java) -> Java:
        """A call of a Java method; NULL if its object or an argument is NULL."""
        invoke = self._java(f"{_CATALYST}.objects.Invoke")
        return invoke(target, method, data_type, self.sequence(list(arguments)), self.sequence([]), True, True, True)


_builders: WeakKeyDictionary[SparkSession, _Builder] = WeakKeyDictionary()


def _builder(spark: SparkSession) -> _Builder:
    """The session's cached builder; its cached texts stay valid, since the session's settings do not change."""
    if spark not in _builders:
        _builders[spark] = _Builder(spark)
    return _builders[spark]


def self_test(spark: SparkSession) -> None:
    """Raise SessionError if Spark's internals are not as expected; takes about a second."""
    cases = {
        "1 / id > 0 AND 1 / id < 5": [3, 1],
        "1 / 0 > id": [3, 3],
        "nullif(id, 0) = 1": [2, 1],
        "if(1 / id > 0, TRUE, FALSE)": [3, 1],
        "exists(array(cast(id AS STRING)), x -> x LIKE '%1')": [0, 1],
        "exists(array(id), x -> x RLIKE '^(1|11)+')": [0, 1],
    }
    try:
        columns = [derived_column(spark, text, pa.bool_()) for text in cases]
        columns.append(derived_column(spark, "1 / id", pa.float64()))
        dates = ("current_date() > 'today'", "current_date() > '2024-02-29'")
        clocks = [reads_clock(spark, spark.range(0).selectExpr(text)) for text in dates]
        # two partitions, so that tasks compute the rows, and the plan is serialised as in a job
        rows = spark.range(0, 2, 1, 2).select("id", *columns).collect()
        found = sorted([*row[1:-1], None if row[-1] is None else row[-1][0]] for row in rows)
        wanted = sorted([*(codes[row] for codes in cases.values()), (None, 1.0)[row]] for row in (0, 1))
        found, wanted = [*found, clocks], [*wanted, [True, False]]
        reason = f"it gives {found} where {wanted} is right" if str(found) != str(wanted) else ""
    except Py4JNetworkError:
        raise  # the JVM has ended
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:300]
    if reason:
        raise SessionError(
            f"deltatag does not know the internals of this Spark, {spark.version} (it knows {KNOWN_SPARK}): {reason}. "
            f"Use Spark {KNOWN_SPARK}, or a version of deltatag that knows this one."
        )
