"""The operands of Spark SQL's grammar: literals, names, calls, and constructs with keywords inside."""

from __future__ import annotations

import pyarrow as pa

from rules_index.errors import RuleError
from rules_index.language import literals
from rules_index.language.cursor import Cursor
from rules_index.language.function_signatures import NAMED_ARGUMENTS
from rules_index.language.nodes import STEPS_OF_LEAF, Node, make
from rules_index.language.tokens import END, NUMBER, STRING, words
from rules_index.language.type_names import read_type
from rules_index.language.typed import Constant

_UNITS = words("YEAR QUARTER MONTH WEEK DAY DAYOFYEAR HOUR MINUTE SECOND MILLISECOND MICROSECOND")
_UNIT_CALLS = words("TIMESTAMPADD DATEADD DATE_ADD TIMESTAMPDIFF DATEDIFF DATE_DIFF TIMEDIFF")
_OF_QUERIES = words("SELECT WITH VALUES TABLE")
_BUILT_IN = (("builtin",), ("system", "builtin"))
"""The qualifiers that the name of a built-in function may have."""
_NAME_ENDS = frozenset((")", ",", "]", END, "=", "<>", "<", "<=", ">", ">=", "<=>", "+", "*", "/", "%", ".", "["))
"""Tokens before which a keyword is a name."""


def operand(cursor: Cursor) -> Node:
    """Reads one operand and what follows it: fields, subscripts, `::` casts, COLLATE."""
    tokens = cursor.tokens
    kinds, first = tokens.kinds, cursor.at
    kind = kinds[first]
    if kind == NUMBER:
        cursor.at += 1
        node = _leaf(cursor, "literal", literals.number(tokens.spelling(first), tokens.starts[first]), first, first)
    elif kind == STRING:
        constant = Constant(string_literal(cursor), pa.string())
        node = _leaf(cursor, "literal", constant, first, cursor.at - 1)
    elif kind == "-":  # a negative number: the caller has checked that
        cursor.at += 2
        node = _leaf(
            cursor, "literal", literals.number("-" + tokens.spelling(first + 1), tokens.starts[first]), first, first + 1
        )
    elif kind == "(":
        return _lambda(cursor)
    elif tokens.is_name(first):
        node = _word(cursor, kind)
    else:
        raise _no_operand(cursor)
    return suffixes(cursor, node, first)


def is_negative_number(cursor: Cursor) -> bool:
    """Whether a minus sign and the number behind it are one literal."""
    return cursor.tokens.kinds[cursor.at + 1] == NUMBER


def string_literal(cursor: Cursor) -> str:
    """Reads one or more adjacent string tokens as one string."""
    tokens = cursor.tokens
    parts = []
    while tokens.kinds[cursor.at] == STRING:
        parts.append(literals.string(tokens.spelling(cursor.at)))
        cursor.at += 1
    return "".join(parts)


def suffixes(cursor: Cursor, node: Node, first: int) -> Node:
    """Reads the fields, subscripts, casts and collations behind an operand."""
    tokens = cursor.tokens
    kinds = tokens.kinds
    while True:
        kind = kinds[cursor.at]
        if kind == ".":
            if node.kind == "column":
                _read_path(cursor, node, first)
                if kinds[cursor.at] != ".":
                    continue
            if not tokens.is_name(cursor.at + 1):
                cursor.at += 1
                raise cursor.unexpected("The name of a field belongs after the dot.")
            name = tokens.name(cursor.at + 1)
            cursor.at += 2
            if kinds[cursor.at] == "(":
                if node.kind == "column" and tuple(part.lower() for part in node.value) in _BUILT_IN:
                    children = _plain_arguments(cursor, name.upper())
                    node = make(tokens, "call", name.lower(), children, first, cursor.at - 1)
                    _refuse_window(cursor, first)
                    continue
                raise RuleError(
                    "NOT_ALLOWED",
                    "Only Spark's built-in functions can be called, by their plain names.",
                    tokens.starts[first],
                )
            node = make(tokens, "field", name, [node], first, cursor.at - 1)
        elif kind == "[":
            cursor.at += 1
            index = cursor.value()
            cursor.expect("]", "A closing square bracket is missing here.")
            node = make(tokens, "subscript", None, [node, index], first, cursor.at - 1)
        elif kind == "::":
            cursor.at += 1
            data_type = read_type(cursor)
            node = make(tokens, "cast", (data_type, False), [node], first, cursor.at - 1)
        elif kind == "COLLATE" and tokens.is_name(cursor.at + 1):
            cursor.at += 2
            node = make(tokens, "collate", None, [node], first, cursor.at - 1)
        elif kind == ":":
            raise RuleError(
                "NOT_ALLOWED",
                "Paths into VARIANT values with a colon are not supported; use variant_get(value, path, type).",
                tokens.starts[cursor.at],
            )
        else:
            return node


def _read_path(cursor: Cursor, node: Node, first: int) -> None:
    """Reads the dotted names behind a column's first name, but not the name of a function that is called."""
    tokens = cursor.tokens
    names = list(node.value)
    while tokens.kinds[cursor.at] == "." and tokens.is_name(cursor.at + 1) and tokens.kinds[cursor.at + 2] != "(":
        names.append(tokens.name(cursor.at + 1))
        cursor.at += 2
    node.value, node.first, node.last = tuple(names), first, cursor.at - 1


def opens_lambda(cursor: Cursor) -> bool:
    """Whether the bracket at the cursor opens the parameters of a lambda, `(x, y) ->`."""
    kinds, at = cursor.tokens.kinds, cursor.at + 1
    count = 0
    while cursor.tokens.is_name(at) and kinds[at + 1] in (",", ")"):
        count += 1
        if kinds[at + 1] == ")":
            return count > 1 and kinds[at + 2] == "->"
        at += 2
    return False


def opens_query(cursor: Cursor) -> bool:
    """Whether a query begins at the cursor: with SELECT, WITH, VALUES or TABLE, unless that names a column."""
    kinds, at = cursor.tokens.kinds, cursor.at
    if kinds[at] not in _OF_QUERIES:
        return False
    return kinds[at + 1] not in _NAME_ENDS or (kinds[at + 1] == "*" and kinds[at] != "VALUES")


def subquery(cursor: Cursor) -> RuleError:
    """The error for a query inside a rule."""
    return RuleError(
        "SUBQUERY",
        "A rule looks at one row at a time: sub-queries are not allowed.",
        cursor.tokens.starts[cursor.at],
    )


def _leaf(cursor: Cursor, kind: str, value: object, first: int, last: int) -> Node:
    cursor.tokens.work.spend(STEPS_OF_LEAF, cursor.tokens.starts[first])
    node = Node(kind, value, [], first, last)
    node.depth = 1
    return node


def _no_operand(cursor: Cursor) -> RuleError:
    kind, start = cursor.tokens.kinds[cursor.at], cursor.tokens.starts[cursor.at]
    if kind in ("?", ":"):
        return RuleError("NOT_ALLOWED", "Parameters have no place in a rule; write the value itself.", start)
    if kind == "*":
        return RuleError("SYNTAX", "A star stands for all columns and has no place in a rule; name one.", start)
    if kind == END:
        return RuleError("SYNTAX", "The expression ends too early: a value is missing here.", start)
    return cursor.unexpected("A value is missing here.")


def _word(cursor: Cursor, kind: str) -> Node:
    """An operand that begins with a word: a keyword construct, a typed literal, a call, a lambda or a column."""
    tokens = cursor.tokens
    kinds, first = tokens.kinds, cursor.at
    following = kinds[first + 1]
    if kind == "CASE" and (following in ("WHEN", "(", STRING) or following not in _NAME_ENDS):
        return _case(cursor)
    if following == "(":
        return _call(cursor, kind)
    if following == "->":
        return _lambda(cursor)
    if kind in ("TRUE", "FALSE"):
        cursor.at += 1
        return _leaf(cursor, "literal", Constant(kind == "TRUE", pa.bool_()), first, first)
    if kind == "NULL":
        cursor.at += 1
        return _leaf(cursor, "literal", Constant(None, pa.null()), first, first)
    if kind == "INTERVAL" and (following in (NUMBER, STRING) or (following in "+-" and following)):
        interval = literals.interval(cursor)
        if interval is not None:
            return _leaf(cursor, "opaque", interval, first, cursor.at - 1)
    if following == STRING and kind != "`":
        return _typed_literal(cursor, kind)
    cursor.at += 1
    return _leaf(cursor, "column", (tokens.name(first),), first, first)


def _typed_literal(cursor: Cursor, kind: str) -> Node:
    first = cursor.at
    cursor.at += 2
    text = literals.string(cursor.tokens.spelling(first + 1))
    value = literals.typed(kind, text, cursor.tokens.starts[first], cursor.zone)
    kind = "literal" if isinstance(value, Constant) else "opaque"
    return _leaf(cursor, kind, value, first, first + 1)


def _lambda(cursor: Cursor) -> Node:
    """`x -> body` or `(x, y, ...) -> body`."""
    tokens, first = cursor.tokens, cursor.at
    names = []
    if tokens.kinds[first] == "(":
        while tokens.kinds[cursor.at] != ")":
            names.append(tokens.name(cursor.at + 1))
            cursor.at += 2
    else:
        names.append(tokens.name(first))
    cursor.at += 1
    cursor.expect("->", "An arrow is missing here.")
    body = cursor.expression()
    return make(tokens, "lambda", tuple(names), [body], first, cursor.at - 1)


def _case(cursor: Cursor) -> Node:
    """`CASE [operand] WHEN condition THEN value ... [ELSE value] END`."""
    tokens = cursor.tokens
    kinds, first = tokens.kinds, cursor.at
    cursor.at += 1
    children = []
    with_operand = kinds[cursor.at] != "WHEN"
    if with_operand:
        children.append(cursor.expression())
    if kinds[cursor.at] != "WHEN":
        raise cursor.unexpected("CASE needs WHEN here.")
    while kinds[cursor.at] == "WHEN":
        cursor.at += 1
        children.append(cursor.expression())
        cursor.expect("THEN", "WHEN needs THEN here.")
        children.append(cursor.expression())
    if kinds[cursor.at] == "ELSE":
        cursor.at += 1
        children.append(cursor.expression())
    cursor.expect("END", "CASE needs END here.")
    return make(tokens, "case", with_operand, children, first, cursor.at - 1)


def _call(cursor: Cursor, kind: str) -> Node:
    """A function call, or a construct that looks like one, with keywords between its arguments."""
    tokens = cursor.tokens
    kinds, first = tokens.kinds, cursor.at
    cursor.at += 2
    name = tokens.name(first).lower()
    if kind == "EXISTS" and opens_query(cursor):
        raise subquery(cursor)
    if kind in ("CAST", "TRY_CAST"):
        value = cursor.expression()
        cursor.expect("AS", "CAST needs AS and a type here.")
        data_type = read_type(cursor)
        cursor.expect(")", "A closing bracket is missing here.")
        return make(tokens, "cast", (data_type, kind == "TRY_CAST"), [value], first, cursor.at - 1)
    if kind == "EXTRACT" and tokens.is_name(cursor.at) and kinds[cursor.at + 1] == "FROM":
        unit = Constant(tokens.name(cursor.at), pa.string())
        children = [_leaf(cursor, "literal", unit, cursor.at, cursor.at)]
        cursor.at += 2
        children.append(cursor.value())
        cursor.expect(")", "A closing bracket is missing here.")
    elif kind in _UNIT_CALLS and kinds[cursor.at] in _UNITS and kinds[cursor.at + 1] == ",":
        token = cursor.at
        cursor.at += 2
        children = cursor.list_of_expressions()
        if len(children) == 2:
            children.insert(0, _leaf(cursor, "literal", Constant(kinds[token], pa.string()), token, token))
            name = "timestampadd" if kind in ("TIMESTAMPADD", "DATEADD", "DATE_ADD") else "timestampdiff"
        else:  # `date_add(day, 1)` of a column with the name of a unit
            children.insert(0, _leaf(cursor, "column", (tokens.name(token),), token, token))
    elif kind == "TRIM":
        name, children = _trim(cursor)
    elif kind == "POSITION":
        children = [cursor.value() if not _starts_boolean(cursor) else cursor.expression()]
        if kinds[cursor.at] == "IN":
            cursor.at += 1
            children.append(cursor.value())
            cursor.expect(")", "A closing bracket is missing here.")
        else:
            children += _rest_of_arguments(cursor)
    elif kind in ("SUBSTRING", "SUBSTR"):
        children = _with_keywords(cursor, ("FROM", "FOR"))
    elif kind == "OVERLAY":
        children = _with_keywords(cursor, ("PLACING", "FROM", "FOR"))
    else:
        children = _arguments(cursor, kind)
    node = make(tokens, "call", name, children, first, cursor.at - 1)
    _refuse_window(cursor, first)
    return node


def _starts_boolean(cursor: Cursor) -> bool:
    return cursor.tokens.kinds[cursor.at] in ("NOT", "!")


_TRIMS = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


def _trim(cursor: Cursor) -> tuple[str, list[Node]]:
    """Reads `TRIM([BOTH | LEADING | TRAILING] [letters] FROM text)`, or plain arguments. Returns the function's name,
    and as its arguments the letters, if given, and the text."""
    kinds = cursor.tokens.kinds
    directed = kinds[cursor.at] in _TRIMS and kinds[cursor.at + 1] not in (")", ",", ".")
    name = _TRIMS[kinds[cursor.at]] if directed else "trim"
    cursor.at += directed
    children = []
    if not (directed and kinds[cursor.at] == "FROM"):
        children.append(cursor.expression())
    if kinds[cursor.at] != "FROM":
        if directed:
            raise cursor.unexpected("TRIM needs FROM here.")
        return name, children + _rest_of_arguments(cursor)
    cursor.at += 1
    children.append(cursor.value())
    cursor.expect(")", "A closing bracket is missing here.")
    return name, children


def _with_keywords(cursor: Cursor, words: tuple[str, ...]) -> list[Node]:
    """Reads arguments that are separated by commas or by these keywords, in this order."""
    if cursor.tokens.kinds[cursor.at] == ")":
        cursor.at += 1
        return []
    children = [cursor.expression()]
    for word in words:
        if cursor.tokens.kinds[cursor.at] not in (word, ","):
            continue
        cursor.at += 1
        children.append(cursor.expression())
    cursor.expect(")", "A closing bracket is missing here.")
    return children


def _rest_of_arguments(cursor: Cursor) -> list[Node]:
    if cursor.tokens.kinds[cursor.at] == ",":
        cursor.at += 1
        return cursor.list_of_expressions()
    cursor.expect(")", "A comma or a closing bracket is missing here.")
    return []


def _arguments(cursor: Cursor, kind: str) -> list[Node]:
    """The arguments of a plain call, including the closing bracket."""
    tokens = cursor.tokens
    kinds = tokens.kinds
    if kinds[cursor.at] == ")":
        cursor.at += 1
        return []
    if kinds[cursor.at] in ("DISTINCT", "ALL") and kinds[cursor.at + 1] not in (")", ",", ".", "="):
        if kinds[cursor.at] == "DISTINCT":
            raise RuleError(
                "AGGREGATE", "A rule looks at one row at a time: aggregates are not allowed.", tokens.starts[cursor.at]
            )
        cursor.at += 1
    if kinds[cursor.at] == "*" and kinds[cursor.at + 1] == ")":
        cursor.at += 2
        return []
    children = []
    while True:
        if tokens.is_name(cursor.at) and kinds[cursor.at + 1] == "=>":
            if kind.lower() not in NAMED_ARGUMENTS:
                raise cursor.unexpected("This function takes no named arguments; write the values in their order.")
            cursor.at += 2
        children.append(cursor.expression())
        if kind == "STRUCT" and kinds[cursor.at] not in (",", ")"):
            cursor.at += kinds[cursor.at] == "AS"
            if not tokens.is_name(cursor.at):
                raise cursor.unexpected("The name of a field belongs here.")
            cursor.at += 1
        if kinds[cursor.at] == ",":
            cursor.at += 1
            continue
        if kinds[cursor.at] in ("IGNORE", "RESPECT", "ORDER"):
            raise RuleError(
                "AGGREGATE", "A rule looks at one row at a time: aggregates are not allowed.", tokens.starts[cursor.at]
            )
        cursor.expect(")", "A comma or a closing bracket is missing here.")
        return children


def _plain_arguments(cursor: Cursor, kind: str) -> list[Node]:
    """The arguments of a call whose opening bracket is at the cursor."""
    cursor.at += 1
    return _arguments(cursor, "" if kind == "STRUCT" else kind)


def _refuse_window(cursor: Cursor, first: int) -> None:
    """Raises if a call continues as a window function or a filtered aggregate."""
    kinds, at, start = cursor.tokens.kinds, cursor.at, cursor.tokens.starts[first]
    if kinds[at] in ("IGNORE", "RESPECT") and kinds[at + 1] == "NULLS":
        at += 2
    if kinds[at] == "OVER":
        raise RuleError("WINDOW", "A rule looks at one row at a time: window functions are not allowed.", start)
    if at > cursor.at or (kinds[at] in ("FILTER", "WITHIN") and kinds[at + 1] in ("(", "GROUP")):
        raise RuleError("AGGREGATE", "A rule looks at one row at a time: aggregates are not allowed.", start)
