"""Reads decision tables of DMN (XML) as rules over a scope's columns: one rule per row."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from xml.parsers import expat

import pyarrow as pa

from pipelines.authoring.conditions import Condition, Not, all_of, expression
from pipelines.authoring.feel import unary_tests
from pipelines.authoring.foreign import Column, FieldMapping, ForeignRules, RefusedError, shortened
from pipelines.authoring.rule_files import MOST_BYTES, RuleFileError

SUFFIXES = (".dmn",)
_MOST_DEEP = 500
"""Maximum depth to which elements may be nested."""
MOST_ROWS = 200
"""Maximum rows of a table with hit policy FIRST: each rule excludes all rows before its own."""
_INDEPENDENT = ("UNIQUE", "ANY", "COLLECT", "RULE ORDER")
_SHORT = {
    "U": "UNIQUE",
    "A": "ANY",
    "F": "FIRST",
    "C": "COLLECT",
    "R": "RULE ORDER",
    "P": "PRIORITY",
    "O": "OUTPUT ORDER",
}


def read_dmn(path: Path, scope: str, schema: pa.Schema, mapping: Path | None) -> ForeignRules:
    """The decision tables of a file, or of all below a folder, over the columns `schema` of a scope.

    A row becomes a rule with the id `decision/row`, its outputs as labels and its number as priority. With the hit
    policies UNIQUE, ANY, COLLECT and RULE ORDER a rule is its row's condition; with FIRST it also excludes what earlier
    rows match. Tables with other policies or within functions, and rows with an unsupported test, are refused; so are
    files of a folder that are not XML or have a DOCTYPE. RuleFileError if `path` itself is such a file.
    """
    fields = FieldMapping(schema, mapping)
    found = ForeignRules()
    for file, root in found.contents(path, SUFFIXES, _root):
        for decision in _all(root, "decision"):
            for table in _children(decision, "decisionTable"):
                _add(found, file, decision, table, scope, fields)
        for holder in (*_all(root, "decision"), *_all(root, "businessKnowledgeModel")):
            if _tag(holder) != "decision" or not _children(holder, "decisionTable"):
                _refuse_tables(found, file, holder)
    return found


def _refuse_tables(found: ForeignRules, file: Path, holder: ElementTree.Element) -> None:
    """Refuse the decision tables within a function or an expression, which are no decision by themselves."""
    name = holder.get("name")
    message = "The decision table is a part of a function or of an expression; only one that is a decision has rules."
    for _ in _all(holder, "decisionTable"):
        found.refuse(holder.get("id") or name or file.stem, RefusedError("NOT_A_DECISION", message), file, name)


def _root(path: Path) -> ElementTree.Element:
    """The root of an XML file. A DOCTYPE is refused, since its entities could expand without limit."""
    try:
        if path.stat().st_size > MOST_BYTES >> 4:
            raise RuleFileError(f"{path} has more than {MOST_BYTES >> 24:,} MiB; split it.")
        data = path.read_bytes()
    except OSError as error:
        raise RuleFileError(f"{path} cannot be read: {error.strerror}.") from None
    parser, depth = expat.ParserCreate(), 0

    def refuse(*_: object) -> None:
        raise RuleFileError(f"{path} has a DOCTYPE, which a decision table does not need; remove it.")

    def descend(*_: object) -> None:
        """Count a level of nesting; RuleFileError if there are too many."""
        nonlocal depth
        depth += 1
        if depth > _MOST_DEEP:
            raise RuleFileError(f"{path} has elements that are nested more than {_MOST_DEEP} levels deep.")

    def ascend(*_: object) -> None:
        nonlocal depth
        depth -= 1

    parser.StartDoctypeDeclHandler, parser.StartElementHandler, parser.EndElementHandler = refuse, descend, ascend
    try:
        parser.Parse(data, True)
        return ElementTree.fromstring(data)
    except (expat.ExpatError, ElementTree.ParseError, ValueError, LookupError) as error:
        raise RuleFileError(f"{path} is not XML: {error}.") from None


def _tag(element: ElementTree.Element) -> str:
    """An element's name without its namespace, which differs between versions of DMN."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _children(element: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [each for each in element if _tag(each) == name]


def _all(element: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [each for each in element.iter() if _tag(each) == name]


def _text(element: ElementTree.Element, *path: str) -> str:
    """The text of the first element at a path of names; empty if there is none."""
    for name in path:
        found = _children(element, name)
        if not found:
            return ""
        element = found[0]
    return (element.text or "").strip()


def _add(
    found: ForeignRules,
    file: Path,
    element: ElementTree.Element,
    table: ElementTree.Element,
    scope: str,
    fields: FieldMapping,
) -> None:
    """Add the rules of one decision table. element: the file's `decision` element that contains the `table`."""
    rows, title = _children(table, "rule"), element.get("name")
    decision = element.get("id") or title or file.stem
    try:
        policy = _policy(table, len(rows))
        inputs = [_input(each, fields) for each in _children(table, "input")]
    except RefusedError as error:
        found.refuse(decision, error, file, title)
        return
    outputs = [each.get("name") or each.get("label") or decision for each in _children(table, "output")]
    earlier: list[Condition] = []
    is_broken = False
    for number, row in enumerate(rows, 1):
        rule_id = f"{decision}/{number}"
        try:
            if is_broken:
                raise RefusedError(
                    "HIT_POLICY",
                    "An earlier row is refused, and with FIRST this row leaves out what that one matches.",
                )
            condition = _condition(row, inputs, fields)
        except RefusedError as error:
            found.refuse(rule_id, error, file, title)
            is_broken = policy == "FIRST"
            continue
        whole = all_of([condition, *(Not(each) for each in earlier)]) if earlier else condition
        if policy == "FIRST":
            earlier.append(condition)
        values = [_text(each, "text") for each in _children(row, "outputEntry")]
        description = _text(row, "description") or ", ".join(map(" = ".join, zip(outputs, values, strict=False)))
        labels = {name: value.strip('"') for name, value in zip(outputs, values, strict=False)}
        found.add(
            {
                "rule_id": rule_id,
                "scope": scope,
                "expression": expression(whole),
                "priority": number,
                "labels": list(shortened(labels).items()),
                "owner": None,
                "description": description or None,
            },
            file,
            title,
        )


def _policy(table: ElementTree.Element, rows: int) -> str:
    """The hit policy of a table with so many rows, by its full name; RefusedError if it is not supported."""
    policy = (table.get("hitPolicy") or "UNIQUE").strip().upper()
    policy = _SHORT.get(policy, policy)
    if table.get("aggregation"):
        raise RefusedError(
            "HIT_POLICY",
            f"The table sums up its rows ({table.get('aggregation')}); rules are independent of each other.",
        )
    if policy not in (*_INDEPENDENT, "FIRST"):
        known = ", ".join((*_INDEPENDENT, "FIRST"))
        raise RefusedError("HIT_POLICY", f"The hit policy {policy} is not supported; those that are: {known}.")
    if policy == "FIRST" and rows > MOST_ROWS:
        raise RefusedError(
            "HIT_POLICY",
            f"The table has {rows:,} rows of hit policy FIRST, of which {MOST_ROWS} are supported; split it.",
        )
    return policy


def _input(element: ElementTree.Element, fields: FieldMapping) -> Column:
    """The column of an input: by its expression, or by its label if only that is mapped."""
    text, label = _text(element, "inputExpression", "text"), element.get("label") or ""
    return fields.column(label if label and not fields.has(text) and fields.has(label) else text)


def _condition(row: ElementTree.Element, inputs: Sequence[Column], fields: FieldMapping) -> Condition:
    cells = [_text(each, "text") for each in _children(row, "inputEntry")]
    if len(cells) != len(inputs):
        raise RefusedError("ROW", f"The row has {len(cells)} tests, and the table {len(inputs)} inputs.")

    def other(name: str) -> Column | None:
        return fields.column(name) if fields.has(name) else None

    parts = [
        unary_tests(cell, column, other)
        for cell, column in zip(cells, inputs, strict=True)
        if cell.strip() not in ("", "-")
    ]
    return all_of(parts)
