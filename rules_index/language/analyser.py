"""Nodes to typed values: names resolved, types checked, functions allowed or refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pyarrow as pa

from rules_index.errors import RuleError
from rules_index.language import calls, constants, operations
from rules_index.language.analysis import Value, evaluated_once
from rules_index.language.coercion import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    NULL,
    STRING,
    IncompatibleTypesError,
    Type,
    arithmetic_type,
    can_be_cast,
    common_of_all,
    common_type,
    is_decimal,
    is_integer,
    is_nested,
    is_number,
    literal_type,
    name_of,
)
from rules_index.language.costs.bounder import Bounder, check_costs
from rules_index.language.evaluation import functions
from rules_index.language.functions import NOT_REPEATABLE, PLAIN_NAMES
from rules_index.language.nodes import Node
from rules_index.language.patterns import check_like, check_rlike, is_only_java, is_safe_in_java
from rules_index.language.results import item_type
from rules_index.language.scope import Scope, field_of, path_of, quote
from rules_index.language.tokens import TOKENS_A_STEP, Tokens
from rules_index.language.typed import Constant, Expression, Leaf, Operation

FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
"""The operator that says the same with its sides exchanged."""

MAX_BRACKETS = 100
"""Deepest nesting of brackets in a text handed to Spark."""
MAX_OPERATORS = 1000
"""Most operators in a text handed to Spark, whose own parser and planner recurse over chains of them."""

MAX_TREE_DEPTH = 100
"""Deepest tree that is evaluated without Spark."""
SMALL_TREE = 256
"""Nodes of a tree that is evaluated without Spark whatever its text."""
MAX_TREE_GROWTH = 4
"""Most nodes for each token of its text of a larger one."""

_OPENING = frozenset("([")
_CLOSING = frozenset(")]")
_CHAINED = frozenset(("AND", "OR", "+", "-", "*", "/", "||", "%", "|", "&", "^", "NOT", "[", "."))


class Analyser:
    """Turns the nodes of one rule into values."""

    def __init__(self, tokens: Tokens, scope: Scope) -> None:
        self.tokens = tokens
        self.scope = scope
        self.variables: list[dict[str, Type]] = []
        self.bounders: list[Bounder] = []
        self._values: dict[Node, Value] = {}
        self._kinds: dict[str, Callable[[Node], Value]] = {
            "literal": lambda node: Value(node, node.value.type, node.value),
            "opaque": lambda node: Value(node, node.value),
            "column": self._column,
            "and": self._connective,
            "or": self._connective,
            "not": self._connective,
            "compare": lambda node: self.comparison(node, node.value, node.children[0], node.children[1]),
            "distinct": self._distinct,
            "between": self._between,
            "in": self._in,
            "like": self._like,
            "rlike": self._rlike,
            "is": self._is,
            "arithmetic": self._arithmetic,
            "unary": self._unary,
            "cast": self._cast,
            "collate": self._collate,
            "case": self._case,
            "call": lambda node: calls.call(self, node),
            "lambda": self._lambda,
            "field": self._field,
            "subscript": self._subscript,
            "row": self._row,
        }

    def value(self, node: Node) -> Value:
        """The typed value of a node, worked out once; raises `RuleError` where the node is refused."""
        value = self._values.get(node)
        if value is None:
            value = self._values[node] = self._kinds[node.kind](node)
            if value.local is not None and not self._is_near(node, value.local):
                value.local = None
        return value

    def _is_near(self, node: Node, tree: Expression) -> bool:
        """Whether a tree is not much larger than its text, and flat enough to be walked.

        A tree may hold a part several times (the value of NULLIF or BETWEEN): nested, its size would double each time.
        """
        if not isinstance(tree, Operation):
            return True
        return tree.depth <= MAX_TREE_DEPTH and tree.size <= max(
            SMALL_TREE, MAX_TREE_GROWTH * (node.last - node.first + 1)
        )

    def make_value(self, node: Node, data_type: Type, tree: Expression | None = None, collated: bool = False) -> Value:
        """A value of this type; without a tree outside of Spark's reach, or inside a lambda."""
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
        """The author's words for a node: comments left out, any space between tokens one blank."""
        tokens = self.tokens
        tokens.work.spend((node.last - node.first) // TOKENS_A_STEP, tokens.starts[node.first])
        depth = deepest = chained = 0
        parts: list[str] = []
        behind = tokens.ends[node.first]
        for index in range(node.first, node.last + 1):
            kind = tokens.kinds[index]
            if kind in _OPENING:
                depth += 1
                deepest = max(deepest, depth)
            elif kind in _CLOSING:
                depth -= 1
            chained += kind in _CHAINED
            if tokens.starts[index] > behind:
                parts.append(" ")
            parts.append(self._token(index))
            behind = tokens.ends[index]
        if deepest > MAX_BRACKETS or chained > MAX_OPERATORS:
            raise self._too_deep(node)
        return "".join(parts)

    def _too_deep(self, node: Node) -> RuleError:
        return self.error(
            "TOO_DEEP",
            f"This part is evaluated by Spark, which takes at most {MAX_BRACKETS} nested brackets and "
            f"{MAX_OPERATORS:,} operators in one value. Split it.",
            node,
        )

    def _token(self, index: int) -> str:
        """One token's text; `${` in a string is written so that Spark substitutes no variable for it."""
        spelling = self.tokens.spelling(index)
        if "${" not in spelling:
            return spelling
        if spelling[0] not in "'\"":
            raise RuleError(
                "NOT_ALLOWED",
                "${...} would be replaced by a variable of the session here; write it in a plain string.",
                self.tokens.starts[index],
            )
        return spelling.replace("${", "\\u0024{")

    def derived(self, node: Node, data_type: pa.DataType, form: str = "{}") -> Leaf:
        """The column that Spark evaluates for a node, which must not need too much; `form` is put around its text."""
        return self.derived_text(node, data_type, form.replace("{}", self.text(node)))

    def derived_text(self, node: Node, data_type: pa.DataType, text: str) -> Leaf:
        """The column that Spark evaluates for a text, which needs no more than a node."""
        check_costs(self, self.bounders, node)
        digest = hashlib.sha256(f"{text}\0{data_type}".encode()).hexdigest()[:16]
        return Leaf(f"derived_{digest}", data_type, text)

    def attribute(self, value: Value) -> Expression | None:
        """The expression whose values the index may code for a value, None where Spark must compare it."""
        if value.type is None or value.collated or not constants.has_keys(value.type):
            return None
        if value.local is not None:
            return value.local
        return None if self.variables else self.derived(value.node, value.type)

    # Names

    def _column(self, node: Node) -> Value:
        parts: tuple[str, ...] = node.value
        position = self.tokens.starts[node.first]
        for variables in reversed(self.variables):
            if parts[0].lower() in variables:
                return self._path(node, variables[parts[0].lower()], None, parts[1:])
        name = parts[0].lower()
        if len(parts) == 1 and not self.scope.has(name) and name in PLAIN_NAMES and name in NOT_REPEATABLE:
            raise calls.not_repeatable(name, position)
        spelling, data_type = self.scope.column(parts[0], position)
        return self._path(node, data_type, [spelling], parts[1:])

    def _path(self, node: Node, data_type: Type, path: list[str] | None, parts: tuple[str, ...]) -> Value:
        """Walk down the fields named behind a column or variable; `path` is None once it is no plain field."""
        position = self.tokens.starts[node.first]
        for part in parts:
            if data_type is None:
                return Value(node, None)
            if pa.types.is_struct(data_type):
                spelling, data_type = field_of(data_type, part, position)
                path = None if path is None else [*path, spelling]
                continue
            data_type, path = self._extracted(node, data_type, part), None
        if path is None or data_type is None or self.variables:
            return Value(node, data_type)
        return Value(node, data_type, self.scope.leaf(path_of(path), data_type))

    def _extracted(self, node: Node, base: pa.DataType, name: str) -> Type:
        """The type of `.name` on a map, or on an array of structs."""
        if pa.types.is_map(base):
            return item_type(base)
        if pa.types.is_list(base) and pa.types.is_struct(base.value_type):
            item = field_of(base.value_type, name, self.tokens.starts[node.first])[1]
            return None if item is None else pa.list_(item)
        raise self.error("TYPE_MISMATCH", f"{name_of(base)} has no fields, so {name!r} cannot be taken from it.", node)

    def _field(self, node: Node) -> Value:
        base = self.value(node.children[0])
        if base.type is None:
            return Value(node, None, None, base.collated)
        if pa.types.is_struct(base.type):
            return self._field_of(node, base, node.value)
        return Value(node, self._extracted(node, base.type, node.value), None, base.collated)

    def _field_of(self, node: Node, base: Value, name: str) -> Value:
        """The value of a field of a STRUCT."""
        assert isinstance(base.type, pa.StructType)
        spelling, data_type = field_of(base.type, name, self.tokens.starts[node.first])
        if isinstance(base.local, Leaf) and base.local.text is None and data_type is not None:
            path = f"{base.local.name}.{quote(spelling)}"
            return Value(node, data_type, self.scope.leaf(path, data_type))
        return Value(node, data_type, None, base.collated)

    def _subscript(self, node: Node) -> Value:
        base, index = self.value(node.children[0]), self.value(node.children[1])
        if base.type is not None and pa.types.is_struct(base.type):
            name = index.local.value if isinstance(index.local, Constant) else None
            return self._field_of(node, base, name) if isinstance(name, str) else Value(node, None)
        if base.type is not None and item_type(base.type) is None and not is_nested(base.type):
            raise self.error("TYPE_MISMATCH", f"{name_of(base.type)} has no items to take with [ ].", node)
        return Value(node, item_type(base.type), None, base.collated or index.collated)

    def _lambda(self, node: Node) -> Value:
        raise self.error(
            "NOT_ALLOWED",
            "A lambda may stand only as an argument of exists, forall, filter, transform, aggregate or reduce.",
            node,
        )

    def body(self, node: Node, types: list[Type]) -> Value:
        """The value of a lambda's body, its parameters having these types."""
        names: tuple[str, ...] = node.value
        if len(names) > len(types):
            raise self.error("TYPE_MISMATCH", f"This lambda takes at most {len(types)} parameters.", node)
        self.variables.append({name.lower(): kind for name, kind in zip(names, types, strict=False)})
        try:
            return self.value(node.children[0])
        finally:
            self.variables.pop()

    def _row(self, node: Node) -> Value:
        for child in node.children:
            self.value(child)
        return Value(node, None)

    # Truth values

    def condition(self, node: Node) -> Value:
        """The value of a node that must be BOOLEAN (or a STRING, which Spark casts)."""
        value = self.value(node)
        if value.type not in (BOOLEAN, NULL, STRING, None):
            raise self.error("NOT_BOOLEAN", f"A condition is needed here, not {name_of(value.type)}.", node)
        return value

    def truth(self, node: Node) -> Expression | None:
        """The tree of a condition, None where only Spark can evaluate it."""
        value = self.condition(node)
        if value.type == NULL:
            return Constant(None, BOOLEAN)
        return value.local if value.type == BOOLEAN else None

    def _connective(self, node: Node) -> Value:
        operands = [self.truth(child) for child in node.children]
        return Value(node, BOOLEAN, operations.operation(node.kind, operands, BOOLEAN))

    def _negated(self, value: Value, negated: bool) -> Value:
        if not negated or value.local is None:
            return value
        return Value(value.node, BOOLEAN, operations.operation("not", [value.local], BOOLEAN))

    def comparison(self, node: Node, operator: str, left: Node, right: Node) -> Value:
        """The value of a comparison."""
        return self.compared(node, operator, self.value(left), self.value(right))

    def compared(self, node: Node, operator: str, first: Value, second: Value) -> Value:
        """The value of a comparison of two values."""
        common = self.common(node, first, second)
        tree: Expression | None = None
        decided = self.decided(operator, first, second)
        if decided is not None:
            return Value(node, BOOLEAN, Constant(decided, BOOLEAN))
        if common is not None and first.local is not None and second.local is not None:
            tree = operations.compared(operator, first.local, second.local, common, self.scope.time_zone)
        return Value(node, BOOLEAN, tree)

    def decided(self, operator: str, left: Value, right: Value) -> bool | None:
        """The truth of an integer's comparison with a DECIMAL literal beyond every BIGINT, else None."""
        if is_integer(left.type) and right.node.kind == "literal":
            return operations.beyond_integers(FLIPPED[operator], right.node.value)
        if is_integer(right.type) and left.node.kind == "literal":
            return operations.beyond_integers(operator, left.node.value)
        return None

    def common(self, node: Node, left: Value, right: Value) -> Type:
        """The type in which two values are compared, None where only Spark may compare them."""
        first, second = _beside(left, right.type), _beside(right, left.type)
        try:
            common = common_type(first, second)
        except IncompatibleTypesError:
            raise self.incompatible(node, left.type, right.type) from None
        return None if left.collated or right.collated else common

    def _distinct(self, node: Node) -> Value:
        value = self.comparison(node, "<=>", node.children[0], node.children[1])
        return self._negated(value, not node.value)

    def _between(self, node: Node) -> Value:
        subject, low, high = (self.value(child) for child in node.children)
        subject = evaluated_once(subject)
        least = self.compared(node, ">=", subject, low).local
        most = self.compared(node, "<=", subject, high).local
        return self._negated(Value(node, BOOLEAN, operations.operation("and", [least, most], BOOLEAN)), node.value)

    def _in(self, node: Node) -> Value:
        values = [self.value(child) for child in node.children]
        common = self.common_of(node, values)
        tree = None
        if common is not None and constants.has_keys(common):
            zone = self.scope.time_zone
            operands = [None if each.local is None else operations.as_type(each.local, common, zone) for each in values]
            tree = operations.operation("in", operands, BOOLEAN)
        return self._negated(Value(node, BOOLEAN, tree), node.value)

    def common_of(self, node: Node, values: list[Value]) -> Type:
        """The common type of a list of values, None where only Spark may compare them."""
        try:
            common = common_of_all([value.type for value in values])
        except IncompatibleTypesError:
            shown = ", ".join(sorted({name_of(value.type) for value in values}))
            raise self.error("TYPE_MISMATCH", f"These values have no common type: {shown}.", node) from None
        return None if any(value.collated for value in values) else common

    def pattern(self, node: Node) -> str | None:
        """The text of a pattern, which must be constant; None for NULL."""
        value = self.value(node)
        if isinstance(value.local, Constant):
            text = constants.cast(value.local, STRING, self.scope.time_zone)
            if text is not None:
                return None if text.value is None else str(text.value)
        raise self.error("PATTERN", "A pattern must be a constant string: it is checked before any row is read.", node)

    def subject(self, node: Node, value: Value) -> Expression | None:
        """The STRING that a pattern is matched with, as an attribute; None where Spark must match."""
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
        matches: list[Expression | None] = []
        for child in node.children[1:]:
            pattern = self.pattern(child)
            if pattern is not None:
                self.check_like(pattern, escape, word == "ILIKE", child)
            subject = value.local if value.type == STRING and not value.collated else None
            match: Expression | None = Constant(None, BOOLEAN)
            if pattern is not None:
                match = operations.operation("like", [subject], BOOLEAN, pattern, escape, word == "ILIKE")
            matches.append(operations.operation("not", [match], BOOLEAN) if negated else match)
        if len(matches) == 1:
            return Value(node, BOOLEAN, matches[0])
        return Value(node, BOOLEAN, operations.operation("and" if quantifier == "ALL" else "or", matches, BOOLEAN))

    def check_like(self, pattern: str, escape: str, ignore_case: bool, node: Node) -> None:
        """Raise `PATTERN`, at the pattern's place in the rule, for a LIKE pattern that Spark refuses."""
        try:
            check_like(pattern, escape, ignore_case)
        except RuleError as error:
            raise self.error("PATTERN", error.message, node) from None

    def check_rlike(self, pattern: str, node: Node) -> None:
        """Raise `PATTERN`, at the pattern's place in the rule, for a regular expression that is refused."""
        try:
            check_rlike(pattern, self.tokens.work)
        except RuleError as error:
            raise self.error(error.error, error.message, node) from None
        if is_only_java(pattern) and not is_safe_in_java(pattern):
            raise self.error(
                "PATTERN",
                "Only Spark can match a pattern with \\B, and this one could take very long on some values; simplify "
                "its repetitions, or write it without \\B.",
                node,
            )

    def _rlike(self, node: Node) -> Value:
        value, pattern = self.value(node.children[0]), self.pattern(node.children[1])
        if pattern is None:
            return Value(node, BOOLEAN)
        self.check_rlike(pattern, node.children[1])
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

    def _arithmetic(self, node: Node) -> Value:
        if len(node.value) > MAX_OPERATORS:
            raise self._too_deep(node)
        values = [self.value(child) for child in node.children]
        collated = any(value.collated for value in values)
        value = values[0]
        is_short = len(values) <= operations.MAX_CHAIN
        for operator, right in zip(node.value, values[1:], strict=True):
            value = self._binary(node, operator, value, right, is_short)
        return Value(node, value.type, value.local, collated)

    def _binary(self, node: Node, operator: str, left: Value, right: Value, with_tree: bool) -> Value:
        first, second = _beside(left, right.type), _beside(right, left.type)
        result = arithmetic_type(operator, first, second)
        for value in (left, right):
            if operator != "||" and (value.type == BOOLEAN or is_nested(value.type)):
                raise self.error("TYPE_MISMATCH", f"{operator} does not work with {name_of(value.type)}.", value.node)
        tree = None
        if with_tree and left.local is not None and right.local is not None and result is not None:
            tree = operations.arithmetic(operator, left.local, right.local, result, self.scope.time_zone)
            if operator == "||" and isinstance(left.local, Constant) and isinstance(right.local, Constant):
                texts = (left.local.value, right.local.value)
                tree = Constant(None if None in texts else "".join(texts), STRING)
            elif operator == "||" and not left.collated and not right.collated:
                tree = functions.build("concat", [left.local, right.local], result, self.scope.time_zone)
        return Value(node, result, tree)

    def _unary(self, node: Node) -> Value:
        value = self.value(node.children[0])
        if value.type == BOOLEAN or is_nested(value.type):
            raise self.error("TYPE_MISMATCH", f"{node.value} does not work with {name_of(value.type)}.", node)
        if value.type == STRING and node.value != "~":
            return Value(node, DOUBLE)
        if not is_number(value.type):
            return Value(node, None, None, value.collated)
        if node.value == "~":
            return Value(node, value.type if is_integer(value.type) else None)
        if node.value == "+":
            return Value(node, value.type, value.local)
        return Value(node, value.type, None if value.local is None else operations.negated(value.local))

    def _cast(self, node: Node) -> Value:
        target, quiet = node.value
        value = self.value(node.children[0])
        return self.cast(node, value, target, quiet)

    def cast(self, node: Node, value: Value, target: Type, quiet: bool = False) -> Value:
        """The value of an explicit cast; `quiet` for TRY_CAST."""
        if not can_be_cast(value.type, target):
            raise self.error("TYPE_MISMATCH", f"{name_of(value.type)} cannot be cast to {name_of(target)}.", node)
        if target is None or value.collated or (target == STRING and value.type == BINARY):
            return Value(node, target, None, True)
        tree = None
        if value.local is not None and not quiet:
            tree = operations.as_type(value.local, target, self.scope.time_zone)
        return Value(node, target, tree)

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
                conditions.append(self.truth(child))
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
        return Value(node, common, operations.operation("case", operands, common), collated)


def _beside(value: Value, other: Type) -> Type:
    """The type of a value that meets one of another type."""
    if is_decimal(other) and is_integer(value.type) and value.node.kind == "literal":
        return literal_type(value.node.value.value, value.type)
    return value.type
