"""The expression grammar of Spark SQL: tokens to nodes by operator precedence, without recursion for brackets."""

from __future__ import annotations

from rules_index.errors import RuleError
from rules_index.language import list_conditions, primary
from rules_index.language.cursor import Cursor
from rules_index.language.nodes import MAX_VALUE_DEPTH, STEPS_OF_LEAF, STEPS_OF_LITERAL, Node, checked, make, too_deep
from rules_index.language.tokens import END, NUMBER, STRING, Tokens, tokenise, words

(
    OR,
    AND,
    NOT,
    PREDICATE,
    COMPARISON,
    BITOR,
    BITXOR,
    BITAND,
    SHIFT,
    SUM,
    PRODUCT,
    UNARY,
    OPERAND,
) = range(1, 14)

_BINARY = {
    "OR": OR,
    "AND": AND,
    "=": COMPARISON,
    "<>": COMPARISON,
    "<": COMPARISON,
    "<=": COMPARISON,
    ">": COMPARISON,
    ">=": COMPARISON,
    "<=>": COMPARISON,
    "|": BITOR,
    "^": BITXOR,
    "&": BITAND,
    "<<": SHIFT,
    ">>": SHIFT,
    ">>>": SHIFT,
    "+": SUM,
    "-": SUM,
    "||": SUM,
    "*": PRODUCT,
    "/": PRODUCT,
    "%": PRODUCT,
    "DIV": PRODUCT,
}
_PREDICATES = frozenset(("BETWEEN", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "IS", "NOT"))
_MOVED_IN_A_STEP = 1024
"""How many operands of AND or OR are copied in one step of work."""
_OPERATOR_AHEAD = words("= <> < <= > >= <=> * / % ) , ] . [ || | & ^ ::") | {END}
"""Tokens before which the word NOT is a name, and not an operator."""


def parse(text: str, zone: str = "UTC") -> tuple[Node, Tokens]:
    """Parses one expression; timestamps without a zone are in `zone`. Raises `RuleError`."""
    tokens = tokenise(text)
    if tokens.kinds[0] == END:
        raise RuleError("SYNTAX", "The expression is empty.", 0)
    parser = Parser(tokens, zone)
    node = parser.expression()
    if tokens.kinds[parser.at] != END:
        raise parser.unexpected()
    return node, tokens


class Parser(Cursor):
    """Reads expressions; `expression` reads one and leaves `at` behind it."""

    __slots__ = ()

    def expression(self, lowest: int = OR) -> Node:
        """The expression that starts at the cursor, ending before the first token that cannot continue it.

        `lowest` is the weakest operator to accept: OR for an expression; COMPARISON for a value expression of the
        grammar, which ends before AND, OR and predicates.
        """
        self.level += 1
        if self.level > MAX_VALUE_DEPTH:
            raise too_deep(self.tokens, self.at)
        kinds = self.tokens.kinds
        operands: list[Node] = []
        strengths: list[int] = []  # of the operands: the precedence of their outermost operator
        spans: list[int] = []  # first token of each operand, its brackets included
        operators: list[tuple[int, str, int]] = []  # precedence, operator, token
        floor: list[int] = []  # positions in `operators` of open brackets
        while True:
            # An operand must follow.
            if self._prefix(lowest, operators, floor):
                continue
            start = self.at
            operands.append(primary.operand(self))
            strengths.append(OPERAND)
            spans.append(start)
            # An operator, a predicate or a closing bracket must follow.
            while True:
                kind = kinds[self.at]
                strength = _BINARY.get(kind)
                if strength is not None:
                    if strength < lowest and not floor:
                        return self._finish(operands, strengths, spans, operators)
                    self._reduce(operands, strengths, spans, operators, strength)
                    if strengths[-1] < strength:
                        raise self.unexpected("Put the comparison before this operator into brackets.")
                    operators.append((strength, kind, self.at))
                    self.at += 1
                    break
                if kind == ")" and floor:
                    self._close(operands, strengths, spans, operators, floor)
                    continue
                if kind in _PREDICATES and (floor or lowest <= PREDICATE) and self._is_predicate():
                    self._reduce(operands, strengths, spans, operators, PREDICATE + 1)
                    if strengths[-1] <= PREDICATE:
                        raise self.unexpected("Two predicates in a row: put the first one into brackets.")
                    operands[-1] = self._predicate(operands[-1], spans[-1])
                    strengths[-1] = PREDICATE
                    continue
                if kind == "," and floor:
                    self._row(operands, strengths, spans, operators, floor)
                    continue
                if floor:
                    raise self._unclosed(operators[floor[-1]][2])
                return self._finish(operands, strengths, spans, operators)

    def value(self) -> Node:
        """A value expression of the grammar: arithmetic and comparisons, but no bare AND, OR, IN, ..."""
        return self.expression(COMPARISON)

    def _prefix(self, lowest: int, operators: list[tuple[int, str, int]], floor: list[int]) -> bool:
        """Reads an opening bracket, NOT or a sign before an operand; False if the operand itself is at the cursor."""
        kinds = self.tokens.kinds
        kind = kinds[self.at]
        if kind == "(" and not primary.opens_lambda(self):
            floor.append(len(operators))
            operators.append((0, "(", self.at))
            self.at += 1
            if primary.opens_query(self):
                raise primary.subquery(self)
            return True
        if kind in ("NOT", "!") and (kind == "!" or kinds[self.at + 1] not in _OPERATOR_AHEAD):
            if (operators and operators[-1][0] > NOT) or (lowest > NOT and not floor):
                raise self.unexpected("NOT is not allowed here; put brackets around it.")
            operators.append((NOT, "not", self.at))
            self.at += 1
            return True
        if kind in ("-", "+", "~") and not (kind == "-" and primary.is_negative_number(self)):
            operators.append((UNARY, kind, self.at))
            self.at += 1
            return True
        return False

    def _finish(
        self,
        operands: list[Node],
        strengths: list[int],
        spans: list[int],
        operators: list[tuple[int, str, int]],
    ) -> Node:
        self._reduce(operands, strengths, spans, operators, OR)
        self.level -= 1
        return operands[0]

    def _reduce(
        self,
        operands: list[Node],
        strengths: list[int],
        spans: list[int],
        operators: list[tuple[int, str, int]],
        strength: int,
    ) -> None:
        """Applies the pending operators that bind at least as strongly as `strength`."""
        tokens, last = self.tokens, self.at - 1
        while operators and operators[-1][0] >= strength:
            bound, kind, token = operators.pop()
            if bound in (UNARY, NOT):
                operands[-1] = _prefixed(tokens, bound, kind, operands[-1], token, last)
                spans[-1], strengths[-1] = token, bound
                continue
            right = operands.pop()
            strengths.pop()
            spans.pop()
            left, first = operands[-1], spans[-1]
            if bound <= AND:
                operands[-1] = _join(tokens, kind.lower(), left, right, first, last)
            elif bound == COMPARISON:
                operands[-1] = make(tokens, "compare", kind, [left, right], first, last)
            elif left.kind == "arithmetic" and strengths[-1] == bound:
                left.value.append(kind)
                left.children.append(right)
                left.last = last
                if right.depth >= left.depth:
                    operands[-1] = make(tokens, "arithmetic", left.value, left.children, first, last)
            else:
                operands[-1] = make(tokens, "arithmetic", [kind], [left, right], first, last)
            strengths[-1] = bound

    def _close(
        self,
        operands: list[Node],
        strengths: list[int],
        spans: list[int],
        operators: list[tuple[int, str, int]],
        floor: list[int],
    ) -> None:
        """Reads a closing bracket, and what can follow a bracketed operand: fields, subscripts, casts."""
        self._reduce(operands, strengths, spans, operators, OR)
        floor.pop()
        spans[-1] = operators.pop()[2]
        strengths[-1] = OPERAND
        self.at += 1
        operands[-1] = primary.suffixes(self, operands[-1], spans[-1])

    def _row(
        self,
        operands: list[Node],
        strengths: list[int],
        spans: list[int],
        operators: list[tuple[int, str, int]],
        floor: list[int],
    ) -> None:
        """Reads the rest of a row value `(a, b, ...)`, up to but not including its closing bracket."""
        self._reduce(operands, strengths, spans, operators, OR)
        values = [operands[-1]]
        while self.tokens.kinds[self.at] == ",":
            self.at += 1
            values.append(self.expression())
        opening = operators[floor[-1]][2]
        if self.tokens.kinds[self.at] != ")":
            raise self._unclosed(opening)
        operands[-1] = make(self.tokens, "row", None, values, opening, self.at)

    def _is_predicate(self) -> bool:
        """Whether the word at the cursor begins a predicate. NOT does so only before another word of a predicate."""
        kinds = self.tokens.kinds
        return kinds[self.at] != "NOT" or kinds[self.at + 1] in _PREDICATES

    def _predicate(self, left: Node, first: int) -> Node:
        """Reads `[NOT] BETWEEN | IN | LIKE | RLIKE ...` or `IS ...` behind its left operand."""
        kinds = self.tokens.kinds
        if kinds[self.at] == "IS":
            return self._is(left, first)
        negated = kinds[self.at] == "NOT"
        self.at += negated
        word = kinds[self.at]
        self.at += 1
        if word == "BETWEEN":
            low = self.value()
            self.expect("AND", "BETWEEN needs AND and an upper bound here.")
            children = [left, low, self.value()]
            return make(self.tokens, "between", negated, children, first, self.at - 1)
        if word == "IN":
            if kinds[self.at] == "LIST":
                return list_conditions.in_list(self, left, negated, first)
            self.expect("(", "IN needs a list in brackets here.")
            if primary.opens_query(self):
                raise primary.subquery(self)
            children = [left, *self.list_of_expressions()]
            return make(self.tokens, "in", negated, children, first, self.at - 1)
        if word in ("LIKE", "ILIKE"):
            return self._like(left, first, word, negated)
        if word in ("RLIKE", "REGEXP"):
            children = [left, self.value()]
            return make(self.tokens, "rlike", negated, children, first, self.at - 1)
        raise self.unexpected(at=self.at - 1)

    def _like(self, left: Node, first: int, word: str, negated: bool) -> Node:
        kinds = self.tokens.kinds
        if kinds[self.at] in ("ANY", "SOME", "ALL") and kinds[self.at + 1] == "(":
            quantifier = "ALL" if kinds[self.at] == "ALL" else "ANY"
            self.at += 2
            children = [left, *self.list_of_expressions()]
            return make(self.tokens, "like", (word, negated, quantifier, "\\"), children, first, self.at - 1)
        children = [left, self.value()]
        escape = "\\"
        if kinds[self.at] == "ESCAPE":
            self.at += 1
            if kinds[self.at] != STRING:
                raise self.unexpected("ESCAPE needs a string of one character here.")
            escape = primary.string_literal(self)
            if len(escape) != 1 or escape > "\uffff":  # Spark counts UTF-16 units
                message = "ESCAPE takes a string of exactly one character."
                raise RuleError("LITERAL", message, self.tokens.starts[self.at - 1])
        return make(self.tokens, "like", (word, negated, None, escape), children, first, self.at - 1)

    def _is(self, left: Node, first: int) -> Node:
        kinds = self.tokens.kinds
        self.at += 1
        negated = kinds[self.at] == "NOT"
        self.at += negated
        word = kinds[self.at]
        if word in ("NULL", "TRUE", "FALSE", "UNKNOWN"):
            self.at += 1
            return make(self.tokens, "is", (word, negated), [left], first, self.at - 1)
        if word == "DISTINCT":
            self.at += 1
            self.expect("FROM", "IS DISTINCT needs FROM here.")
            children = [left, self.value()]
            return make(self.tokens, "distinct", negated, children, first, self.at - 1)
        raise self.unexpected("After IS comes [NOT] NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM.")

    def list_of_expressions(self) -> list[Node]:
        """Expressions separated by commas, at least one, including the closing bracket."""
        found = [self._item()]
        while self.tokens.kinds[self.at] == ",":
            self.at += 1
            found.append(self._item())
        self.expect(")", "A comma or a closing bracket is missing here.")
        return found

    def _item(self) -> Node:
        """One expression of a list; literals, the most frequent in long lists, are read by a shorter path."""
        kinds, at = self.tokens.kinds, self.at
        number = at + (kinds[at] == "-")
        if (kinds[at] == STRING or kinds[number] == NUMBER) and kinds[number + 1] in (",", ")"):
            # `operand` spends the steps of a leaf, and a literal in a list costs fewer
            self.tokens.work.left += STEPS_OF_LEAF - STEPS_OF_LITERAL
            return primary.operand(self)
        return self.expression()

    def _unclosed(self, opening: int) -> RuleError:
        if self.tokens.kinds[self.at] == END:
            return RuleError("SYNTAX", "The bracket that opens here is not closed.", self.tokens.starts[opening])
        return self.unexpected()


def _prefixed(tokens: Tokens, bound: int, kind: str, operand: Node, first: int, last: int) -> Node:
    """NOT or a sign before an operand. Three NOTs in a row become one, so that repeated NOTs add no depth."""
    if bound != NOT:
        return make(tokens, "unary", kind, [operand], first, last)
    if operand.kind == "not" and operand.children[0].kind == "not":
        operand = operand.children[0].children[0]
    return make(tokens, "not", kind, [operand], first, last)


def _join(tokens: Tokens, kind: str, left: Node, right: Node, first: int, last: int) -> Node:
    """AND or OR over two operands, flattened if an operand has the same connective."""
    depth = max(each.depth + (each.kind != kind) for each in (left, right))
    if left.kind == kind:
        children, pairs = left.children, left.value
        children += right.children if right.kind == kind else [right]
        pairs += right.value if right.kind == kind else []
    elif right.kind == kind:
        children, pairs = right.children, right.value
        children.insert(0, left)
    else:
        children, pairs = [left, right], [(left, right)]
    # copying an operand is cheap, but a long chain may copy many operands many times
    tokens.work.spend(2 + len(children if right.kind == kind else ()) // _MOVED_IN_A_STEP, tokens.starts[first])
    return checked(tokens, Node(kind, pairs, children, first, last), depth)
