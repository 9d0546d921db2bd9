"""Calls over arrays and maps whose tree depends on more than the types of the arguments: items that are written as
constants, conditions on items, keys of maps."""

from __future__ import annotations

import pyarrow as pa

from rules_index.errors import RuleError
from rules_index.language import operations
from rules_index.language.analysis import Analysis, Value
from rules_index.language.coercion import BOOLEAN, INTEGER_BITS, STRING, Type, is_integer
from rules_index.language.constant_folding import folded_call
from rules_index.language.nodes import Node
from rules_index.language.results import item_type
from rules_index.language.scope import Scope
from rules_index.language.typed import Constant, Expression, Operation, leaves_of


def _element(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`element_at(map, key)`, which is `map[key]`; None for an array, for which `function_registry` has an entry."""
    container, key = arguments
    if container.type is None or not pa.types.is_map(container.type) or container.collated or key.collated:
        return None
    kind, zone = item_type(container.type), analyser.scope.time_zone
    return analyser.make_value(node, kind, folded_call("map_value", [container.local, key.local], kind, zone))


def _arrays_overlap(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`arrays_overlap(items, array('a', 'b'))`, if all items of one array are written as constants: whether the other
    array contains one of them."""
    zone = analyser.scope.time_zone
    for array, listed in ((0, 1), (1, 0)):
        items = arguments[array]
        wanted = _listed(analyser, items, node.children[listed])
        if wanted:
            trees = [folded_call("array_contains", [items.local, each], BOOLEAN, zone) for each in wanted]
            tree = trees[0] if len(trees) == 1 else operations.operation("or", trees, BOOLEAN)
            return analyser.make_value(node, BOOLEAN, tree)
    return _of_arrays(analyser, node, arguments)


def _of_arrays(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`arrays_overlap`, `array_union`, `concat` or `reverse` of arrays of one type."""
    kind, trees = arguments[0].type if arguments else None, [each.local for each in arguments]
    if kind is None or not pa.types.is_list(kind) or any(each.collated for each in arguments):
        return None
    name = {"arrays_overlap": "overlap", "concat": "concat_arrays", "reverse": "reverse_array"}.get(
        node.value, node.value
    )
    result = BOOLEAN if name == "overlap" else kind
    tree = folded_call(name, trees, result, analyser.scope.time_zone)
    return None if tree is None else analyser.make_value(node, result, tree)


def _is_among(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`array_contains(array('a', 'b'), text)`, which is `text IN ('a', 'b')`, also for integers."""
    operator = as_in(analyser, node)
    return None if operator is None else analyser.value(operator)


def as_in(analyser: Analysis, node: Node) -> Node | None:
    """The IN that a call of array_contains is equivalent to; None if its array is not written as constants."""
    written, sought = node.children
    if written.kind != "call" or written.value != "array" or not written.children:
        return None
    values = [analyser.value(each) for each in (sought, *written.children)]
    constants = [each.local for each in values[1:]]
    if not all(isinstance(each, Constant) and each.value is not None for each in constants):
        return None
    is_plain = all(each.type == STRING for each in values) or all(is_integer(each.type) for each in values)
    if not is_plain or any(each.collated for each in values):
        return None
    operator = Node("in", False, [sought, *written.children], node.first, node.last)
    operator.depth = node.depth
    return operator


def _items_among(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`array_intersect(items, array('a', 'b'))` or `array_except`, if the second array is written as constants."""
    items, zone = arguments[0], analyser.scope.time_zone
    wanted = _listed(analyser, items, node.children[1])
    if not wanted:
        return None
    tree = folded_call(node.value, [items.local, *wanted], items.type, zone)
    return analyser.make_value(node, items.type, tree)


def _listed(analyser: Analysis, items: Value, written: Node) -> list[Expression]:
    """The items of an array that is written as constants, as items of another array; none if they are not all
    constants of its items' type, or if only Spark can evaluate the other array."""
    if items.local is None or items.collated or written.kind != "call" or written.value != "array":
        return []
    kind, zone = item_type(items.type), analyser.scope.time_zone
    found = []
    for tree in (analyser.value(child).local for child in written.children):
        if not isinstance(tree, Constant) or tree.value is None:
            return []
        cast = operations.as_type(tree, kind, zone) if _widens(tree.type, kind) else tree
        if cast is None or cast.type != kind:
            return []
        found.append(cast)
    return found


def _widens(kind: pa.DataType, target: Type) -> bool:
    return is_integer(kind) and is_integer(target) and INTEGER_BITS[kind] <= INTEGER_BITS[target]


def _condition_on(analyser: Analysis, body: Node, kind: pa.DataType) -> Operation | None:
    """A lambda's body as a condition over leaves: its parameter, of type `kind`, and the parameter's fields. None if
    the body needs Spark, names anything else, or may raise."""
    inner = analyser.over(Scope(pa.schema([pa.field(body.value[0], kind)]), analyser.scope.time_zone))
    try:
        tree = inner.truth(body.children[0])
    except RuleError:
        return None
    if not isinstance(tree, Operation) or operations.can_raise(tree):
        return None
    leaves = list(leaves_of(tree))
    return tree if leaves and all(leaf.text is None for leaf in leaves) else None


def _over_items(analyser: Analysis, node: Node, arguments: list[Value]) -> Value | None:
    """`exists(items, x -> ...)`, `forall` and `filter`, if the condition depends only on the item."""
    items = arguments[0]
    kind = item_type(items.type)
    if items.local is None or items.collated or kind is None:
        return None
    condition = _condition_on(analyser, node.children[1], kind)
    if condition is None:
        return None
    result = items.type if node.value == "filter" else BOOLEAN
    return analyser.make_value(node, result, Operation(node.value, (items.local,), result, (condition,)))


ARRAY_CALLS = {
    **dict.fromkeys(("element_at", "try_element_at"), _element),
    "array_contains": _is_among,
    "arrays_overlap": _arrays_overlap,
    **dict.fromkeys(("array_union", "concat", "reverse"), _of_arrays),
    **dict.fromkeys(("array_intersect", "array_except"), _items_among),
    **dict.fromkeys(("exists", "forall", "filter"), _over_items),
}
"""The calls by name; a function returns None like those of `special_calls`."""
