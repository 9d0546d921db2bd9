"""Parses a rule's text again, into AND, OR and NOT over predicates, each with its formula and the columns that it
reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from numbers import Integral
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rules_index.compiling.validity import validity
from rules_index.errors import ArtifactError, RuleError, RulesIndexError, UnknownRuleError
from rules_index.language.analyser import Analyser
from rules_index.language.build_formula import Splitter
from rules_index.language.coercion import normalise
from rules_index.language.connectives import operands
from rules_index.language.evaluation.datetime_parser import zone_of
from rules_index.language.formula import Formula, Predicate, predicates_of
from rules_index.language.nodes import Node
from rules_index.language.parser import parse
from rules_index.language.scope import Scope, path_of
from rules_index.language.typed import Expression, Leaf, leaves_of
from rules_index.names import back_quoted, column_key, did_you_mean, spelled

if TYPE_CHECKING:
    from rules_index.index.compiled import CompiledRules, RuleId
    from rules_index.index.rule_texts import RuleText

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a rule.

    operator    "AND", "OR", "NOT", or "" for a predicate
    formula     of a predicate
    columns     that a predicate reads, including those in texts that only Spark evaluates
    attributes  that a predicate computes from them
    """

    text: str
    operator: str = ""
    children: tuple[Part, ...] = ()
    formula: Formula | None = None
    columns: tuple[Leaf, ...] = ()
    attributes: tuple[Expression, ...] = field(default=())

    @property
    def predicates(self) -> Iterator[Part]:
        """All predicates, in the order of the text."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.predicates

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The inputs that the values of all predicates are computed from, each once; a derived column is one of
        them."""
        found = {leaf.name: leaf for part in self.predicates for each in part.attributes for leaf in leaves_of(each)}
        return tuple(found.values())


def rule_of(compiled: CompiledRules, rule_id: RuleId) -> Part:
    """The parts of a rule of an index. Raises `UnknownRuleError` if it has no rule with this id, `RulesIndexError` if
    the index keeps no texts."""
    ordinal = _ordinal(compiled, rule_id)
    if compiled.texts is None:
        raise RulesIndexError(
            "The index was made by a version that kept no texts of rules in it, so it cannot explain any; compile "
            "the rules again."
        )
    try:
        rule, schema = compiled.texts.rule(ordinal), compiled.texts.columns()
        return parts_of(rule, Scope(schema, compiled.time_zone, compiled.lists), compiled.event_time)
    except (pa.ArrowException, LookupError, OSError, TypeError, ValueError, RuleError) as error:
        raise ArtifactError(
            f"The text of rule {rule_id!r} that the index keeps is damaged ({error}); compile the rules again."
        ) from error


def _ordinal(compiled: CompiledRules, rule_id: RuleId) -> int:
    ids, is_number = compiled.ids, pa.types.is_integer(compiled.ids.type)
    unknown = f"The index has no rule {rule_id!r} among its {len(ids):,}"
    if not isinstance(rule_id, Integral if is_number else str) or isinstance(rule_id, bool):
        raise UnknownRuleError(f"{unknown}. Its ids are {'integers' if is_number else 'strings'}.")
    try:
        wanted = pa.scalar(rule_id, ids.type)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        raise UnknownRuleError(f"{unknown}.") from None
    place = int(ids.index(wanted).as_py())
    if place >= 0:
        return place
    for row in compiled.rejects.filter(pc.equal(compiled.rejects.column("rule_id"), wanted)).to_pylist():
        raise UnknownRuleError(
            f"Rule {rule_id!r} did not compile ({row['error']}: {row['message']}), so it never matches."
        )
    raise UnknownRuleError(f"{unknown}{did_you_mean(rule_id, (each.as_py() for each in ids))}")


def parts_of(rule: RuleText, scope: Scope, event_time: str | None) -> Part:
    """Returns the parts of a rule's text; if the rule has validity bounds, an AND of its text and these."""
    node, tokens = parse(rule.expression, scope.time_zone)
    root = _PartBuilder(Splitter(Analyser(tokens, scope))).part(node, is_rule=True)
    bounds = list(_bounds(rule, scope, event_time))
    if not bounds:
        return root
    text = " AND ".join([f"({root.text})", *(bound.text for bound in bounds)])
    return Part(text, "AND", (root, *bounds))


def _bounds(rule: RuleText, scope: Scope, event_time: str | None) -> Iterator[Part]:
    """valid_from and valid_to as predicates on the event time."""
    if event_time is None:
        return
    name = spelled(scope.schema.names, event_time, column_key) or event_time
    column = scope.schema.field(name)
    leaf = Leaf(name, normalise(column.type) or column.type)
    bounds: list[tuple[str, int | None, bool]] = [(">=", rule.valid_from, True), ("<", rule.valid_to, False)]
    for operator, instant, is_first in bounds:
        if instant is None:
            continue
        text = f"{_quoted(name)} {operator} TIMESTAMP'{_instant(instant, scope.time_zone)}'"
        first, last = (instant, None) if is_first else (None, instant)
        formula = validity(leaf, first, last, scope.time_zone)
        yield Part(text, formula=formula, columns=(leaf,), attributes=(leaf,))


def _quoted(name: str) -> str:
    is_plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if is_plain else back_quoted(name)


def _instant(microseconds: int, time_zone: str) -> str:
    """An instant in a zone, with its offset, as Spark reads it."""
    try:
        moment = (_EPOCH + timedelta(microseconds=microseconds)).astimezone(zone_of(time_zone))
        return moment.isoformat(sep=" ")
    except OverflowError:
        return f"{microseconds} microseconds since 1970"


class _PartBuilder:
    """Turns nodes into parts."""

    def __init__(self, splitter: Splitter) -> None:
        self._splitter = splitter
        self._analyser = splitter.analyser

    def part(self, node: Node, is_rule: bool = False) -> Part:
        """Returns the part for a node; the children of AND, OR and NOT are the parts of their operands."""
        tokens = self._analyser.tokens
        text = tokens.text[tokens.starts[node.first] : tokens.ends[node.last]]
        if node.kind == "not":
            return Part(text, "NOT", (self.part(node.children[0]),))
        formula = self._splitter.rule(node) if is_rule else self._splitter.formula(node)
        if node.kind in ("and", "or") and not isinstance(formula, Predicate):  # a predicate Spark evaluates as a whole
            return Part(text, node.kind.upper(), tuple(self.part(child) for child in operands(self._analyser, node)))
        attributes = dict.fromkeys(predicate.attribute for predicate in predicates_of(formula))
        columns = {leaf.name: leaf for leaf in self._columns(node, frozenset())}
        return Part(text, formula=formula, columns=tuple(columns.values()), attributes=tuple(attributes))

    def _columns(self, node: Node, variables: frozenset[str]) -> Iterator[Leaf]:
        """The columns, or fields of columns, that a node reads; `variables` are those of the lambdas around it."""
        if node.kind == "column" and node.value[0].lower() in variables:
            return
        if node.kind in ("column", "field", "subscript"):
            found = self._analyser.value(node).local
            if isinstance(found, Leaf) and found.text is None:
                yield found
                return
        if node.kind == "column":
            scope = self._analyser.scope
            if scope.has(node.value[0]):
                spelling, data_type = scope.column(node.value[0], 0)
                yield Leaf(path_of([spelling]), data_type or scope.schema.field(spelling).type)
            return
        if node.kind == "lambda":
            variables |= {name.lower() for name in node.value}
        for child in node.children:
            yield from self._columns(child, variables)
