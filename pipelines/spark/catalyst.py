"""Parts of rules that only Spark evaluates, as columns that never fail a job and never stall it.

The one module that reaches into Spark's internals (catalyst, through py4j). `self_test` tells at the start whether
they are as they are known here, instead of a job failing later.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JNetworkError

from pipelines.errors import SessionError
from pipelines.spark.active_session import active
from rules_index.errors import RuleError
from rules_index.language.patterns import check_rlike, is_safe_in_java, like_as_java_regex, rlike_as_re2

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

KNOWN_SPARK = "4.2"
_CATALYST = "org.apache.spark.sql.catalyst.expressions"
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
    build = _Builder(spark)
    with active(spark):
        expression = bare_expression(spark, text)
        if pa.types.is_boolean(data_type):
            known = build.make("KnownNullable", expression)
            code = build.parse("coalesce(cast(null as tinyint), 2Y)")
            code = build.replace_first(code, build.with_children(build.first(code), [known]))
            return build.column(build.without_errors(code, "3Y"))
        return build.column(_in_struct(build, expression))


def column_in_struct(spark: SparkSession, text: str) -> Column:
    """`derived_column` for a text of any type, kept in its struct so that Spark tells the type of the bare text."""
    with active(spark):
        return (build := _Builder(spark)).column(_in_struct(build, bare_expression(spark, text)))


def _in_struct(build: _Builder, expression: Java) -> Java:
    struct = build.parse("named_struct('value', null)")
    return build.without_errors(build.replace_last(struct, expression), "null")


def bare_expression(spark: SparkSession, text: str) -> Java:
    """A text as Spark's parser reads it, with the patterns in it matched in linear time."""
    parsed = _Builder(spark).parse(text)
    return linear_patterns(spark, parsed) if _MENTIONS_PATTERN.search(text) else parsed


def linear_patterns(spark: SparkSession, parsed: Java) -> Java:
    """A parsed expression with each LIKE, ILIKE and RLIKE replaced by one that runs in linear time.

    `RuleError` (`PATTERN`) for a pattern that is no literal or that cannot be matched in linear time.
    """
    build = _Builder(spark)
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
    """Makes catalyst expressions."""

    def __init__(self, spark: SparkSession) -> None:
        self._session: Java = spark._jsparkSession
        self._jvm: Java = spark._jvm
        self._expressions: Java = reduce(getattr, _CATALYST.split("."), self._jvm)

    def parse(self, text: str) -> Java:
        """The expression as Spark's parser reads it."""
        return self._session.sessionState().sqlParser().parseExpression(text)

    def make(self, name: str, *arguments: Java) -> Java:
        """An expression of a catalyst class."""
        return getattr(self._expressions, name)(*arguments)

    def column(self, expression: Java) -> Column:
        """An expression as a column."""
        from pyspark.sql.classic.column import Column

        made: Column = Column(self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))
        return made

    def children(self, expression: Java) -> list[Java]:
        """The operands."""
        found = expression.children()
        return [found.apply(index) for index in range(found.size())]

    def first(self, expression: Java) -> Java:
        """The first operand."""
        return expression.children().apply(0)

    def sequence(self, items: list[Java]) -> Java:
        """A Scala Seq."""
        array = self._jvm.java.util.ArrayList()
        for item in items:
            array.add(item)
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(array).toSeq()

    def with_children(self, expression: Java, children: list[Java]) -> Java:
        """The same expression over other operands."""
        return expression.withNewChildren(self.sequence(children))

    def replace_first(self, expression: Java, child: Java) -> Java:
        """The same expression with another first operand."""
        return self.with_children(expression, [child, *self.children(expression)[1:]])

    def replace_last(self, expression: Java, child: Java) -> Java:
        """The same expression with another last operand."""
        return self.with_children(expression, [*self.children(expression)[:-1], child])

    def without_errors(self, expression: Java, otherwise: str) -> Java:
        """The expression's value, or `otherwise` (SQL) where evaluating it raises an error.

        It stands in a branch of an `if` whose condition Spark cannot decide beforehand. Else Spark would evaluate
        what occurs twice in it, or is constant, outside of what catches the error. What catches it stands over no
        `if` or CASE, now or after simplification, since Spark would move it into the branches: `expression` is a
        `coalesce` that Spark must take to be needed, or a struct.
        """
        caught = self.make("Coalesce", self.sequence([self.make("TryEval", expression), self.parse(otherwise)]))
        choice = self.parse("if(spark_partition_id() >= 0, 0, null)")
        condition, _, never = self.children(choice)
        return self.with_children(choice, [condition, caught, never])

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
        return getattr(getattr(self._expressions, "Literal$"), "MODULE$")

    def re2(self, subject: Java, pattern: str) -> Java:
        """A search by RE2, which is linear in the value whatever the pattern is."""
        types = self._jvm.org.apache.spark.sql.types
        load: Callable[[str], Java] = self._jvm.java.lang.Class.forName
        target = self.literals().fromObject(self.re2_pattern(pattern), types.ObjectType(load(f"{_RE2}.Pattern")))
        value = self.with_children(self.parse("cast(null as string)"), [subject])
        string = self.invoke(value, "toString", types.ObjectType(load("java.lang.String")))
        matcher = self.invoke(target, "matcher", types.ObjectType(load(f"{_RE2}.Matcher")), string)
        return self.invoke(matcher, "find", types.DataTypes.BooleanType)

    def re2_pattern(self, pattern: str) -> Java:
        """A compiled pattern that survives the way to the executors.

        Hadoop's RE2 reads a pattern's flags there as those of its compiler, so it is made with the compiler's flags,
        by the constructor that `Pattern.compile` uses.
        """
        load: Callable[[str], Java] = self._jvm.java.lang.Class.forName
        compiled = reduce(getattr, _RE2.split("."), self._jvm).Pattern.compile(pattern)
        perl = load(f"{_RE2}.RE2").getDeclaredField("PERL")
        inner = load(f"{_RE2}.Pattern").getDeclaredField("re2")
        (constructor,) = load(f"{_RE2}.Pattern").getDeclaredConstructors()
        for member in (perl, inner, constructor):
            member.setAccessible(True)
        arguments = self._jvm.java.util.ArrayList()
        for argument in (pattern, perl.get(None), inner.get(compiled)):
            arguments.add(argument)
        return constructor.newInstance(arguments.toArray())

    def invoke(self, target: Java, method: str, data_type: Java, *arguments: Java) -> Java:
        """A call of a Java method; NULL where its object or an argument is."""
        invoke = getattr(self._jvm, f"{_CATALYST}.objects.Invoke")
        return invoke(target, method, data_type, self.sequence(list(arguments)), self.sequence([]), True, True, True)


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
        # Beyond one partition rows are computed in tasks, so that what a plan holds is shipped as in a job
        rows = spark.range(0, 2, 1, 2).select("id", *columns).collect()
        found = sorted([*row[1:-1], None if row[-1] is None else row[-1][0]] for row in rows)
        wanted = sorted([*(codes[row] for codes in cases.values()), (None, 1.0)[row]] for row in (0, 1))
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
