"""The operands of Spark SQL's grammar: literals, names, calls and the forms with keywords inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from rules_index.errors import RuleError
from rules_index.language import literals
from rules_index.language.functions import NAMED_ARGUMENTS
from rules_index.language.nodes import STEPS_OF_LEAF, Node, make
from rules_index.language.tokens import END, NUMBER, STRING, words
from rules_index.language.type_names import read_type
from rules_index.language.typed import Constant

if TYPE_CHECKING:
    from rules_index.language.parser import Parser

_UNITS = words("YEAR QUARTER MONTH WEEK DAY DAYOFYEAR HOUR MINUTE SECOND MILLISECOND MICROSECOND")
_UNIT_CALLS = words("TIMESTAMPADD DATEADD DATE_ADD TIMESTAMPDIFF DATEDIFF DATE_DIFF TIMEDIFF")
_BUILT_IN = (("builtin",), ("system", "builtin"))
"""What may stand before the name of a built-in function."""
_NAME_ENDS = frozenset((")", ",", "]", END, "=", "<>", "<", "<=", ">", ">=", "<=>", "+", "*", "/", "%", ".", "["))


def operand(parser: Parser) -> Node:
    """Read one operand with what follows it: fields, subscripts, `::` casts, COLLATE."""
    tokens = parser.tokens
    kinds, first = tokens.kinds, parser.at
    kind = kinds[first]
    if kind == NUMBER:
        parser.at += 1
        node = _leaf(parser, "literal", literals.number(tokens.spelling(first), tokens.starts[first]), first, first)
    elif kind == STRING:
        constant = Constant(string_literal(parser), pa.string())
        node = _leaf(parser, "literal", constant, first, parser.at - 1)
    elif kind == "-":  # a negative number: the caller has looked
        parser.at += 2
        node = _leaf(
            parser, "literal", literals.number("-" + tokens.spelling(first + 1), tokens.starts[first]), first, first + 1
        )
    elif kind == "(":
        return _lambda(parser)
    elif tokens.is_name(first):
        node = _word(parser, kind)
    else:
        raise _no_operand(parser)
    return suffixes(parser, node, first)


def is_negative_number(parser: Parser) -> bool:
    """True where a minus sign and the number behind it are one literal."""
    return parser.tokens.kinds[parser.at + 1] == NUMBER


def string_literal(parser: Parser) -> str:
    """Read one or more adjacent string tokens as one string."""
    tokens = parser.tokens
    parts = []
    while tokens.kinds[parser.at] == STRING:
        parts.append(literals.string(tokens.spelling(parser.at)))
        parser.at += 1
    return "".join(parts)


def suffixes(parser: Parser, node: Node, first: int) -> Node:
    """Read the fields, subscripts, casts and collations behind an operand."""
    tokens = parser.tokens
    kinds = tokens.kinds
    while True:
        kind = kinds[parser.at]
        if kind == ".":
            if node.kind == "column":
                _read_path(parser, node, first)
                if kinds[parser.at] != ".":
                    continue
            if not tokens.is_name(parser.at + 1):
                parser.at += 1
                raise parser.unexpected("The name of a field belongs behind the dot.")
            name = tokens.name(parser.at + 1)
            parser.at += 2
            if kinds[parser.at] == "(":
                if node.kind == "column" and tuple(part.lower() for part in node.value) in _BUILT_IN:
                    children = _plain_arguments(parser, name.upper())
                    node = make(tokens, "call", name.lower(), children, first, parser.at - 1)
                    _refuse_window(parser, first)
                    continue
                raise RuleError(
                    "NOT_ALLOWED",
                    "Only Spark's built-in functions can be called, by their plain names.",
                    tokens.starts[first],
                )
            node = make(tokens, "field", name, [node], first, parser.at - 1)
        elif kind == "[":
            parser.at += 1
            index = parser.value()
            parser.expect("]", "A closing square bracket is missing here.")
            node = make(tokens, "subscript", None, [node, index], first, parser.at - 1)
        elif kind == "::":
            parser.at += 1
            data_type = read_type(parser)
            node = make(tokens, "cast", (data_type, False), [node], first, parser.at - 1)
        elif kind == "COLLATE" and tokens.is_name(parser.at + 1):
            parser.at += 2
            node = make(tokens, "collate", None, [node], first, parser.at - 1)
        elif kind == ":":
            raise RuleError(
                "NOT_ALLOWED",
                "Paths into VARIANT values with a colon are not supported; use variant_get(value, path, type).",
                tokens.starts[parser.at],
            )
        else:
            return node


def _read_path(parser: Parser, node: Node, first: int) -> None:
    """Read the names behind a column's, but one that is called."""
    tokens = parser.tokens
    names = list(node.value)
    while tokens.kinds[parser.at] == "." and tokens.is_name(parser.at + 1) and tokens.kinds[parser.at + 2] != "(":
        names.append(tokens.name(parser.at + 1))
        parser.at += 2
    node.value, node.first, node.last = tuple(names), first, parser.at - 1


def opens_lambda(parser: Parser) -> bool:
    """True at the bracket of a lambda's parameters, `(x, y) ->`."""
    kinds, at = parser.tokens.kinds, parser.at + 1
    count = 0
    while parser.tokens.is_name(at) and kinds[at + 1] in (",", ")"):
        count += 1
        if kinds[at + 1] == ")":
            return count > 1 and kinds[at + 2] == "->"
        at += 2
    return False


def opens_query(parser: Parser) -> bool:
    """True where SELECT, WITH, VALUES or TABLE at the cursor begins a query rather than naming a column."""
    following = parser.tokens.kinds[parser.at + 1]
    if parser.tokens.kinds[parser.at] == "VALUES":
        return following not in _NAME_ENDS
    return following == "*" or following not in _NAME_ENDS


def subquery(parser: Parser) -> RuleError:
    """The error for a query inside a rule."""
    return RuleError(
        "SUBQUERY",
        "A rule looks at one row at a time: sub-queries are not allowed.",
        parser.tokens.starts[parser.at],
    )


def _leaf(parser: Parser, kind: str, value: object, first: int, last: int) -> Node:
    parser.tokens.work.spend(STEPS_OF_LEAF, parser.tokens.starts[first])
    node = Node(kind, value, [], first, last)
    node.depth = 1
    return node


def _no_operand(parser: Parser) -> RuleError:
    kind, start = parser.tokens.kinds[parser.at], parser.tokens.starts[parser.at]
    if kind in ("?", ":"):
        return RuleError("NOT_ALLOWED", "Parameters have no place in a rule; write the value itself.", start)
    if kind == "*":
        return RuleError("SYNTAX", "A star stands for all columns and has no place in a rule; name one.", start)
    if kind == END:
        return RuleError("SYNTAX", "The expression ends too early: a value is missing here.", start)
    return parser.unexpected("A value is missing here.")


def _word(parser: Parser, kind: str) -> Node:
    """An operand that begins with a word: a keyword form, a typed literal, a call, a lambda or a column."""
    tokens = parser.tokens
    kinds, first = tokens.kinds, parser.at
    following = kinds[first + 1]
    if kind == "CASE" and (following in ("WHEN", "(", STRING) or following not in _NAME_ENDS):
        return _case(parser)
    if following == "(":
        return _call(parser, kind)
    if following == "->":
        return _lambda(parser)
    if kind in ("TRUE", "FALSE"):
        parser.at += 1
        return _leaf(parser, "literal", Constant(kind == "TRUE", pa.bool_()), first, first)
    if kind == "NULL":
        parser.at += 1
        return _leaf(parser, "literal", Constant(None, pa.null()), first, first)
    if kind == "INTERVAL" and (following in (NUMBER, STRING) or (following in "+-" and following)):
        interval = literals.interval(parser)
        if interval is not None:
            return _leaf(parser, "opaque", interval, first, parser.at - 1)
    if following == STRING and kind != "`":
        return _typed_literal(parser, kind)
    parser.at += 1
    return _leaf(parser, "column", (tokens.name(first),), first, first)


def _typed_literal(parser: Parser, kind: str) -> Node:
    first = parser.at
    parser.at += 2
    text = literals.string(parser.tokens.spelling(first + 1))
    value = literals.typed(kind, text, parser.tokens.starts[first], parser.zone)
    kind = "literal" if isinstance(value, Constant) else "opaque"
    return _leaf(parser, kind, value, first, first + 1)


def _lambda(parser: Parser) -> Node:
    """`x -> body` or `(x, y, ...) -> body`."""
    tokens, first = parser.tokens, parser.at
    names = []
    if tokens.kinds[first] == "(":
        while tokens.kinds[parser.at] != ")":
            names.append(tokens.name(parser.at + 1))
            parser.at += 2
    else:
        names.append(tokens.name(first))
    parser.at += 1
    parser.expect("->", "An arrow is missing here.")
    body = parser.expression()
    return make(tokens, "lambda", tuple(names), [body], first, parser.at - 1)


def _case(parser: Parser) -> Node:
    """`CASE [operand] WHEN condition THEN value ... [ELSE value] END`."""
    tokens = parser.tokens
    kinds, first = tokens.kinds, parser.at
    parser.at += 1
    children = []
    with_operand = kinds[parser.at] != "WHEN"
    if with_operand:
        children.append(parser.expression())
    if kinds[parser.at] != "WHEN":
        raise parser.unexpected("CASE needs WHEN here.")
    while kinds[parser.at] == "WHEN":
        parser.at += 1
        children.append(parser.expression())
        parser.expect("THEN", "WHEN needs THEN here.")
        children.append(parser.expression())
    if kinds[parser.at] == "ELSE":
        parser.at += 1
        children.append(parser.expression())
    parser.expect("END", "CASE needs END here.")
    return make(tokens, "case", with_operand, children, first, parser.at - 1)


def _call(parser: Parser, kind: str) -> Node:
    """A function call, or a form that looks like one with keywords between its arguments."""
    tokens = parser.tokens
    kinds, first = tokens.kinds, parser.at
    parser.at += 2
    name = tokens.name(first).lower()
    if kind == "EXISTS" and kinds[parser.at] in ("SELECT", "WITH", "VALUES", "TABLE") and opens_query(parser):
        raise subquery(parser)
    if kind in ("CAST", "TRY_CAST"):
        value = parser.expression()
        parser.expect("AS", "CAST needs AS and a type here.")
        data_type = read_type(parser)
        parser.expect(")", "A closing bracket is missing here.")
        return make(tokens, "cast", (data_type, kind == "TRY_CAST"), [value], first, parser.at - 1)
    if kind == "EXTRACT" and tokens.is_name(parser.at) and kinds[parser.at + 1] == "FROM":
        unit = Constant(tokens.name(parser.at), pa.string())
        children = [_leaf(parser, "literal", unit, parser.at, parser.at)]
        parser.at += 2
        children.append(parser.value())
        parser.expect(")", "A closing bracket is missing here.")
    elif kind in _UNIT_CALLS and kinds[parser.at] in _UNITS and kinds[parser.at + 1] == ",":
        unit = Constant(kinds[parser.at], pa.string())
        children = [_leaf(parser, "literal", unit, parser.at, parser.at)]
        name = "timestampadd" if kind in ("TIMESTAMPADD", "DATEADD", "DATE_ADD") else "timestampdiff"
        parser.at += 2
        children += parser.list_of_expressions()
    elif kind == "TRIM":
        children = _trim(parser)
    elif kind == "POSITION":
        children = [parser.value() if not _starts_boolean(parser) else parser.expression()]
        if kinds[parser.at] == "IN":
            parser.at += 1
            children.append(parser.value())
            parser.expect(")", "A closing bracket is missing here.")
        else:
            children += _rest_of_arguments(parser)
    elif kind in ("SUBSTRING", "SUBSTR"):
        children = _with_keywords(parser, ("FROM", "FOR"))
    elif kind == "OVERLAY":
        children = _with_keywords(parser, ("PLACING", "FROM", "FOR"))
    else:
        children = _arguments(parser, kind)
    node = make(tokens, "call", name, children, first, parser.at - 1)
    _refuse_window(parser, first)
    return node


def _starts_boolean(parser: Parser) -> bool:
    return parser.tokens.kinds[parser.at] in ("NOT", "!")


def _trim(parser: Parser) -> list[Node]:
    """`TRIM([BOTH | LEADING | TRAILING] [characters] FROM text)` or plain arguments."""
    kinds = parser.tokens.kinds
    directed = kinds[parser.at] in ("BOTH", "LEADING", "TRAILING") and kinds[parser.at + 1] not in (")", ",", ".")
    parser.at += directed
    children = []
    if not (directed and kinds[parser.at] == "FROM"):
        children.append(parser.expression())
    if kinds[parser.at] != "FROM":
        if directed:
            raise parser.unexpected("TRIM needs FROM here.")
        return children + _rest_of_arguments(parser)
    parser.at += 1
    children.insert(0, parser.value())
    parser.expect(")", "A closing bracket is missing here.")
    return children


def _with_keywords(parser: Parser, words: tuple[str, ...]) -> list[Node]:
    """Arguments that commas or these keywords, in this order, separate."""
    if parser.tokens.kinds[parser.at] == ")":
        parser.at += 1
        return []
    children = [parser.expression()]
    for word in words:
        if parser.tokens.kinds[parser.at] not in (word, ","):
            continue
        parser.at += 1
        children.append(parser.expression())
    parser.expect(")", "A closing bracket is missing here.")
    return children


def _rest_of_arguments(parser: Parser) -> list[Node]:
    if parser.tokens.kinds[parser.at] == ",":
        parser.at += 1
        return parser.list_of_expressions()
    parser.expect(")", "A comma or a closing bracket is missing here.")
    return []


def _arguments(parser: Parser, kind: str) -> list[Node]:
    """The arguments of a plain call, up to and with the closing bracket."""
    tokens = parser.tokens
    kinds = tokens.kinds
    if kinds[parser.at] == ")":
        parser.at += 1
        return []
    if kinds[parser.at] in ("DISTINCT", "ALL") and kinds[parser.at + 1] not in (")", ",", ".", "="):
        if kinds[parser.at] == "DISTINCT":
            raise RuleError(
                "AGGREGATE", "A rule looks at one row at a time: aggregates are not allowed.", tokens.starts[parser.at]
            )
        parser.at += 1
    if kinds[parser.at] == "*" and kinds[parser.at + 1] == ")":
        parser.at += 2
        return []
    children = []
    while True:
        if tokens.is_name(parser.at) and kinds[parser.at + 1] == "=>":
            if kind.lower() not in NAMED_ARGUMENTS:
                raise parser.unexpected("This function takes no named arguments; write the values in their order.")
            parser.at += 2
        children.append(parser.expression())
        if kind == "STRUCT" and kinds[parser.at] not in (",", ")"):
            parser.at += kinds[parser.at] == "AS"
            if not tokens.is_name(parser.at):
                raise parser.unexpected("The name of a field belongs here.")
            parser.at += 1
        if kinds[parser.at] == ",":
            parser.at += 1
            continue
        if kinds[parser.at] in ("IGNORE", "RESPECT", "ORDER"):
            raise RuleError(
                "AGGREGATE", "A rule looks at one row at a time: aggregates are not allowed.", tokens.starts[parser.at]
            )
        parser.expect(")", "A comma or a closing bracket is missing here.")
        return children


def _plain_arguments(parser: Parser, kind: str) -> list[Node]:
    """The arguments of a call whose opening bracket stands at the cursor."""
    parser.at += 1
    return _arguments(parser, "" if kind == "STRUCT" else kind)


def _refuse_window(parser: Parser, first: int) -> None:
    """Raise where a call goes on as a window function or a filtered aggregate."""
    kinds, at = parser.tokens.kinds, parser.at
    start = parser.tokens.starts[first]
    if kinds[at] in ("IGNORE", "RESPECT") and kinds[at + 1] == "NULLS":
        at += 2
    if kinds[at] == "OVER":
        raise RuleError("WINDOW", "A rule looks at one row at a time: window functions are not allowed.", start)
    if at > parser.at or (kinds[at] in ("FILTER", "WITHIN") and kinds[at + 1] in ("(", "GROUP")):
        raise RuleError("AGGREGATE", "A rule looks at one row at a time: aggregates are not allowed.", start)
