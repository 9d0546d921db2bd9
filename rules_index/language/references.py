"""Resolves names to columns, variables of lambdas, fields and items. Raises `RuleError` for an unknown name."""

from __future__ import annotations

import pyarrow as pa

from rules_index.language import calls
from rules_index.language.analysis import Analysis, Value
from rules_index.language.coercion import STRING, Type, is_nested, name_of
from rules_index.language.constant_folding import folded_call
from rules_index.language.function_signatures import NOT_REPEATABLE, PLAIN_NAMES
from rules_index.language.nodes import Node
from rules_index.language.results import item_type
from rules_index.language.scope import field_of, path_of, quote
from rules_index.language.typed import Constant, Expression, Leaf


def column(analysis: Analysis, node: Node) -> Value:
    """The value of a column, of a lambda's variable, or of a field of either, given its dotted name."""
    parts: tuple[str, ...] = node.value
    position = analysis.tokens.starts[node.first]
    for variables in reversed(analysis.variables):
        if parts[0].lower() in variables:
            return _path(analysis, node, variables[parts[0].lower()], None, parts[1:])
    name = parts[0].lower()
    if len(parts) == 1 and not analysis.scope.has(name) and name in PLAIN_NAMES and name in NOT_REPEATABLE:
        raise calls.not_repeatable(name, position)
    spelling, data_type = analysis.scope.column(parts[0], position)
    return _path(analysis, node, data_type, [spelling], parts[1:])


def _path(analysis: Analysis, node: Node, data_type: Type, path: list[str] | None, parts: tuple[str, ...]) -> Value:
    """Follows the names of fields, `parts`, behind a column or variable of type `data_type`.

    `path` has the names from the column on. It is None for a lambda's variable, and behind anything but a STRUCT's
    field.
    """
    position = analysis.tokens.starts[node.first]
    for place, part in enumerate(parts):
        if data_type is None:
            return Value(node, None)
        if pa.types.is_struct(data_type):
            spelling, data_type = field_of(data_type, part, position)
            path = None if path is None else [*path, spelling]
            continue
        if path is not None and pa.types.is_map(data_type) and place == len(parts) - 1:
            container = None if analysis.variables else analysis.scope.leaf(path_of(path), data_type)
            return _value_of_key(analysis, node, data_type, container, part)
        data_type, path = _extracted(analysis, node, data_type, part), None
    if path is None or data_type is None or analysis.variables:
        return Value(node, data_type)
    return Value(node, data_type, analysis.scope.leaf(path_of(path), data_type))


def _value_of_key(analysis: Analysis, node: Node, kind: pa.MapType, container: Expression | None, key: str) -> Value:
    """The value of a map at a key, written `map.key` like a field."""
    trees = [container, Constant(key, STRING)]
    tree = folded_call("map_value", trees, kind.item_type, analysis.scope.time_zone)
    return analysis.make_value(node, kind.item_type, tree)


def _extracted(analysis: Analysis, node: Node, base: pa.DataType, name: str) -> Type:
    """The type of `.name` applied to a map, or to an array of structs."""
    if pa.types.is_map(base):
        return item_type(base)
    if pa.types.is_list(base) and pa.types.is_struct(base.value_type):
        item = field_of(base.value_type, name, analysis.tokens.starts[node.first])[1]
        return None if item is None else pa.list_(item)
    raise analysis.error("TYPE_MISMATCH", f"{name_of(base)} has no fields, so {name!r} cannot be taken from it.", node)


def field(analysis: Analysis, node: Node) -> Value:
    """The value of a node `value.name`."""
    base = analysis.value(node.children[0])
    if base.type is None:
        return Value(node, None, None, base.collated)
    if pa.types.is_struct(base.type):
        return _field_of(analysis, node, base, node.value)
    if pa.types.is_map(base.type) and not base.collated:
        return _value_of_key(analysis, node, base.type, base.local, node.value)
    return Value(node, _extracted(analysis, node, base.type, node.value), None, base.collated)


def _field_of(analysis: Analysis, node: Node, base: Value, name: str) -> Value:
    """The value of a field of a STRUCT."""
    assert isinstance(base.type, pa.StructType)
    spelling, data_type = field_of(base.type, name, analysis.tokens.starts[node.first])
    if isinstance(base.local, Leaf) and base.local.text is None and data_type is not None:
        path = f"{base.local.name}.{quote(spelling)}"
        return Value(node, data_type, analysis.scope.leaf(path, data_type))
    return Value(node, data_type, None, base.collated)


def subscript(analysis: Analysis, node: Node) -> Value:
    """The value of a node `value[index]`, for an array, a map or a STRUCT."""
    base, index = analysis.value(node.children[0]), analysis.value(node.children[1])
    if base.type is not None and pa.types.is_struct(base.type):
        # Spark takes no computed text for the name of a field
        name = index.local.value if index.node.kind == "literal" and isinstance(index.local, Constant) else None
        return _field_of(analysis, node, base, name) if isinstance(name, str) else Value(node, None)
    if base.type is not None and item_type(base.type) is None and not is_nested(base.type):
        raise analysis.error("TYPE_MISMATCH", f"{name_of(base.type)} has no items to take with [ ].", node)
    is_map = base.type is not None and pa.types.is_map(base.type)
    kind, zone = item_type(base.type), analysis.scope.time_zone
    tree = None
    if not base.collated and not index.collated:
        tree = folded_call("map_value" if is_map else "[]", [base.local, index.local], kind, zone)
    return analysis.make_value(node, kind, tree, base.collated or index.collated)
