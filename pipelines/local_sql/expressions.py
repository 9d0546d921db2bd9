"""Evaluates the expressions of a query: in its select list, its groups, its sort keys, and over its aggregates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from pipelines.errors import NeedsSparkError
from pipelines.local_sql.syntax import Path
from rules_index.index.inputs import inputs_of, read_leaf
from rules_index.language.analyser import Analyser
from rules_index.language.evaluation.evaluate import evaluate
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.parser import parse
from rules_index.language.scope import Scope
from rules_index.language.tokens import tokenise
from rules_index.language.typed import Expression, Leaf
from rules_index.names import column_key, path_parts


@dataclass(frozen=True)
class Evaluable:
    """An expression over the columns of a table."""

    text: str
    tree: Expression

    @cached_property
    def inputs(self) -> tuple[Leaf, ...]:
        """The columns, and fields of columns, that it reads."""
        return inputs_of([self.tree])

    @property
    def paths(self) -> list[Path]:
        """The columns, and fields of columns, that it reads."""
        return [tuple(path_parts(leaf.name)) for leaf in self.inputs]

    def values(self, rows: pa.Table) -> pa.Array:
        """Its value on each row. NeedsSparkError if it raises on one, so that Spark reports that."""
        inputs = {leaf.name: read_leaf(rows, leaf) for leaf in self.inputs}
        known = {name: found for name, found in inputs.items() if isinstance(found, Evaluated)}
        found = evaluate(self.tree, known, rows.num_rows)
        if found.raised is not None and found.raised.any():
            raise NeedsSparkError(f"{self.text} raises on a row")
        return found.values


def evaluable(text: str, schema: pa.Schema, zone: str) -> Evaluable:
    """The expression of a text. NeedsSparkError if only Spark evaluates it, RuleError if it is refused."""
    node, tokens = parse(text, zone)
    value = Analyser(tokens, Scope(schema, zone)).value(node)
    tree = value.local
    if tree is None or value.collated or tree.type != value.type or not _is_shown(tree.type):
        raise NeedsSparkError(f"only Spark evaluates {text}")
    found = Evaluable(text, tree)
    if any(leaf.text is not None for leaf in found.inputs):
        raise NeedsSparkError(f"only Spark evaluates {text}")
    return found


def is_discrete(kind: pa.DataType) -> bool:
    """True for integers, decimals, strings, dates and timestamps: types whose equal values are identical."""
    t = pa.types
    is_number = t.is_integer(kind) or t.is_decimal(kind)
    return bool(is_number or t.is_string(kind) or t.is_date(kind) or t.is_timestamp(kind))


def _is_shown(kind: pa.DataType) -> bool:
    t = pa.types
    is_number = t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind)
    return bool(is_number or t.is_boolean(kind) or t.is_string(kind) or t.is_date(kind) or t.is_timestamp(kind))


def unqualified(text: str, qualifier: str, columns: Sequence[str]) -> str:
    """The text of an expression without the table's name before columns.

    NeedsSparkError where the qualifier could also be a column's name, or a variable's.
    """
    tokens = tokenise(text)
    kinds, key = tokens.kinds, column_key(qualifier)
    found = [
        place
        for place in range(len(kinds) - 2)
        if kinds[place + 1] == "."
        and (place == 0 or kinds[place - 1] != ".")
        and tokens.is_name(place)
        and column_key(tokens.name(place)) == key
    ]
    if not found:
        return text
    if "->" in kinds or key in map(column_key, columns):
        raise NeedsSparkError(f"{qualifier} is the name of the table and of something else")
    for place in reversed(found):
        text = text[: tokens.starts[place]] + text[tokens.ends[place + 1] :]
    return text
