"""Turns nodes into a formula over predicates on attributes, in three-valued logic."""

from __future__ import annotations

from collections.abc import Hashable

from rules_index.domains.values import EVERYTHING, NAN_KEY, NOTHING, ValueSet, interval, points, union
from rules_index.language import (
    branches,
    constants,
    intervals,
    moved_casts,
    operations,
    pattern_formulas,
    special_calls,
)
from rules_index.language.analyser import Analyser
from rules_index.language.analysis import Value, evaluated_once
from rules_index.language.array_calls import as_in
from rules_index.language.coercion import BOOLEAN, NULL, STRING, Type, is_float, name_of
from rules_index.language.connectives import CONDITIONS, operands
from rules_index.language.formula import And, Fixed, Formula, Or, Predicate, Truth, predicates_of
from rules_index.language.nodes import Node, inside, is_never_null
from rules_index.language.simplified_casts import past_float
from rules_index.language.truth_tests import FALSE, TRUE, are_proven, fixed, is_plain, negate, truth_test, with_null
from rules_index.language.typed import OPERAND, Constant, Expression, Leaf, Operation, leaves_of

_CALLS = frozenset(("like", "ilike", "rlike", "regexp", "regexp_like"))
_STEPS_OF_CAST = 8
"""Steps of work for a value in a list that has to be cast."""

MOST_REMEMBERED = 1 << 16
"""The most comparisons that a compiler caches."""


class Splitter:
    """Turns the nodes of one rule into a formula."""

    def __init__(self, analyser: Analyser, known: dict[Hashable, Formula] | None = None) -> None:
        self.analyser = analyser
        self.known = {} if known is None else known
        self.zone = analyser.scope.time_zone

    def rule(self, node: Node) -> Formula:
        """The formula of a whole rule, which must be BOOLEAN without a cast."""
        if node.kind not in CONDITIONS:
            value = self.analyser.value(node)
            if value.type not in (BOOLEAN, None):
                raise self.analyser.error(
                    "NOT_BOOLEAN", f"A rule must be a condition, and this is {name_of(value.type)}.", node
                )
            if value.type is None:
                return Predicate(self.analyser.derived(node, BOOLEAN), TRUE, FALSE, Truth.NULL)
        return self.formula(node)

    def formula(self, node: Node) -> Formula:
        """The formula of a node that must be BOOLEAN, or a STRING or NULL that Spark casts to it."""
        if node.kind in ("and", "or"):
            return self._connective(node)
        if node.kind == "not":
            return negate(self.formula(node.children[0]))
        formula = self._condition(node)
        if node.kind != "in_list" and self._has_moved_operation(node, formula):
            return Predicate(self._derived_condition(self.analyser.value(node)), TRUE, FALSE, Truth.NULL)
        return formula

    def _has_moved_operation(self, node: Node, formula: Formula) -> bool:
        """Whether Spark may move an operation of a condition into the branches of a CASE, here or in a derived
        column."""
        attributes = [each.attribute for each in predicates_of(formula)]
        if any(map(branches.is_moved_into_branches, attributes)):
            return True
        leaves = [leaf for each in attributes for leaf in leaves_of(each) if leaf.type != BOOLEAN]
        texts = [leaf.text for leaf in leaves if leaf.text is not None]
        return bool(texts) and any(
            self.analyser.text(each) in text
            for each in inside(node)
            if branches.has_literal_branches(each)
            for text in texts
        )

    def _condition(self, node: Node) -> Formula:
        """The formula of a condition that is no connective."""
        kind = node.kind
        if kind == "compare":
            return self._remembered(node)
        if kind == "distinct":
            return self._distinct(node)
        if kind == "between":
            return self._between(node)
        if kind == "in":
            return self._in(node)
        if kind == "like":
            return pattern_formulas.like(self.analyser, node) or self._whole(node)
        if kind == "rlike":
            return pattern_formulas.rlike(self.analyser, node) or self._whole(node)
        if kind == "is":
            return self._is(node)
        if kind == "call":
            return self._call(node)
        if kind == "beside":
            return self._beside(node)
        return self._whole(node)

    def _connective(self, node: Node) -> Formula:
        formulas = tuple(self.formula(child) for child in operands(self.analyser, node))
        if len(formulas) == 1:
            return formulas[0]
        if are_proven(formulas):
            return Predicate(self.analyser.derived(node, BOOLEAN), TRUE, FALSE, Truth.NULL)
        return And(formulas) if node.kind == "and" else Or(formulas)

    def _beside(self, node: Node) -> Formula:
        """Two operands of a connective as one Boolean attribute, which Spark evaluates as a whole."""
        first, second = map(self.analyser.text, node.children)
        text, whole = (
            f"({first}) {node.value.upper()} ({second})",
            Node(node.value, [], node.children, node.first, node.last),
        )
        return Predicate(self.analyser.derived_text(whole, BOOLEAN, text), TRUE, FALSE, Truth.NULL)

    def _whole(self, node: Node) -> Formula:
        """A node as one Boolean attribute, evaluated as a whole."""
        return self._boolean(self.analyser.value(node))

    def _boolean(self, value: Value) -> Formula:
        if value.type == NULL:
            return Fixed(Truth.NULL)
        if value.type not in (BOOLEAN, STRING, None):
            raise self.analyser.error(
                "NOT_BOOLEAN", f"A condition is needed here, and this is {name_of(value.type)}.", value.node
            )
        tree = operations.condition(value.local, value.type, self.zone)
        if isinstance(tree, Constant):
            return fixed(tree)
        if isinstance(tree, Operation) and tree.name == "not":
            return negate(Predicate(tree.operands[0], TRUE, FALSE, Truth.NULL))
        return Predicate(tree or self._derived_condition(value), TRUE, FALSE, Truth.NULL)

    def _derived_condition(self, value: Value) -> Leaf:
        """The derived column of a condition. A value whose type only Spark knows may be a STRING, which Spark casts in
        an AND, though not as a whole rule."""
        form = {BOOLEAN: "{}", STRING: "CAST({} AS BOOLEAN)"}.get(value.type, OPERAND)
        return self.analyser.derived(value.node, BOOLEAN, form)

    # Comparisons

    def _remembered(self, node: Node) -> Formula:
        """The formula of a comparison. That of a column with a literal is cached, and so compiled once for all rules of
        the scope."""
        left, right = node.children
        if left.kind == "column" and right.kind == "literal":
            key = (node.value, left.value, right.value)
        elif left.kind == "literal" and right.kind == "column":
            key = (constants.FLIPPED[node.value], right.value, left.value)
        else:
            return self._comparison(node, node.value, left, right)
        formula = self.known.get(key)
        if formula is None:
            formula = self._comparison(node, node.value, left, right)
            if len(self.known) < MOST_REMEMBERED and is_plain(formula):
                self.known[key] = formula
        return formula

    def _comparison(self, node: Node, operator: str, left: Node, right: Node) -> Formula:
        if left.kind == "row" and right.kind == "row" and operator in ("=", "<>", "<=>"):
            formula = self._rows_equal(node, left, right)
            if formula is not None:
                return negate(formula) if operator == "<>" else formula
        first, second = self.analyser.value(left), self.analyser.value(right)
        return self.compare(node, operator, first, second) or self._whole(node)

    def _distinct(self, node: Node) -> Formula:
        left, right = node.children
        formula = None
        if left.kind == "row" and right.kind == "row":
            formula = self._rows_equal(node, left, right)
        if formula is None:
            formula = self.compare(node, "<=>", self.analyser.value(left), self.analyser.value(right))
        if formula is None:
            return self._whole(node)
        return formula if node.value else negate(formula)

    def compare(self, node: Node, operator: str, left: Value, right: Value) -> Formula | None:
        """A comparison as a predicate on the side that is not constant; None if it must be evaluated as a whole."""
        left, right = intervals.in_micros(self.analyser, [left, right])
        common = self.analyser.common(node, left, right)
        decided = self.analyser.decided(operator, left, right)
        if decided is not None:
            return Fixed(Truth(int(decided)))
        if branches.is_never_true(operator, left.local, right.local, self.zone):
            return None
        if isinstance(left.local, Constant):
            left, right, operator = right, left, constants.FLIPPED[operator]
        constant = right.local
        if common is None or not isinstance(constant, Constant):
            return None
        if isinstance(left.local, Constant):
            tree = operations.compared(operator, left.local, constant, common, self.zone)
            return fixed(tree) if isinstance(tree, Constant) else None
        attribute = self.analyser.attribute(left)
        if attribute is None:
            return None
        if constant.value is None:
            is_sure = operations.is_sure(attribute.type, common) and not operations.can_raise(attribute)
            if operator == "<=>" and not is_sure:
                return None
            return with_null(operator, attribute)
        coerced = constants.cast(constant, common, self.zone)
        if coerced is None:
            return None
        found = moved_casts.cut(self.analyser, operator, left, attribute, coerced, self.zone)
        if found is None or operations.may_skip(operator, attribute, coerced):
            return None
        attribute, low, high = found
        true = constants.comparison(operator, low, high, attribute.type)
        return Predicate(attribute, true, ~true, Truth.FALSE if operator == "<=>" else Truth.NULL)

    def _rows_equal(self, node: Node, left: Node, right: Node) -> Formula | None:
        """Equality of two row values: in all pairs both are equal, or both NULL. None if it must be evaluated as a
        whole, because types differ (which Spark may refuse), only Spark can compare a pair, or a value can raise: Spark
        evaluates all values of a row, also if the first ones differ."""
        if len(left.children) != len(right.children):
            raise self.analyser.error("TYPE_MISMATCH", "The two rows have different numbers of values.", node)
        parts = []
        for left_child, right_child in zip(left.children, right.children, strict=True):
            first, second = self.analyser.value(left_child), self.analyser.value(right_child)
            if first.type != second.type:
                return None
            part = self.compare(node, "<=>", first, second)
            if part is None or any(operations.can_raise(each.attribute) for each in predicates_of(part)):
                return None
            parts.append(part)
        return And(tuple(parts))

    def _between(self, node: Node) -> Formula:
        subject, low, high = (self.analyser.value(child) for child in node.children)
        subject = evaluated_once(subject)
        least = self.compare(node, ">=", subject, low)
        most = self.compare(node, "<=", subject, high)
        if least is None or most is None:
            return self._whole(node)
        if isinstance(least, Predicate) and isinstance(most, Predicate) and least.attribute == most.attribute:
            both: Formula = Predicate(least.attribute, least.true & most.true, least.false | most.false, Truth.NULL)
        else:
            both = And((least, most))
        return negate(both) if node.value else both

    def _in(self, node: Node) -> Formula:
        if node.children[0].kind == "row":
            return self._row_in(node)
        values = intervals.in_micros(self.analyser, [self.analyser.value(child) for child in node.children])
        common = self.analyser.common_of(node, values)
        subject = values[0]
        if common is None or isinstance(subject.local, Constant):
            return self._whole(node)
        attribute = self.analyser.attribute(subject)
        if attribute is None or moved_casts.is_moved_in_list(self.analyser, values, common, self.zone):
            return self._whole(node)
        attribute = past_float(attribute, common)
        if attribute is None:
            return self._whole(node)
        members = self._members(attribute, common, values[1:])
        if members is None:
            return self._whole(node)
        if all(isinstance(value.local, Constant) and value.local.value is None for value in values[1:]):
            return with_null("=", attribute)
        true, has_null = members
        formula = Predicate(attribute, true, NOTHING if has_null else ~true, Truth.NULL)
        return negate(formula) if node.value else formula

    def _members(self, attribute: Expression, common: Type, values: list[Value]) -> tuple[ValueSet, bool] | None:
        """The values of an attribute that are in a list of constants, and whether NULL is in the list; None if Spark
        must decide."""
        column = attribute.type
        work = self.analyser.tokens.work
        sets: list[ValueSet] = []
        keys = []
        has_null = False
        for value in values:
            if not isinstance(value.local, Constant):
                return None
            if not value.type == common == column:
                work.spend(_STEPS_OF_CAST)
            constant = constants.cast(value.local, common, self.zone)
            if constant is None:
                return None
            if constant.value is None:
                has_null = True
                continue
            if column == common:
                keys.append(constants.key_of(constant))
                continue
            bounds = constants.cut(column, constant, self.zone)
            if bounds is None or operations.may_skip("=", attribute, constant):
                return None
            sets.append(interval(*bounds))
        members = union([points(keys), *sets]) if sets else points(keys)
        return constants.clamp(members, column), has_null

    def _row_in(self, node: Node) -> Formula:
        """`(a, b) IN ((1, 2), (3, 4))` as an OR of row equalities, if every list item is a row."""
        left, *rows = node.children
        alternatives = []
        for row in rows:
            part = self._rows_equal(node, left, row) if row.kind == "row" else None
            if part is None:
                return self._whole(node)
            alternatives.append(part)
        return negate(Or(tuple(alternatives))) if node.value else Or(tuple(alternatives))

    # NULL and truth tests, calls

    def _is(self, node: Node) -> Formula:
        word, negated = node.value
        child = node.children[0]
        if word in ("NULL", "UNKNOWN") and is_never_null(child):
            return self._of_never_null(node, negated)
        if word == "NULL" and child.kind not in CONDITIONS:
            formula = self._is_null(self.analyser.value(child))
            return negate(formula) if negated else formula
        inner = self.formula(child)
        if isinstance(inner, Fixed):
            wanted = Truth.NULL if word in ("UNKNOWN", "NULL") else Truth[word]
            return Fixed(Truth(int((inner.truth == wanted) != negated)))
        if not isinstance(inner, Predicate) or (word in ("NULL", "UNKNOWN") and operations.can_raise(inner.attribute)):
            return self._whole(node)  # no error is raised if Spark knows that the value is never NULL
        formula = truth_test(inner, word)
        return negate(formula) if negated else formula

    def _of_never_null(self, node: Node, truth: bool) -> Formula:
        """A NULL test, with the result `truth`, of a condition that is never NULL. If only Spark can evaluate the
        condition, it also evaluates the test."""
        sound = self.analyser.value(node.children[0]).local is not None
        return Fixed(Truth(int(truth))) if sound else self._whole(node)

    def _is_null(self, value: Value) -> Formula:
        if isinstance(value.local, Constant):
            return Fixed(Truth(int(value.local.value is None)))
        if value.local is None or operations.can_raise(value.local):
            # if Spark knows that the value is never NULL, it does not evaluate it, and no error is raised
            return Predicate(self.analyser.derived(value.node, BOOLEAN, "({}) IS NULL"), TRUE, FALSE, Truth.NULL)
        if self.analyser.attribute(value) is None:
            return Predicate(Operation("is_null", (value.local,), BOOLEAN), TRUE, FALSE, Truth.NULL)
        return Predicate(value.local, NOTHING, EVERYTHING, Truth.TRUE)

    def _call(self, node: Node) -> Formula:
        """A function call as the operator that it is equivalent to, or else as one Boolean attribute."""
        value = self.analyser.value(node)
        name = node.value
        if name in _CALLS:
            return self.formula(special_calls.as_operator(self.analyser, node))
        among = as_in(self.analyser, node) if name == "array_contains" else None
        if among is not None:
            return self.formula(among)
        if name in ("isnull", "isnotnull") and is_never_null(node.children[0]):
            return self._of_never_null(node, name == "isnotnull")
        if name in ("isnull", "isnotnull"):
            formula = self._is_null(self.analyser.value(node.children[0]))
            return formula if name == "isnull" else negate(formula)
        if name == "equal_null":
            first, second = (self.analyser.value(child) for child in node.children)
            return self.compare(node, "<=>", first, second) or self._boolean(value)
        if name == "isnan":
            attribute = self.analyser.attribute(self.analyser.value(node.children[0]))
            if attribute is not None and is_float(attribute.type):
                true = ValueSet(False, (NAN_KEY,))
                return Predicate(attribute, true, ~true, Truth.FALSE)
        if name in ("startswith", "contains", "endswith"):
            return pattern_formulas.affix(self.analyser, node) or self._boolean(value)
        return self._boolean(value)
