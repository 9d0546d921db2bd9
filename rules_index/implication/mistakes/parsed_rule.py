"""A rule's parsed text, and helpers for the searches for mistakes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

from rules_index.errors import RuleError
from rules_index.implication.mistakes.known_values import KnownValues
from rules_index.implication.mistakes.mistake import Mistake
from rules_index.language.analyser import Analyser
from rules_index.language.analysis import Value
from rules_index.language.build_formula import Splitter
from rules_index.language.coercion import INTEGER_BITS, is_decimal, is_integer
from rules_index.language.formula import Formula
from rules_index.language.nodes import Node, inside, words_of
from rules_index.language.parser import parse
from rules_index.language.scope import Scope
from rules_index.language.typed import Constant, Leaf

EQUALITIES = frozenset(("=", "<>", "<=>"))


@dataclass(frozen=True, slots=True)
class ConstantComparison:
    """A comparison of a subject with a constant. node: the whole comparison; operator: as if the subject were on its
    left."""

    node: Node
    subject: Node
    operator: str
    constant: Constant
    constant_node: Node


class ParsedRule:
    """The parsed text of a rule that compiles, and the known values of columns, by name.

    `comparisons` are the rule's comparisons with constants, `literals` the values of its literals.
    """

    def __init__(
        self,
        text: str,
        scope: Scope,
        known: Mapping[str, KnownValues],
        remembered: dict[Hashable, Formula] | None = None,
    ) -> None:
        """remembered: a cache of the formulas of comparisons that rules of one scope share."""
        self.text, self.scope = text, scope
        self.root, self.tokens = parse(text, scope.time_zone)
        self.analyser = Analyser(self.tokens, scope)
        self.splitter = Splitter(self.analyser, remembered)
        self._known = known
        self._leaves: dict[Node, Leaf | None] = {}
        self._kinds: dict[str, list[Node]] = {}
        for node in inside(self.root):
            self._kinds.setdefault(node.kind, []).append(node)
        self.literals = {each.value.value for each in self.of("literal")}
        self.comparisons = [each for node in self.of(*_COMPARING) for each in self._comparisons_of(node)]

    def words(self, node: Node) -> str:
        """A node as its author wrote it."""
        return words_of(self.tokens, node)

    def mistake(self, kind: str, node: Node, message: str, last: Node | None = None) -> Mistake:
        """A mistake in the text of a node, or in the text from its begin to the end of the node `last`."""
        begin, end = node.first, (node if last is None else last).last
        kinds = self.tokens.kinds
        depth = least = 0
        for each in kinds[begin : end + 1]:
            depth += (each == "(") - (each == ")")
            least = min(least, depth)
        depth -= least
        # a bracket that is only closed, or only opened, in the text extends it to the other bracket
        while least < 0:
            begin -= 1
            least += (kinds[begin] == "(") - (kinds[begin] == ")")
        while depth > 0:
            end += 1
            depth += (kinds[end] == "(") - (kinds[end] == ")")
        return Mistake(kind, self.tokens.starts[begin], self.tokens.ends[end], message)

    def value(self, node: Node) -> Value | None:
        """The typed value of a node; None inside a lambda, whose variables have no type here."""
        try:
            return self.analyser.value(node)
        except RuleError:
            return None

    def leaf(self, node: Node) -> Leaf | None:
        """The column, or field of a column, that a node is; else None."""
        if node.kind not in ("column", "field"):
            return None
        if node not in self._leaves:
            value = self.value(node)
            local = value.local if value is not None else None
            self._leaves[node] = local if isinstance(local, Leaf) and local.text is None else None
        return self._leaves[node]

    def known(self, node: Node) -> KnownValues | None:
        """The known values of the column that a node is; None for other nodes, and if nothing is known."""
        leaf = self.leaf(node)
        return None if leaf is None else self._known.get(leaf.name)

    def constant(self, node: Node) -> Constant | None:
        """The constant that a node is; None for NULL and other nodes."""
        value = self.value(node)
        local = value.local if value is not None else None
        return local if isinstance(local, Constant) and local.value is not None else None

    def formula(self, node: Node) -> Formula | None:
        """The formula of a condition; None inside a lambda."""
        try:
            return self.splitter.formula(node)
        except RuleError:
            return None

    def of(self, *kinds: str) -> list[Node]:
        """The nodes of some kinds; those of one kind in the order of the text."""
        return [node for kind in kinds for node in self._kinds.get(kind, ())]

    def _comparisons_of(self, node: Node) -> Iterator[ConstantComparison]:
        """The comparisons with constants in a node: one for each item of an IN's list, two for a BETWEEN."""
        pairs: list[tuple[Node, str, Node]] = []
        if node.kind in ("compare", "distinct"):
            left, right = node.children
            operator = node.value if node.kind == "compare" else "<=>" if node.value else "<>"
            pairs = [(left, operator, right), (right, _FLIPPED.get(operator, operator), left)]
        elif node.kind == "in":
            subject, *items = node.children
            pairs = [(subject, "<>" if node.value else "=", each) for each in items]
        elif node.kind == "between":
            subject, low, high = node.children
            pairs = [(subject, ">=", low), (subject, "<=", high)]
        for subject, operator, other in pairs:
            constant = self.constant(other)
            if constant is not None and self.constant(subject) is None:
                yield ConstantComparison(node, subject, operator, constant, other)


def can_hold(leaf: Leaf, constant: Constant) -> bool:
    """Whether a column of integers or decimals can certainly have a number as its value, and greater and smaller ones.

    That is so for most constants: only for the others is a comparison analysed. False for a number of another kind.
    """
    kind, value = leaf.type, constant.value
    if is_integer(kind):
        return is_integer(constant.type) and -(1 << INTEGER_BITS[kind]) < value < (1 << INTEGER_BITS[kind]) - 1
    scale = 0 if is_integer(constant.type) else constant.type.scale if is_decimal(constant.type) else None
    if scale is None or not is_decimal(kind) or scale > kind.scale:
        return False
    return abs(value) * 10 ** (kind.scale - scale) < 10**kind.precision - 1


_COMPARING = ("compare", "distinct", "in", "between")
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
