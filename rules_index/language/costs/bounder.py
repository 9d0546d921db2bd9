"""Upper bounds for evaluating a part of a rule on one row in Spark: bytes, steps, and nodes of its plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rules_index.errors import RuleError
from rules_index.language.analysis import Analysis
from rules_index.language.coercion import BINARY, STRING, Type, is_nested
from rules_index.language.costs.argument_limits import problem
from rules_index.language.costs.forms import (
    LEAST_ITEM,
    SLOT,
    VALUE,
    Form,
    Size,
    Symbol,
    either,
    of_bytes,
    scalar,
    sum_of,
)
from rules_index.language.costs.sizes import Call
from rules_index.language.costs.steps import NODE
from rules_index.language.costs.table import BY_NAME, TIMES
from rules_index.language.function_signatures import LAMBDAS
from rules_index.language.nodes import Node
from rules_index.language.typed import Constant

ORDINARY_ROW = 1_000.0
"""The size in bytes of the row for which steps are limited."""
LARGEST_ROW = 1_000_000.0
"""The size in bytes of the row for which memory is limited."""
MAX_STEPS = 30e6
"""The most steps for one value on an ordinary row: about a tenth of a second."""
MAX_BYTES = 256e6
"""The most bytes for one value and all intermediate values, on the largest row."""
MAX_NODES = 5_000
"""The most operators and calls in one value, each counted as often as Spark copies it during planning."""

_STEPS_OF_BOUND = 4
"""Steps of work for bounding one part for one size of row."""
_COLLATED = 50.0
"""The factor by which comparing strings can take longer under a collation."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The bounds of one node.

    `size` is that of its value; `memory` the bytes of its value and all intermediate values; `steps` the work of the
    node and its parts; `nodes` the operators and calls in Spark's plan.
    """

    size: Size
    memory: Form
    steps: Form
    nodes: float


class Bounder:
    """Bounds the nodes of one rule for rows of `row` bytes, each node once."""

    def __init__(self, analyser: Analysis, row: float) -> None:
        self.analyser = analyser
        self.row = row
        self._bounds: dict[Node, Bound] = {}
        self._variables: list[dict[str, Size]] = []
        self._kinds: dict[str, Callable[[Node], Bound]] = {
            "literal": self._leaf,
            "opaque": self._leaf,
            "column": self._column,
            "call": self._call,
            "case": self._case,
            "cast": self._cast,
            "between": self._between,
            "like": self._pattern,
            "rlike": self._pattern,
            "subscript": self._subscript,
            "field": self._field,
            "row": self._row_value,
            "arithmetic": self._arithmetic,
        }

    def bound(self, node: Node) -> Bound:
        """The bounds of a node. Raises `RuleError` (`TOO_COSTLY`, `NOT_ALLOWED`) at the part that costs too much."""
        found = self._bounds.get(node)
        if found is None:
            tokens = self.analyser.tokens
            tokens.work.spend(_STEPS_OF_BOUND, tokens.starts[node.first])
            found = self._checked(node, self._kinds.get(node.kind, self._operator)(node))
            self._bounds[node] = found
        return found

    def _checked(self, node: Node, bound: Bound) -> Bound:
        """The bounds of a node. Raises `TOO_COSTLY` if one exceeds its limit."""
        if self.row <= ORDINARY_ROW and bound.steps.most > MAX_STEPS:
            raise self._too_costly(node, "steps", bound.steps.most, MAX_STEPS, ORDINARY_ROW)
        if bound.memory.most > MAX_BYTES:
            raise self._too_costly(node, "bytes", bound.memory.most, MAX_BYTES, self.row)
        if bound.nodes > MAX_NODES:
            raise self.analyser.error(
                "TOO_COSTLY",
                f"Spark makes more than {MAX_NODES:,} operators of this part, since it copies the operands of NULLIF, "
                "BETWEEN, CASE and the like, and copies of copies where they are nested. Nest them less deeply.",
                node,
            )
        return bound

    def _too_costly(self, node: Node, unit: str, needed: float, limit: float, row: float) -> RuleError:
        tokens = self.analyser.tokens
        text = tokens.text[tokens.starts[node.first] : tokens.ends[node.last]]
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        amount = f"{int(needed):,}" if needed < 1e18 else "more than 10^18"
        return self.analyser.error(
            "TOO_COSTLY",
            f"{shown} may need {amount} {unit} on a row of {int(row):,} bytes; at most {int(limit):,} are allowed. Use "
            "smaller constants, nest less, or cut what it works on, as in left(text, 100) and slice(items, 1, 100).",
            node,
        )

    def _type(self, node: Node) -> Type:
        found = self.analyser.value(node).type
        if found is None and node.kind == "call" and node.value == "transform":
            item = self._type(node.children[1].children[0])
            return None if item is None else pa.list_(item)
        return found

    def _combine(self, node: Node, size: Size, own: Form | float, times: Callable[[int], int] | None = None) -> Bound:
        """The bounds of a node with this size and own work, on top of its children's bounds. `times` says how often
        Spark evaluates the child of an index; once if it is None."""
        children = [self.bound(child) for child in node.children]
        if size.constant is None and _is_scalar(self._type(node)):
            size = scalar()
        steps, memory, nodes = Form(NODE) + own, size.bytes, 1.0
        for index, child in enumerate(children):
            copies = times(index) if times else 1
            steps = steps + child.steps * copies
            memory = memory + child.memory
            nodes += child.nodes * copies
        return Bound(size, memory, steps, nodes)

    # Leaves

    def _leaf(self, node: Node) -> Bound:
        value = node.value.value if isinstance(node.value, Constant) else None
        size = of_bytes(Form(_length(value)))
        return Bound(size.but(constant=value), size.bytes, Form(NODE), 0.0)

    def _column(self, node: Node) -> Bound:
        parts: tuple[str, ...] = node.value
        for variables in reversed(self._variables):
            if parts[0].lower() in variables:
                size = variables[parts[0].lower()]
                size = size if len(parts) == 1 else of_bytes(size.bytes, size.names)
                return Bound(size, Form(0.0), Form(NODE), 0.0)
        size = of_type(self._type(node), Form(self.row))
        return Bound(size, size.bytes, Form(NODE), 0.0)

    # Operators

    def _operator(self, node: Node) -> Bound:
        read = sum_of([self.bound(child).size.bytes for child in node.children])
        return self._combine(node, scalar(), read * self._dearness(node))

    def _dearness(self, node: Node) -> float:
        """The factor by which comparing a node's operands can take longer because of a collation: 1 without."""
        return _COLLATED if any(self.analyser.value(child).collated for child in node.children) else 1.0

    def _arithmetic(self, node: Node) -> Bound:
        sizes = [self.bound(child).size for child in node.children]
        if "||" not in node.value:
            return self._combine(node, scalar(), 0.0)
        size = BY_NAME["concat"].result(Call("concat", sizes, []))
        constant = self.analyser.value(node).local
        if isinstance(constant, Constant):
            size = size.but(constant=constant.value)
        return self._combine(node, size, size.bytes * 2)

    def _between(self, node: Node) -> Bound:
        read = sum_of([self.bound(child).size.bytes for child in node.children])
        return self._combine(node, scalar(), read * (2 * self._dearness(node)), lambda index: 2 if index == 0 else 1)

    def _pattern(self, node: Node) -> Bound:
        sizes = [self.bound(child).size for child in node.children]
        work = Form(0.0)
        for pattern in sizes[1:]:
            call = Call(node.kind, [sizes[0], pattern], [None, None])
            work = work + BY_NAME[node.kind].work(call, scalar())
        return self._combine(node, scalar(), work, lambda index: len(sizes) - 1 if index == 0 else 1)

    def _case(self, node: Node) -> Bound:
        bounds = [self.bound(child).size for child in node.children]
        values = bounds[1:] if node.value else bounds
        results = values[1::2] + (values[-1:] if len(values) % 2 else [])
        whens = len(values) // 2
        read = bounds[0].bytes * whens if node.value else Form(0.0)
        return self._combine(
            node, either(results), read, lambda index: max(1, whens) if node.value and index == 0 else 1
        )

    def _cast(self, node: Node) -> Bound:
        size = self.bound(node.children[0]).size
        source, target = self._type(node.children[0]), node.value[0]
        if target == STRING and source not in (STRING, BINARY):
            size = of_bytes(size.bytes * 8 + 64)
        elif target not in (STRING, BINARY):
            names = float(len(str(target))) if is_nested(target) else size.names
            size = Size(size.bytes + size.items * SLOT + VALUE, size.items, None, names)
        return self._combine(node, size.but(), size.bytes * 10)

    def _subscript(self, node: Node) -> Bound:
        base, index = (self.bound(child).size for child in node.children)
        return self._combine(node, base.item.but(), base.bytes + index.bytes)

    def _field(self, node: Node) -> Bound:
        """A field of a struct; for an array of structs, an array of their fields."""
        base = self.bound(node.children[0]).size
        places = Form(0.0) if base.each is None else base.items * SLOT
        bound = self._combine(node, Size(base.bytes + places, base.items, None, base.names), base.items * 20)
        return Bound(bound.size, self.bound(node.children[0]).memory + places, bound.steps, bound.nodes)

    def _row_value(self, node: Node) -> Bound:
        sizes = [self.bound(child).size for child in node.children]
        return self._combine(node, BY_NAME["struct"].result(Call("struct", sizes, [])), 0.0)

    # Calls

    def _call(self, node: Node) -> Bound:
        name: str = node.value
        if name in LAMBDAS:
            return self._with_lambdas(node)
        sizes = [self.bound(child).size for child in node.children]
        self._check_arguments(node, sizes)
        call = Call(name, sizes, [self._type(child) for child in node.children])
        cost = BY_NAME[name]
        size = cost.result(call)
        if name == "map":
            texts = [each.constant for each in sizes]
            if all(isinstance(text, str) for text in texts) and len(texts) % 2 == 0:
                size = size.but(constant=tuple(texts))
        times = TIMES.get(name)
        copies = (lambda index: times(index, len(sizes))) if times else None
        return self._combine(node, size, cost.work(call, size) * self._dearness(node), copies)

    def _check_arguments(self, node: Node, sizes: list[Size]) -> None:
        """Raises `NOT_ALLOWED` if an argument violates a limit (`argument_limits.problem`). Adds known constants to
        `sizes`, in place."""
        constants: list[Any] = [self.analyser.value(child).local for child in node.children]
        known = [
            size.but(constant=tree.value) if isinstance(tree, Constant) and size.constant is not tree.value else size
            for size, tree in zip(sizes, constants, strict=True)
        ]
        nulls = [isinstance(tree, Constant) and tree.value is None for tree in constants]
        found = problem(node, known, nulls)
        if found is not None:
            raise self.analyser.error("NOT_ALLOWED", found[1], found[0])
        sizes[:] = known

    def _with_lambdas(self, node: Node) -> Bound:
        """`exists`, `forall`, `filter`, `transform`: the body once per item; `aggregate`: also its start value and last
        lambda."""
        name: str = node.value
        base = self.bound(node.children[0])
        items = base.size
        symbol = Symbol(items.item.bytes.most)
        item = _variable(items.item, symbol)
        bounds = [base]
        steps, memory = base.steps + NODE + items.items * 30, base.memory
        sizes = [items]
        for index, child in enumerate(node.children[1:], 1):
            if index not in LAMBDAS[name]:
                bounds.append(self.bound(child))
                sizes.append(bounds[-1].size)
                steps, memory = steps + bounds[-1].steps, memory + bounds[-1].memory
                continue
            start = [sizes[1].but()] if name in ("aggregate", "reduce") else []
            body = self._body(child, [*start, item] if start and index == 2 else start or [item, scalar()])
            bounds.append(body)
            if index == 3:
                steps, memory = steps + body.steps, memory + body.memory
                sizes.append(body.size)
                continue
            steps = steps + body.steps.among(items.items, symbol, items.bytes)
            memory = memory + body.memory.without(symbol)
            sizes.append(body.size)
        if name == "transform":
            content = sizes[1].bytes.among(items.items, symbol, items.bytes)
            each = _without(sizes[1], symbol)
            size = Size(content + items.items * SLOT, items.items, each, max(items.names, each.names))
        else:
            size = BY_NAME[name].result(Call(name, sizes, [None] * len(sizes)))
        nodes = 1.0 + sum(bound.nodes for bound in bounds)
        return Bound(size, memory + size.bytes, steps + size.bytes, nodes)

    def _body(self, node: Node, parameters: list[Size]) -> Bound:
        names: tuple[str, ...] = node.value
        self._variables.append({name.lower(): size for name, size in zip(names, parameters, strict=False)})
        try:
            return self.bound(node.children[0])
        finally:
            self._variables.pop()


def check_costs(analyser: Analysis, bounders: list[Bounder], node: Node) -> None:
    """Raises `RuleError` if a node can cost too much. `bounders` are those of the rule; an empty list is filled."""
    if not bounders:
        bounders += [Bounder(analyser, ORDINARY_ROW), Bounder(analyser, LARGEST_ROW)]
    for bounder in bounders:
        bounder.bound(node)


def _variable(item: Size, symbol: Symbol) -> Size:
    """The size of a lambda's variable that is an item; its bytes are `symbol`, unless the item is a scalar."""
    if item.bytes.most <= VALUE:
        return item.but()
    content = Form(0.0, ((symbol, 1.0),))
    items = content * (1 / LEAST_ITEM)
    return Size(content, items if items.most <= item.items.most else item.items, item.each, item.names)


def _without(size: Size, symbol: Symbol) -> Size:
    """The size of a lambda's result, at its largest over all items: `symbol` is replaced by its maximum."""
    each = None if size.each is None else _without(size.each, symbol)
    return Size(size.bytes.without(symbol), size.items.without(symbol), each, size.names)


def _length(value: Any) -> float:
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace")) + 0.0
    return float(len(value)) if isinstance(value, bytes) else VALUE


def _is_scalar(data_type: Type) -> bool:
    """Whether all values of a type have the same size."""
    return data_type is not None and not is_nested(data_type) and data_type not in (STRING, BINARY)


def of_type(data_type: Type, content: Form) -> Size:
    """The size of a column's value of a type, with at most `content` bytes."""
    if _is_scalar(data_type):
        return scalar()
    names = float(len(str(data_type))) if is_nested(data_type) else 0.0 if data_type is not None else content.most
    each = None
    if data_type is not None and (pa.types.is_list(data_type) or pa.types.is_map(data_type)):
        item = data_type.item_type if pa.types.is_map(data_type) else data_type.value_type
        each = of_type(item, content)
    return Size(content, content * (1 / LEAST_ITEM), each, names)
