"""Formulas of LIKE, RLIKE, `startswith`, `contains` and `endswith`.

Each function returns None where the condition must be evaluated as a whole.
"""

from __future__ import annotations

from rules_index.domains.values import ValueSet, points, starting_with
from rules_index.language import constants
from rules_index.language.analyser import Analyser
from rules_index.language.branches import has_constant_branches
from rules_index.language.case_conversions import in_any_case
from rules_index.language.coercion import BOOLEAN, STRING
from rules_index.language.formula import And, Formula, Or, Predicate, Truth
from rules_index.language.nodes import Node
from rules_index.language.patterns import is_only_java, like_prefix
from rules_index.language.truth_tests import FALSE, TRUE, negate, with_null
from rules_index.language.typed import Constant, Expression, Operation


def like(analyser: Analyser, node: Node) -> Formula | None:
    """LIKE and ILIKE, also with ANY, SOME or ALL of several patterns."""
    word, negated, quantifier, escape = node.value
    analyser.value(node.children[0])
    compared = in_any_case(node.children[0]) if word == "ILIKE" else node.children[0]
    subject = analyser.subject(compared, analyser.value(compared))
    if subject is None or isinstance(subject, Constant) or has_constant_branches(subject):
        return None
    parts = [_like_one(analyser, subject, child, escape, word == "ILIKE") for child in node.children[1:]]
    if negated:
        parts = [negate(part) for part in parts]
    if len(parts) == 1:
        return parts[0]
    return And(tuple(parts)) if quantifier == "ALL" else Or(tuple(parts))


def _like_one(analyser: Analyser, subject: Expression, pattern_node: Node, escape: str, ignore_case: bool) -> Formula:
    """A single LIKE: an interval of strings if the pattern is a prefix, else the result of a matcher."""
    pattern = analyser.pattern(pattern_node)
    if pattern is None:
        return with_null("=", subject)
    analyser.refuse_like(pattern, escape, ignore_case, pattern_node)
    prefix = None if ignore_case else like_prefix(pattern, escape)
    if prefix is not None:
        text, exact = prefix
        return _among(subject, points([text.encode()]) if exact else starting_with(text.encode()))
    return Predicate(Operation("like", (subject,), BOOLEAN, (pattern, escape, ignore_case)), TRUE, FALSE, Truth.NULL)


def _among(subject: Expression, values: ValueSet) -> Predicate:
    true = constants.clamp(values, STRING)
    return Predicate(subject, true, ~true, Truth.NULL)


def rlike(analyser: Analyser, node: Node) -> Formula | None:
    """RLIKE and its negation."""
    subject = analyser.subject(node.children[0], analyser.value(node.children[0]))
    if subject is None or isinstance(subject, Constant) or has_constant_branches(subject):
        return None
    pattern = analyser.pattern(node.children[1])
    if pattern is None:
        return with_null("=", subject)
    analyser.refuse_rlike(pattern, node.children[1])
    if is_only_java(pattern):
        return None
    formula = Predicate(Operation("rlike", (subject,), BOOLEAN, (pattern,)), TRUE, FALSE, Truth.NULL)
    return negate(formula) if node.value else formula


def affix(analyser: Analyser, node: Node) -> Formula | None:
    """`startswith`, `contains` and `endswith` of a STRING and a constant."""
    text, part = (analyser.value(child) for child in node.children)
    if text.type != STRING or text.collated or part.type != STRING or not isinstance(part.local, Constant):
        return None
    attribute = analyser.attribute(text)
    if attribute is None or isinstance(attribute, Constant) or has_constant_branches(attribute):
        return None
    if part.local.value is None:
        return with_null("=", attribute)
    wanted = str(part.local.value)
    if node.value == "startswith":
        return _among(attribute, starting_with(wanted.encode()))
    escaped = "".join("\\" + letter if letter in "%_\\" else letter for letter in wanted)
    pattern = f"%{escaped}%" if node.value == "contains" else f"%{escaped}"
    return Predicate(Operation("like", (attribute,), BOOLEAN, (pattern, "\\", False)), TRUE, FALSE, Truth.NULL)
