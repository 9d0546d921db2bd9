"""Finds the columns that a value needs: if one of them is NULL, the value is NULL or its evaluation fails.

Of an expression that only Spark can evaluate, only the text is known. This is the one property that can be derived from
it without Spark.
"""

from __future__ import annotations

import pyarrow as pa

from rules_index.errors import RuleError
from rules_index.language.analyser import Analyser
from rules_index.language.evaluation import function_registry
from rules_index.language.nodes import Node
from rules_index.language.parser import parse
from rules_index.language.scope import Scope
from rules_index.language.tokens import words
from rules_index.language.typed import Constant, Expression, Leaf, Operation

_NOTHING: frozenset[Leaf] = frozenset()
_STRICT = words("add subtract multiply divide remainder quotient negate abs cast = <> < <= > >= not")
_STRICT_IN_THE_FIRST = frozenset(("in", "in_list", "like", "rlike"))
_STRICT_NODES = frozenset(("arithmetic", "unary", "cast", "collate", "field", "subscript", "not"))
_STRICT_CALLS = words("""
    abs acos add_months array_contains array_distinct array_max array_min array_union arrays_overlap ascii asin atan
    atan2 base64 bigint binary bit_count bit_length boolean bround btrim cbrt ceil ceiling char_length
    character_length concat contains cos crc32 date date_add date_diff date_format date_from_unix_date date_sub
    date_trunc datediff day dayofmonth dayofweek dayofyear degrees double encode endswith exists exp expm1 filter
    float floor forall hex hour hypot ilike initcap instr int last_day lcase left len length like ln
    log10 log1p log2 lower lpad ltrim map_contains_key map_keys map_values md5 minute mod month months_between
    negative next_day octet_length overlay pmod positive pow power quarter radians regexp regexp_count
    regexp_extract regexp_instr regexp_like regexp_replace regexp_substr repeat replace reverse right rint rlike
    round rpad rtrim sha sha1 sha2 shiftleft shiftright sign signum sin slice smallint sort_array soundex split
    split_part sqrt startswith string substr substring substring_index tan timestamp timestamp_micros
    timestamp_millis timestamp_seconds tinyint to_date to_timestamp transform translate trim trunc ucase unbase64
    unhex unix_date unix_micros unix_millis unix_seconds upper weekday weekofyear year""")
"""Functions that are NULL if any of their arguments is."""


def columns_needed(value: Expression, scope: Scope | None) -> frozenset[Leaf]:
    """The columns, or fields of columns, that a value needs. Without a scope a derived column needs none."""
    if isinstance(value, Leaf):
        if value.text is None:
            return frozenset((value,))
        return _needed_by_text(value.text, scope) if scope is not None else _NOTHING
    if isinstance(value, Constant):
        return _NOTHING
    if value.name in _STRICT or (value.name == "call" and function_registry.is_strict(value)):
        return _NOTHING.union(*(columns_needed(operand, scope) for operand in value.operands))
    if value.name in _STRICT_IN_THE_FIRST:
        return columns_needed(value.operands[0], scope)
    if value.name in ("coalesce", "and", "or"):
        first, *others = (columns_needed(operand, scope) for operand in value.operands)
        return first.intersection(*others)
    return _NOTHING


def is_null_with_its_columns_only(value: Expression) -> bool:
    """Whether a value is certainly NULL only on rows on which one of its columns is."""
    if not isinstance(value, Operation):
        return isinstance(value, Leaf) and value.text is None
    if pa.types.is_decimal(value.type):
        # a cast of infinity to DECIMAL is NULL
        return False
    parts = value.operands[:1] if value.name in _STRICT_IN_THE_FIRST else value.operands
    return value.name in _STRICT | {"in_list", "like", "rlike"} and all(
        is_null_with_its_columns_only(part) or (isinstance(part, Constant) and part.value is not None) for part in parts
    )


def _needed_by_text(text: str, scope: Scope) -> frozenset[Leaf]:
    try:
        node, tokens = parse(text, scope.time_zone)
    except RuleError:
        return _NOTHING
    return _needed_by(node, Analyser(tokens, scope))


def _needed_by(node: Node, analyser: Analyser) -> frozenset[Leaf]:
    if node.kind == "column":
        return _column(node, analyser)
    strict = node.kind in _STRICT_NODES or (node.kind == "compare" and node.value != "<=>")
    if strict or (node.kind == "call" and node.value in _STRICT_CALLS):
        return _NOTHING.union(*(_needed_by(child, analyser) for child in node.children))
    if node.kind in ("between", "in", "in_list", "like", "rlike"):
        return _needed_by(node.children[0], analyser)
    return _NOTHING


def _column(node: Node, analyser: Analyser) -> frozenset[Leaf]:
    try:
        found = analyser.value(node).local
    except RuleError:
        return _NOTHING
    return frozenset((found,)) if isinstance(found, Leaf) else _NOTHING
