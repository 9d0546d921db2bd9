"""Nodes to typed values: names resolved, types checked, functions allowed or refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from rules_index.domains.values import is_indexable
from rules_index.errors import RuleError
from rules_index.language import calls, computation, constants, list_conditions, moved_casts, operations, references
from rules_index.language.analysis import CONDITION_TYPES, Value, evaluated_once
from rules_index.language.branches import common_outcome, is_never_true
from rules_index.language.case_conversions import in_any_case
from rules_index.language.coercion import (
    BINARY,
    BOOLEAN,
    NULL,
    STRING,
    IncompatibleTypesError,
    Type,
    can_be_cast,
    common_of_all,
    common_type,
    is_integer,
    is_nested,
    name_of,
)
from rules_index.language.computation import type_beside
from rules_index.language.connectives import combined
from rules_index.language.costs.bounder import Bounder, check_costs
from rules_index.language.implicit_casts import refuse_times_of_day
from rules_index.language.intervals import in_micros
from rules_index.language.nodes import Node
from rules_index.language.patterns import check_like, check_rlike, is_only_java, is_safe_in_java
from rules_index.language.scope import Scope
from rules_index.language.source_text import text_of
from rules_index.language.tokens import Tokens
from rules_index.language.typed import Constant, Expression, Leaf, Operation

MAX_TREE_DEPTH = 100
"""The deepest tree that is evaluated without Spark."""
SMALL_TREE = 256
"""A tree of at most this many nodes is evaluated without Spark, whatever its text."""
MAX_TREE_GROWTH = 4
"""A larger tree is evaluated without Spark only if it has at most this many nodes per token of its text."""


class Analyser:
    """Types the nodes of one rule."""

    def __init__(self, tokens: Tokens, scope: Scope) -> None:
        self.tokens = tokens
        self.scope = scope
        self.variables: list[dict[str, Type]] = []
        self.bounders: list[Bounder] = []
        self._values: dict[Node, Value] = {}
        self._kinds: dict[str, Callable[[Node], Value]] = {
            "literal": lambda node: Value(node, node.value.type, node.value),
            "opaque": lambda node: Value(node, node.value),
            "column": partial(references.column, self),
            "and": self._connective,
            "or": self._connective,
            "not": self._connective,
            "compare": lambda node: self.comparison(node, node.value, node.children[0], node.children[1]),
            "distinct": self._distinct,
            "between": self._between,
            "in": self._in,
            "in_list": partial(list_conditions.in_list_value, self),
            "like": self._like,
            "rlike": self._rlike,
            "is": self._is,
            "arithmetic": partial(computation.arithmetic, self),
            "unary": partial(computation.unary, self),
            "cast": lambda node: self.cast(node, self.value(node.children[0]), *node.value),
            "collate": self._collate,
            "case": self._case,
            "call": lambda node: calls.call(self, node),
            "lambda": self._lambda,
            "field": partial(references.field, self),
            "subscript": partial(references.subscript, self),
            "row": self._row,
        }

    def value(self, node: Node) -> Value:
        """The typed value of a node, computed once. Raises `RuleError` if the node is refused."""
        value = self._values.get(node)
        if value is None:
            value = self._values[node] = self._kinds[node.kind](node)
            if value.local is not None and not self._is_near(node, value.local):
                value.local = None
        return value

    def _is_near(self, node: Node, tree: Expression) -> bool:
        """Whether a tree is not much larger than its text, and shallow enough to be traversed recursively.

        A tree can contain a part several times (the value of NULLIF or BETWEEN); nested, its size would double each
        time.
        """
        if not isinstance(tree, Operation):
            return True
        return tree.depth <= MAX_TREE_DEPTH and tree.size <= max(
            SMALL_TREE, MAX_TREE_GROWTH * (node.last - node.first + 1)
        )

    def make_value(self, node: Node, data_type: Type, tree: Expression | None = None, collated: bool = False) -> Value:
        """A value of this type. It has no tree inside a lambda, and without a tree only Spark can evaluate it."""
        return Value(node, data_type, None if self.variables and not isinstance(tree, Constant) else tree, collated)

    # Errors and texts

    def error(self, code: str, message: str, node: Node) -> RuleError:
        """The error for a node, at its position in the text."""
        return RuleError(code, message, self.tokens.starts[node.first])

    def incompatible(self, node: Node, left: Type, right: Type) -> RuleError:
        """The error for two values that have no common type."""
        message = f"{name_of(left)} and {name_of(right)} cannot be compared or combined; cast one of them."
        return self.error("TYPE_MISMATCH", message, node)

    def text(self, node: Node) -> str:
        """The author's words for a node (`source_text.text_of`)."""
        return text_of(self.tokens, node)

    def derived(self, node: Node, data_type: pa.DataType, form: str = "{}") -> Leaf:
        """The column that Spark evaluates for a node; `form` is put around its text. Raises `RuleError` if it can cost
        too much."""
        return self.derived_text(node, data_type, form.replace("{}", self.text(node)))

    def derived_text(self, node: Node, data_type: pa.DataType, text: str) -> Leaf:
        """The column that Spark evaluates for a text, at the cost of a node."""
        if self.tokens.names_lists:
            list_conditions.refuse_lists(self, node)
        check_costs(self, self.bounders, node)
        digest = hashlib.sha256(f"{text}\0{data_type}".encode()).hexdigest()[:16]
        return Leaf(f"derived_{digest}", data_type, text)

    def attribute(self, value: Value) -> Expression | None:
        """The expression that the index encodes for a value, if necessary a derived column; None if Spark must compare
        the value."""
        if value.type is None or value.collated or not is_indexable(value.type):
            return None
        if value.local is not None:
            return value.local
        return None if self.variables else self.derived(value.node, value.type)

    def _lambda(self, node: Node) -> Value:
        raise self.error(
            "NOT_ALLOWED",
            "A lambda may only be an argument of exists, forall, filter, transform, aggregate or reduce.",
            node,
        )

    def body(self, node: Node, types: list[Type]) -> Value:
        """The value of a lambda's body, with parameters of these types."""
        names: tuple[str, ...] = node.value
        if len(names) > len(types):
            raise self.error("TYPE_MISMATCH", f"This lambda takes at most {len(types)} parameters.", node)
        self.variables.append({name.lower(): kind for name, kind in zip(names, types, strict=False)})
        try:
            return self.value(node.children[0])
        finally:
            self.variables.pop()

    def over(self, scope: Scope) -> Analyser:
        """An analyser of the same text over another scope."""
        return Analyser(self.tokens, scope)

    def _row(self, node: Node) -> Value:
        for child in node.children:
            self.value(child)
        return Value(node, None)

    # Truth values

    def truth(self, node: Node, kinds: tuple[Type, ...] = CONDITION_TYPES) -> Expression | None:
        """The tree of a condition, whose type must be among `kinds`; None if only Spark can evaluate it."""
        value = self.value(node)
        if value.type not in (*kinds, None):
            raise self.error("NOT_BOOLEAN", f"A condition is needed here, not {name_of(value.type)}.", node)
        if value.type == NULL:
            return Constant(None, BOOLEAN)
        return operations.condition(value.local, value.type, self.scope.time_zone)

    def _connective(self, node: Node) -> Value:
        operands = [self.truth(child) for child in node.children]
        return Value(node, BOOLEAN, combined(node.kind, operands))

    def _negated(self, value: Value, negated: bool) -> Value:
        if not negated or value.local is None:
            return value
        return Value(value.node, BOOLEAN, combined("not", [value.local]))

    def comparison(self, node: Node, operator: str, left: Node, right: Node) -> Value:
        """The value of a comparison."""
        return self.compared(node, operator, self.value(left), self.value(right))

    def compared(self, node: Node, operator: str, first: Value, second: Value) -> Value:
        """The value of a comparison of two values."""
        first, second = in_micros(self, [first, second])
        common = self.common(node, first, second)
        tree: Expression | None = None
        decided = self.decided(operator, first, second)
        if decided is not None:
            return Value(node, BOOLEAN, Constant(decided, BOOLEAN))
        zone = self.scope.time_zone
        if moved_casts.is_moved(self, first, second, zone) or is_never_true(operator, first.local, second.local, zone):
            return Value(node, BOOLEAN)
        if common is not None and first.local is not None and second.local is not None:
            tree = operations.compared(operator, first.local, second.local, common, zone)
        return Value(node, BOOLEAN, tree)

    def decided(self, operator: str, left: Value, right: Value) -> bool | None:
        """The truth of an integer's comparison with a DECIMAL literal beyond every BIGINT, or with a constant of a CASE
        whose branches all have that truth; None for others."""
        for each, value, other in ((operator, left, right), (constants.FLIPPED[operator], right, left)):
            truth = common_outcome(each, value.local, other.local, self.scope.time_zone)
            if is_integer(value.type) and other.node.kind == "literal" and truth is None:
                truth = operations.beyond_integers(constants.FLIPPED[each], other.node.value)
            if truth is not None:
                return truth
        return None

    def common(self, node: Node, left: Value, right: Value) -> Type:
        """The type in which two values are compared; None if only Spark can compare them."""
        first, second = type_beside(left, right.type), type_beside(right, left.type)
        try:
            common = common_type(first, second)
        except IncompatibleTypesError:
            raise self.incompatible(node, left.type, right.type) from None
        refuse_times_of_day(self, common, (left, right))
        return None if left.collated or right.collated else common

    def _distinct(self, node: Node) -> Value:
        value = self.comparison(node, "<=>", node.children[0], node.children[1])
        return self._negated(value, not node.value)

    def _between(self, node: Node) -> Value:
        subject, low, high = (self.value(child) for child in node.children)
        subject = evaluated_once(subject)
        least = self.compared(node, ">=", subject, low).local
        most = self.compared(node, "<=", subject, high).local
        return self._negated(Value(node, BOOLEAN, combined("and", [least, most])), node.value)

    def _in(self, node: Node) -> Value:
        values = in_micros(self, [self.value(child) for child in node.children])
        common = self.common_of(node, values)
        tree = None
        if common is not None and is_indexable(common):
            zone = self.scope.time_zone
            operands = operations.members([each.local for each in values], common, zone)
            if not moved_casts.is_moved_in_list(self, values, common, zone):
                tree = operations.operation("in", operands, BOOLEAN)
        return self._negated(Value(node, BOOLEAN, tree), node.value)

    def common_of(self, node: Node, values: list[Value]) -> Type:
        """The common type of a list of values; None if only Spark can compare them."""
        try:
            common = common_of_all([value.type for value in values])
        except IncompatibleTypesError:
            shown = ", ".join(sorted({name_of(value.type) for value in values}))
            raise self.error("TYPE_MISMATCH", f"These values have no common type: {shown}.", node) from None
        refuse_times_of_day(self, common, values)
        return None if any(value.collated for value in values) else common

    def pattern(self, node: Node) -> str | None:
        """The text of a pattern; None for NULL. Raises `PATTERN` if the pattern is not constant."""
        value = self.value(node)
        if isinstance(value.local, Constant):
            text = constants.cast(value.local, STRING, self.scope.time_zone)
            if text is not None:
                return None if text.value is None else str(text.value)
        raise self.error("PATTERN", "A pattern must be a constant string: it is checked before any row is read.", node)

    def subject(self, node: Node, value: Value) -> Expression | None:
        """The expression for the STRING that a pattern is matched with; None if Spark must match."""
        if is_nested(value.type):
            raise self.error("TYPE_MISMATCH", f"{name_of(value.type)} cannot be matched with a pattern.", node)
        if value.collated or value.type in (BINARY, None):
            return None
        if value.type == STRING and value.local is not None:
            return value.local
        if self.variables:
            return None
        return self.derived(node, STRING, "{}" if value.type == STRING else "CAST({} AS STRING)")

    def _like(self, node: Node) -> Value:
        word, negated, quantifier, escape = node.value
        value = self.value(node.children[0])
        if word == "ILIKE":
            value = self.value(in_any_case(node.children[0]))
        matches: list[Expression | None] = []
        for child in node.children[1:]:
            pattern = self.pattern(child)
            if pattern is not None:
                self.refuse_like(pattern, escape, word == "ILIKE", child)
            subject = value.local if value.type == STRING and not value.collated else None
            match: Expression | None = Constant(None, BOOLEAN)
            if pattern is not None:
                match = operations.operation("like", [subject], BOOLEAN, pattern, escape, word == "ILIKE")
            matches.append(operations.operation("not", [match], BOOLEAN) if negated else match)
        if len(matches) == 1:
            return Value(node, BOOLEAN, matches[0])
        return Value(node, BOOLEAN, operations.operation("and" if quantifier == "ALL" else "or", matches, BOOLEAN))

    def refuse_like(self, pattern: str, escape: str, ignore_case: bool, node: Node) -> None:
        """Raises `PATTERN`, at the pattern's position in the rule, for a LIKE pattern that Spark refuses."""
        try:
            check_like(pattern, escape, ignore_case, self.tokens.work)
        except RuleError as error:
            raise self.error(error.error, error.message, node) from None

    def refuse_rlike(self, pattern: str, node: Node) -> None:
        """Raises `PATTERN`, at the pattern's position in the rule, for a regular expression that is refused."""
        try:
            check_rlike(pattern, self.tokens.work)
        except RuleError as error:
            raise self.error(error.error, error.message, node) from None
        if is_only_java(pattern) and not is_safe_in_java(pattern):
            raise self.error(
                "PATTERN",
                "Only Spark can match a pattern with \\B, \\p{In...}, \\p{block=...} or \\p{java...}. This one could "
                "take very long on some values; simplify its repetitions, or write it without.",
                node,
            )

    def _rlike(self, node: Node) -> Value:
        value, pattern = self.value(node.children[0]), self.pattern(node.children[1])
        if pattern is None:
            return Value(node, BOOLEAN)
        self.refuse_rlike(pattern, node.children[1])
        is_here = value.type == STRING and not value.collated and not is_only_java(pattern)
        subject = value.local if is_here else None
        return self._negated(
            Value(node, BOOLEAN, operations.operation("rlike", [subject], BOOLEAN, pattern)), node.value
        )

    def _is(self, node: Node) -> Value:
        word, negated = node.value
        if word == "NULL":
            tree = operations.null_test(node.children[0], self.value(node.children[0]).local)
            return self._negated(Value(node, BOOLEAN, tree), negated)
        tree = self.truth(node.children[0])
        if word == "UNKNOWN":
            return self._negated(Value(node, BOOLEAN, operations.null_test(node.children[0], tree)), negated)
        constant = Constant(word == "TRUE", BOOLEAN)
        return self._negated(Value(node, BOOLEAN, operations.operation("<=>", [tree, constant], BOOLEAN)), negated)

    # Computation

    def cast(self, node: Node, value: Value, target: Type, quiet: bool = False) -> Value:
        """The value of an explicit cast; `quiet` for TRY_CAST, which hides no error of the value itself."""
        if not can_be_cast(value.type, target):
            raise self.error("TYPE_MISMATCH", f"{name_of(value.type)} cannot be cast to {name_of(target)}.", node)
        refuse_times_of_day(self, target, (value,))
        if target is None or value.collated or (target == STRING and value.type == BINARY):
            return Value(node, target, None, True)
        tree = None
        if value.local is not None:
            tree = operations.cast_or_raise(value.local, target, self.scope.time_zone)
        return Value(node, target, operations.quiet(tree) if quiet and value.type != target else tree)

    def _collate(self, node: Node) -> Value:
        self.value(node.children[0])
        return Value(node, STRING, None, True)

    def _case(self, node: Node) -> Value:
        children = list(node.children)
        operand = children.pop(0) if node.value else None
        otherwise = children.pop() if len(children) % 2 else None
        conditions: list[Expression | None] = []
        for child in children[::2]:
            if operand is None:
                conditions.append(self.truth(child, (BOOLEAN,)))
            else:
                conditions.append(self.comparison(node, "=", operand, child).local)
        results = [self.value(child) for child in children[1::2]]
        if otherwise is not None:
            results.append(self.value(otherwise))
        return self.choice(node, conditions, results)

    def choice(self, node: Node, conditions: list[Expression | None], results: list[Value]) -> Value:
        """The value of CASE: one result for each condition and, if there is one more, the one for ELSE."""
        common = self.common_of(node, results)
        collated = any(value.collated for value in results)
        if common is None or common == NULL or is_nested(common):
            return Value(node, common, None, collated)
        zone = self.scope.time_zone
        trees = [None if each.local is None else operations.as_type(each.local, common, zone) for each in results]
        operands: list[Expression | None] = []
        for condition, tree in zip(conditions, trees, strict=False):
            operands += [condition, tree]
        operands.append(trees[-1] if len(trees) > len(conditions) else Constant(None, common))
        outcomes = [*operands[1::2], operands[-1]]
        if len(set(outcomes)) < len(outcomes) and any(each and operations.can_raise(each) for each in operands[:-1:2]):
            return Value(node, common, None, collated)  # Spark does not evaluate a condition that decides nothing
        return Value(node, common, operations.operation("case", operands, common), collated)
