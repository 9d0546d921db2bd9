"""Parts of rules that only Spark evaluates, as columns that never fail a job and never stall it.

The one module that reaches into Spark's internals (catalyst, through py4j). `self_test` tells at the start whether
they are as they are known here, instead of a job failing later.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from py4j.protocol import Py4JNetworkError

from pipelines.errors import SessionError
from pipelines.spark.active_session import active
from pipelines.spark.java_names import java
from rules_index.errors import RuleError
from rules_index.language.patterns import check_rlike, is_safe_in_java, like_as_java_regex, rlike_as_re2

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KNOWN_SPARK = "4.2"
_CATALYST = "org.apache.spark.sql.catalyst.expressions"
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
_RE2 = "org.apache.hadoop.shaded.com.google.re2j"
_MENTIONS_PATTERN = re.compile(r"like|regexp", re.IGNORECASE)
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
    """What the author's own text gives on each row, errors kept apart from NULL.

    For BOOLEAN an INT8 truth code: 0 FALSE, 1 TRUE, 2 NULL, 3 an error. For any other type a struct of one field,
    `value`, that is NULL where evaluation raised an error. `RuleError` (`PATTERN`) where a pattern in the text cannot
    be matched in linear time. Spark's own errors of analysis come when the column is used.
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
    """`derived_column` for a text of any type, kept in its struct so that Spark tells the type of the bare text."""
    with active(spark):
        return (build := _builder(spark)).column(_in_struct(build, bare_expression(spark, text)))


def operands_in_structs(spark: SparkSession, text: str) -> list[Column]:
    """`column_in_struct` of each operand of an AND or OR; none for any other text."""
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
    """A text as Spark's parser reads it, with the patterns in it matched in linear time."""
    parsed = _builder(spark).parse(text)
    return linear_patterns(spark, parsed) if _MENTIONS_PATTERN.search(text) else parsed


def reads_clock(spark: SparkSession, rows: DataFrame) -> bool:
    """True where Spark reads a constant text of the rows' plan as a moment: `CAST('today' AS DATE)`, and so 'epoch'.

    Two rules of the optimiser tell, as they would replace the text by the moment of the job.
    """
    rule = partial(java, spark._jvm)
    plan = rule(f"{_OPTIMIZER}.ReplaceExpressions$.MODULE$").apply(rows._jdf.queryExecution().analyzed())
    return not rule(f"{_OPTIMIZER}.SpecialDatetimeValues$.MODULE$").apply(plan).fastEquals(plan)


def linear_patterns(spark: SparkSession, parsed: Java) -> Java:
    """A parsed expression with each LIKE, ILIKE and RLIKE replaced by one that runs in linear time.

    `RuleError` (`PATTERN`) for a pattern that is no literal or that cannot be matched in linear time.
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
    """`like(a, b)` and its kin, which Spark's parser leaves as calls."""
    name = parsed.nameParts().last().lower()
    if name not in _FUNCTIONS or len(children) not in (2, 3):
        return parsed
    if _FUNCTIONS[name] == "RLike":
        return _rlike(build, parsed, children)
    escape = build.text_of(children[2]) if len(children) == 3 else "\\"
    if escape is None or len(escape) != 1:
        return parsed
    return _like(build, parsed, children, escape, name == "ilike")


class _Builder:
    """Makes catalyst expressions, with few calls of the JVM: a rule set may have thousands of columns."""

    def __init__(self, spark: SparkSession) -> None:
        self._java: Callable[[str], Java] = partial(java, spark._jvm)
        self._parse: Java = spark._jsparkSession.sessionState().sqlParser().parseExpression
        self._constants: dict[str, tuple[Java, list[Java]]] = {}

    def parse(self, text: str) -> Java:
        """The expression as Spark's parser reads it."""
        return self._parse(text)

    def constant(self, text: str) -> Java:
        """The expression of a text of deltatag's own, which is read once."""
        return self._constant(text)[0]

    def operands_of(self, text: str) -> list[Java]:
        """The operands of such an expression."""
        return self._constant(text)[1]

    def _constant(self, text: str) -> tuple[Java, list[Java]]:
        if text not in self._constants:
            parsed = self.parse(text)
            self._constants[text] = (parsed, self.children(parsed))
        return self._constants[text]

    def make(self, name: str, *arguments: Java) -> Java:
        """An expression of a catalyst class."""
        return self._java(f"{_CATALYST}.{name}")(*arguments)

    def column(self, expression: Java) -> Column:
        """An expression as a column."""
        from pyspark.sql.classic.column import Column

        made: Column = Column(self._java("org.apache.spark.sql.classic.ExpressionUtils.column")(expression))
        return made

    def children(self, expression: Java) -> list[Java]:
        """The operands."""
        found = expression.children()
        return [found.apply(index) for index in range(found.size())]

    def sequence(self, items: list[Java]) -> Java:
        """A Scala Seq."""
        made = self._java("scala.collection.immutable.Nil$.MODULE$")
        for item in reversed(items):
            made = getattr(made, "$colon$colon")(item)
        return made

    def with_children(self, expression: Java, children: list[Java]) -> Java:
        """The same expression over other operands."""
        return expression.withNewChildren(self.sequence(children))

    def without_errors(self, expression: Java, otherwise: str) -> Java:
        """The expression's value, or `otherwise` (SQL) where evaluating it raises an error.

        It stands in a branch of an `if` whose condition Spark cannot decide beforehand. Else Spark would evaluate
        what occurs twice in it, or is constant, outside of what catches the error. What catches it stands over no
        `if` or CASE, now or after simplification, since Spark would move it into the branches: `expression` is a
        `coalesce` that Spark must take to be needed, or a struct.
        """
        caught = self.make("Coalesce", self.sequence([self.make("TryEval", expression), self.constant(otherwise)]))
        choice = "if(spark_partition_id() >= 0, 0, null)"
        condition, _, never = self.operands_of(choice)
        return self.with_children(self.constant(choice), [condition, caught, never])

    def text_of(self, expression: Java) -> str | None:
        """The value of a text literal; None for NULL, and for a number or a truth value, which need no check."""
        if expression.getClass().getSimpleName() != "Literal":
            raise RuleError(
                "PATTERN", "The pattern of LIKE and RLIKE must be a literal text, so that it can be checked.", None
            )
        value = expression.value()
        return str(value.toString()) if hasattr(value, "toString") else None

    def lowered(self, text: str) -> str:
        """Spark's own lower case of a text."""
        lower = self.make("Lower", self.text(text))
        evaluated = lower.eval(None)
        return str(evaluated.toString())

    def rlike(self, subject: Java, pattern: str) -> Java:
        """A search by java.util.regex."""
        made = self.parse("'' rlike ''")
        return self.with_children(made, [subject, self.text(pattern)])

    def text(self, value: str) -> Java:
        """A text literal."""
        return self.literals().apply(value)

    def literals(self) -> Java:
        """The companion object of Literal."""
        return self._java(f"{_CATALYST}.Literal$.MODULE$")

    def re2(self, subject: Java, pattern: str) -> Java:
        """A search by RE2, which is linear in the value whatever the pattern is."""
        load, object_type = self._java("java.lang.Class.forName"), self._java("org.apache.spark.sql.types.ObjectType")
        target = self.literals().fromObject(self.re2_pattern(pattern), object_type(load(f"{_RE2}.Pattern")))
        value = self.with_children(self.parse("cast(null as string)"), [subject])
        string = self.invoke(value, "toString", object_type(load("java.lang.String")))
        matcher = self.invoke(target, "matcher", object_type(load(f"{_RE2}.Matcher")), string)
        return self.invoke(matcher, "find", self._java("org.apache.spark.sql.types.DataTypes.BooleanType"))

    def re2_pattern(self, pattern: str) -> Java:
        """A compiled pattern that survives the way to the executors.

        Hadoop's RE2 reads a pattern's flags there as those of its compiler, so it is made with the compiler's flags,
        by the constructor that `Pattern.compile` uses.
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
        """A call of a Java method; NULL where its object or an argument is."""
        invoke = self._java(f"{_CATALYST}.objects.Invoke")
        return invoke(target, method, data_type, self.sequence(list(arguments)), self.sequence([]), True, True, True)


_builders: WeakKeyDictionary[SparkSession, _Builder] = WeakKeyDictionary()


def _builder(spark: SparkSession) -> _Builder:
    """The session's builder; its own texts are read with the session's settings, which stay as they are."""
    if spark not in _builders:
        _builders[spark] = _Builder(spark)
    return _builders[spark]


def self_test(spark: SparkSession) -> None:
    """SessionError where Spark's internals are not as they are known here; takes about a second, once a session."""
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
        moments = ("current_date() > 'today'", "current_date() > '2024-02-29'")
        clocks = [reads_clock(spark, spark.range(0).selectExpr(text)) for text in moments]
        # Beyond one partition rows are computed in tasks, so that what a plan holds is shipped as in a job
        rows = spark.range(0, 2, 1, 2).select("id", *columns).collect()
        found = sorted([*row[1:-1], None if row[-1] is None else row[-1][0]] for row in rows)
        wanted = sorted([*(codes[row] for codes in cases.values()), (None, 1.0)[row]] for row in (0, 1))
        found, wanted = [*found, clocks], [*wanted, [True, False]]
        reason = f"it gives {found} where {wanted} is right" if str(found) != str(wanted) else ""
    except Py4JNetworkError:
        raise  # there is no JVM any more, of whatever version
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:300]
    if reason:
        raise SessionError(
            f"deltatag does not know the internals of this Spark, {spark.version} (it knows {KNOWN_SPARK}): {reason}. "
            f"Use Spark {KNOWN_SPARK}, or a version of deltatag that knows this one."
        )
