"""Mistakes found from the types of what is compared: errors on every row, and comparisons that are never TRUE."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from rules_index.implication.kinds import (
    ALWAYS_RAISES,
    MAY_RAISE,
    NEVER_TRUE,
    SEPARATED_NUMBER,
)
from rules_index.implication.messages import quoted
from rules_index.implication.mistakes.mistake import Mistake
from rules_index.implication.mistakes.parsed_rule import EQUALITIES, ConstantComparison, ParsedRule, can_hold
from rules_index.language import constants
from rules_index.language.coercion import (
    BOOLEAN,
    DATE,
    STRING,
    Type,
    is_decimal,
    is_float,
    is_integer,
    is_number,
    name_of,
)
from rules_index.language.domains_of_functions import LEAST_AND_GREATEST
from rules_index.language.evaluation import datetime_parser
from rules_index.language.evaluation.datetime_parser import names_moment
from rules_index.language.formula import Predicate
from rules_index.language.nodes import Node, inside
from rules_index.language.tokens import words
from rules_index.language.type_names import TIMESTAMP, TIMESTAMP_NTZ
from rules_index.language.typed import Constant, Leaf, Operation

_TIMES = {DATE: "DATE", TIMESTAMP: "TIMESTAMP", TIMESTAMP_NTZ: "TIMESTAMP_NTZ"}
_PERHAPS_NUMBER = re.compile(r"(?i)[+-]?(?:[0-9.]+(?:e[+-]?[0-9]+)?[df]?|0x[0-9a-fp.+-]*[df]?|nan|inf|infinity)")
"""Matches every string that Java parses as a number, and a few others."""
_DAY_FIRST = re.compile(r"(\d{1,2})\s*([./-])\s*(\d{1,2})\s*[./-]\s*(\d{4})(.*)", re.DOTALL)
_YEAR_FIRST = re.compile(r"(\d{4})\s*[-./]\s*(\d{1,2})\s*[-./]\s*(\d{1,2})(.*)", re.DOTALL)
_DIVISIONS = frozenset(("/", "%", "DIV"))
_DIVIDING = words("mod pmod div")
_CAPITALS, _SMALL = frozenset(("upper", "ucase")), frozenset(("lower", "lcase"))


def raises_always(rule: ParsedRule) -> Iterator[Mistake]:
    """Strings that cannot be cast to the number, time or truth value that they are compared with; strings in place of a
    condition; casts and calls of constants that raise; and divisions by 0."""
    reported: set[Node] = set()
    for each in rule.comparisons:
        subject = rule.value(each.subject)
        if each.constant.type != STRING or subject is None or each.constant_node in reported:
            continue
        data_type = _beside_text(each, subject.type, rule)
        if data_type is not None and _is_refused(str(each.constant.value), data_type):
            reported.add(each.constant_node)
            # another bound of BETWEEN, or an item before this one, may decide it
            part = each.constant_node if each.node.kind in ("between", "in") else each.node
            yield rule.mistake(ALWAYS_RAISES, part, _text_message(rule, each, data_type))
    yield from _conditions(rule)
    yield from _raising_calls(rule)
    for node, divisor in divisions(rule):
        constant = rule.constant(divisor)
        if constant is not None and is_number(constant.type) and constant.value == 0:
            message = (
                f"{quoted(rule.words(node))} divides by 0, which raises an error on every row that has a value to "
                "divide, so that this part of the rule is never TRUE. Correct the divisor."
            )
            yield rule.mistake(ALWAYS_RAISES, node, message)


def _beside_text(each: ConstantComparison, data_type: Type, rule: ParsedRule) -> Type:
    """The type to which a string is cast if it is compared with a value of `data_type`; None if it is not cast, or the
    value's type is unknown."""
    if data_type is None or data_type == STRING:
        return None
    if each.node.kind == "in":
        kinds = {value.type for child in each.node.children[1:] if (value := rule.value(child)) is not None}
        if not kinds <= {STRING}:
            return None
    return data_type if is_number(data_type) or data_type in _TIMES or data_type == BOOLEAN else None


def _is_refused(text: str, data_type: pa.DataType) -> bool:
    """Whether Spark certainly raises an error if it casts a string to a type."""
    text = text.strip("".join(map(chr, range(33))))
    if is_number(data_type):
        return not _PERHAPS_NUMBER.fullmatch(text) or (is_integer(data_type) and "." in text)
    if constants.cast(Constant(text, STRING), data_type, "UTC") is not None:
        return False
    if data_type in _TIMES and names_moment(text):
        return False
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        return datetime_parser.parse_timestamp(text) is None and not datetime_parser.is_time_of_day(text)
    return True


def _text_message(rule: ParsedRule, each: ConstantComparison, data_type: pa.DataType) -> str:
    text, shown = str(each.constant.value), rule.words(each.constant_node)
    subject = quoted(rule.words(each.subject))
    kind = name_of(data_type)
    before = (
        f"{subject} is {kind}, and {shown} is no {_TIMES.get(data_type, kind)}: the comparison raises an error on "
        "every row, so that it is never TRUE. "
    )
    if text.strip().lower() == "null":
        return before + f"Write {quoted(rule.words(each.subject) + ' IS NULL')}."
    if data_type in _TIMES:
        return before + _time_suggestion(text, _TIMES[data_type])
    if data_type == BOOLEAN:
        return before + "Write TRUE or FALSE."
    digits = re.sub(r"[^0-9.,-]", "", text).strip(".,-")
    if digits:
        plain = digits.replace(",", "") if "." in digits or re.fullmatch(r"\d{1,3}(,\d{3})+", digits) else digits
        return before + f"Write the number alone, as in {plain.replace(',', '.')}."
    return before + f"Compare it with a number, or a STRING column with {shown}."


def _time_suggestion(text: str, kind: str) -> str:
    found, first = _DAY_FIRST.fullmatch(text.strip()), _YEAR_FIRST.fullmatch(text.strip())
    year, month, day = (2026, 10, 1)
    if found:
        day, month, year = int(found[1]), int(found[3]), int(found[4])
        if month > 12:
            day, month = month, day
    elif first:
        year, month, day = (int(part) for part in first.group(1, 2, 3))
    if datetime_parser.days_of(year, month, day) is None:
        return "There is no such day; a date is written year-month-day, as in DATE'2026-10-01'."
    if kind != "DATE" and text.strip().startswith(f"{year:04}-{month:02}-{day:02}"):
        return "What follows the day is no time of day, as 23:59:59 is."
    rest = "" if kind == "DATE" else " 00:00:00"
    return f"Write the year first: {kind}'{year:04}-{month:02}-{day:02}{rest}'."


def _conditions(rule: ParsedRule) -> Iterator[Mistake]:
    """`channel = 'a' OR 'b'`, `NOT 'b'`: a string where a condition is needed, which Spark casts to BOOLEAN."""
    for node in rule.of("and", "or", "not"):
        # Beside the first child stands the second, if there is one; beside the others the one before.
        for before, child in zip([*node.children[1:2], *node.children], node.children, strict=False):
            constant = rule.constant(child) if child.kind == "literal" else None
            if constant is None or constant.type != STRING or not _is_refused(str(constant.value), BOOLEAN):
                continue
            suggestion = "Write the whole comparison again."
            if before.kind == "compare" and before.value == "=" and node.kind == "or":
                left, right = (rule.words(part) for part in before.children)
                suggestion = f"Write {quoted(f'{left} IN ({right}, {rule.words(child)})')}."
            elif before.kind in ("like", "rlike", "compare"):
                left = rule.words(before.children[0])
                word = (
                    before.value[0] if before.kind == "like" else before.value if before.kind == "compare" else "RLIKE"
                )
                suggestion = f"Write {quoted(f'{left} {word} {rule.words(child)}')}."
            message = (
                f"{rule.words(child)} is used where a condition is needed: it is cast to BOOLEAN, which raises an "
                f"error on every row that reaches it. {suggestion}"
            )
            yield rule.mistake(ALWAYS_RAISES, child, message)


def _raising_calls(rule: ParsedRule) -> Iterator[Mistake]:
    """`to_date('31.12.2026')`, `CAST('high' AS INT)`: casts and calls of constants that raise."""
    for node in rule.of("cast", "call"):
        value = rule.value(node)
        if value is None or not isinstance(value.local, Operation) or value.local.name != "raise":
            continue
        if node.value in _DIVIDING or not node.children:
            continue
        text, suggestion = rule.constant(node.children[0]), "Correct its arguments."
        if text is not None and text.type == STRING and len(node.children) == 1:
            kind = _TIMES.get(value.type)
            suggestion = f"{rule.words(node.children[0])} is no {kind or name_of(value.type)}. "
            suggestion += _time_suggestion(str(text.value), kind) if kind else "Correct it."
        message = (
            f"{quoted(rule.words(node))} raises an error on every row that reaches it, so that this part of the rule "
            f"is never TRUE. {suggestion}"
        )
        yield rule.mistake(ALWAYS_RAISES, node, message)


def divisions(rule: ParsedRule) -> Iterator[tuple[Node, Node]]:
    """The divisions of a rule, each with its divisor."""
    for node in rule.of("arithmetic"):
        for operator, divisor in zip(node.value, node.children[1:], strict=True):
            if operator in _DIVISIONS:
                yield node, divisor
    for node in rule.of("call"):
        if node.value in _DIVIDING and len(node.children) == 2:
            yield node, node.children[1]


def may_raise(rule: ParsedRule) -> Iterator[Mistake]:
    """Divisions by a column that has zeros, and columns of strings that are compared with a number although some of
    their values are none. A division is left out if the rule tests its divisor, as in `b <> 0 AND a / b > 1`."""
    chosen = {leaf for node in rule.of("case", "is", "call") if _guards(node) for leaf in _leaves(rule, node)}
    asked = [each for each in rule.comparisons if rule.leaf(each.subject) is not None]
    chosen |= {leaf for each in asked if (leaf := rule.leaf(each.subject)) is not None}
    for node, divisor in divisions(rule):
        known = rule.known(divisor)
        if known is None or not known.has_zero or rule.leaf(divisor) in chosen:
            continue
        name = rule.words(divisor)
        message = (
            f"{quoted(name)} is 0 on some rows of the source, and {quoted(rule.words(node))} raises an error there, so "
            f"that they never match. Ask for {quoted(f'{name} <> 0')} too, or divide by {quoted(f'nullif({name}, 0)')}."
        )
        yield rule.mistake(MAY_RAISE, node, message)
    for each in asked:
        known = rule.known(each.subject)
        if known is None or known.texts is None or not is_number(each.constant.type):
            continue
        wrong = next((text for text in sorted(known.texts) if not _PERHAPS_NUMBER.fullmatch(text.strip())), None)
        if wrong is not None:
            name = rule.words(each.subject)
            message = (
                f"{quoted(name)} is STRING and is cast to a number here, which raises an error on rows like those with "
                f"{name} = '{wrong}'. Write the constant as a text, '{rule.words(each.constant_node)}', or use "
                f"try_cast."
            )
            yield rule.mistake(MAY_RAISE, each.node, message)


def _guards(node: Node) -> bool:
    """Whether a node tests or replaces NULL or some values, so that a division by its columns may be safe."""
    return node.kind in ("case", "is") or (
        node.kind == "call"
        and node.value in ("if", "nullif", "coalesce", "isnotnull", "isnull", "greatest", "nullifzero")
    )


def _leaves(rule: ParsedRule, node: Node) -> Iterator[Leaf]:
    for child in inside(node):
        if (leaf := rule.leaf(child)) is not None:
            yield leaf


def never_true(rule: ParsedRule) -> Iterator[Mistake]:
    """Comparisons that are TRUE for no value: a fraction and whole numbers, small letters and `upper`, ..."""
    for each in rule.comparisons:
        reason = _capitals(rule, each) or _fraction(rule, each) or _outside(rule, each)
        if reason is not None:
            yield rule.mistake(NEVER_TRUE, each.node, reason)


def _never(rule: ParsedRule, each: ConstantComparison) -> str:
    unequal = each.operator == "<>"
    operator = "=" if unequal else each.operator
    shown = f"{rule.words(each.subject)} {operator} {rule.words(each.constant_node)}"
    return f"{quoted(shown)} is TRUE on no row" + (", so that its opposite says nothing" if unequal else "")


def _capitals(rule: ParsedRule, each: ConstantComparison) -> str | None:
    name = each.subject.value if each.subject.kind == "call" else None
    if each.operator not in EQUALITIES or each.constant.type != STRING or name not in _CAPITALS | _SMALL:
        return None
    text = str(each.constant.value)
    plain = "".join(character for character in text if character.isascii())
    wanted = plain.upper() if name in _CAPITALS else plain.lower()
    if plain == wanted:
        return None
    letters = "capitals" if name in _CAPITALS else "small letters"
    right = text.upper() if name in _CAPITALS else text.lower()
    return f"{_never(rule, each)}: {name} gives {letters} alone. Write '{right}'."


def _fraction(rule: ParsedRule, each: ConstantComparison) -> str | None:
    """Why an equality with a number that the column cannot have is never TRUE."""
    leaf = rule.leaf(each.subject)
    if leaf is None or each.operator not in EQUALITIES or not is_number(each.constant.type):
        return None
    if not (is_integer(leaf.type) or is_decimal(leaf.type)) or (is_float(each.constant.type) and is_decimal(leaf.type)):
        return None
    if can_hold(leaf, each.constant):
        return None
    subject, constant = rule.analyser.value(each.subject), rule.analyser.value(each.constant_node)
    found = rule.splitter.compare(each.node, "=", subject, constant)
    if not isinstance(found, Predicate) or not constants.clamp(found.true, leaf.type).is_empty:
        return None
    number = rule.words(each.constant_node)
    if is_integer(leaf.type) and _value(each.constant) % 1:
        return (
            f"{_never(rule, each)}: {quoted(rule.words(each.subject))} holds whole numbers. Compare with one of them."
        )
    return f"{_never(rule, each)}: {number} is beyond what the column can hold, which is {name_of(leaf.type)}."


def _value(constant: Constant) -> float:
    scale = constant.type.scale if is_decimal(constant.type) else 0
    return float(constant.value) / 10**scale


def _outside(rule: ParsedRule, each: ConstantComparison) -> str | None:
    """Why a comparison with a function that has a limited range, like `hour`, is never TRUE."""
    name = each.subject.value if each.subject.kind == "call" else None
    ends = LEAST_AND_GREATEST.get(str(name))
    if ends is None or not is_number(each.constant.type):
        return None
    (low, high), number = ends, _value(each.constant)
    never = {
        "=": not low <= number <= high, "<=>": not low <= number <= high, "<>": not low <= number <= high,
        "<": number <= low, "<=": number < low, ">": number >= high, ">=": number > high,
    }  # fmt: skip
    if not never[each.operator]:
        return None
    return f"{_never(rule, each)}: {name} has values from {low} to {high}. Correct the constant."


def quoted_names(rule: ParsedRule) -> Iterator[Mistake]:
    """`'amount' > 5`: a column's name in quotes is a string."""
    for node in rule.of("compare", "in", "between", "like", "rlike"):
        if node.children[0].kind != "literal":
            continue
        name = node.children[0].value.value
        if not isinstance(name, str) or not rule.scope.has(name) or any(map(rule.leaf, node.children)):
            continue
        kinds = {constant.type for each in node.children[1:] if (constant := rule.constant(each)) is not None}
        raises = kinds and STRING not in kinds
        quoted_name = rule.words(node.children[0])
        message = (
            f"{quoted_name} is a text, not the column of that name, so that {quoted(rule.words(node))} "
            f"{'raises an error' if raises else 'says the same'} on every row. Write the name without quotes: {name}."
        )
        yield rule.mistake(ALWAYS_RAISES if raises else NEVER_TRUE, node, message)


def separated_numbers(rule: ParsedRule) -> Iterator[Mistake]:
    """`IN (1,000, 2,000)`: what was meant as one number is two items of a list."""
    for node in rule.of("in", "row", "call"):
        items = node.children[1:] if node.kind == "in" else node.children
        pairs = list(pairwise(items))
        gaps = [_gap(rule, *pair) for pair in pairs]
        groups = [pair for pair, gap in zip(pairs, gaps, strict=True) if gap == 1 and _is_group(rule, *pair)]
        is_mixed = 0 < len(groups) == sum(gap == 1 for gap in gaps) < len(gaps)
        zeros = [pair for pair in groups if rule.words(pair[1]).startswith("0")]
        if not is_mixed and not zeros:
            continue
        before, item = (zeros or groups)[0]
        first, second = rule.words(before), rule.words(item)
        message = (
            f"{quoted(f'{first},{second}')} is two items here, {first} and {int(second)}. If one number is meant, "
            f"write {first}{second}; otherwise write a blank after the comma."
        )
        yield rule.mistake(SEPARATED_NUMBER, before, message, item)


def _gap(rule: ParsedRule, before: Node, item: Node) -> int:
    """The number of characters between two items of a list."""
    return rule.tokens.starts[item.first] - rule.tokens.ends[before.last]


def _is_group(rule: ParsedRule, before: Node, item: Node) -> bool:
    """Whether two numbers look like the digits before and behind a thousands separator."""
    if before.kind != "literal" or item.kind != "literal":
        return False
    first, second = rule.words(before), rule.words(item)
    return bool(re.fullmatch(r"-?\d{1,3}", first) and re.fullmatch(r"\d{3}", second))
