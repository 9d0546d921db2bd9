"""Reads Sigma rules (YAML, as SigmaHQ writes them) as rules over a scope's columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.authoring.conditions import any_of, expression
from pipelines.authoring.foreign import UNREADABLE, FieldMapping, ForeignRules, RefusedError, shortened
from pipelines.authoring.rule_files import read_text, read_yaml_documents
from pipelines.authoring.sigma_condition import condition_of
from pipelines.authoring.sigma_values import search

SUFFIXES = (".yml", ".yaml")
_PRIORITY = {"critical": 1, "high": 2, "medium": 3, "low": 4, "informational": 5}
_LOGSOURCE = ("category", "product", "service")


def read_sigma(path: Path, scope: str, schema: pa.Schema, mapping: Path | None) -> ForeignRules:
    """The Sigma rules of a file, or of all below a folder, over the columns `schema` of a scope.

    A rule's id is Sigma's own, or its title; its level becomes the priority (1 for critical to 5) and a label. Rules
    with another logsource than the mapping file's are left out. Files of a folder that cannot be read are refused;
    RuleFileError if `path` itself cannot be read.
    """
    fields = FieldMapping(schema, mapping)
    found = ForeignRules()
    for file, documents in found.contents(path, SUFFIXES, _documents):
        is_collection = False
        for number, document in enumerate(documents, 1):
            if not isinstance(document, dict):
                message = f"Document {number} of the file is not a Sigma rule: a mapping with `title` and `detection`."
                found.refuse(str(file), RefusedError(UNREADABLE, message), file)
                continue
            is_collection = is_collection or "action" in document
            _add(found, file, document, is_collection, scope, fields)
    return found


def _documents(file: Path) -> list[Any]:
    return read_yaml_documents(file, read_text(file))


def _add(
    found: ForeignRules, file: Path, rule: dict[str, Any], is_collection: bool, scope: str, fields: FieldMapping
) -> None:
    rule_id = str(rule.get("id") or rule.get("title") or file.stem)
    title = str(rule.get("title") or "")
    logsource = rule.get("logsource") or {}
    try:
        _check_kind(rule, is_collection)
        if fields.logsource and not _is_about(logsource, fields.logsource):
            found.left_out += 1
            return
        text = _expression(rule, fields)
    except RefusedError as error:
        found.refuse(rule_id, error, file, title or None)
        return
    level, tags = rule.get("level"), rule.get("tags")
    labels = {
        "title": title,
        "level": level,
        "status": rule.get("status"),
        "tags": ",".join(map(str, tags)) if isinstance(tags, list) else tags,
        **{name: logsource.get(name) for name in _LOGSOURCE if isinstance(logsource, dict)},
    }
    found.add(
        {
            "rule_id": rule_id,
            "scope": scope,
            "expression": text,
            "priority": _PRIORITY.get(str(level)),
            "labels": list(shortened(labels).items()),
            "owner": str(rule["author"]) if rule.get("author") else None,
            "description": str(rule.get("description") or title) or None,
        },
        file,
        title or None,
    )


def _is_about(logsource: Any, wanted: dict[str, str]) -> bool:
    return isinstance(logsource, dict) and all(str(logsource.get(name)) == value for name, value in wanted.items())


def _check_kind(rule: dict[str, Any], is_collection: bool) -> None:
    """Raise RefusedError for a document that is no rule by itself, whatever its logsource."""
    if is_collection:
        raise RefusedError("COLLECTION", "A file of one rule in several documents (`action`) is not supported.")
    if "correlation" in rule:
        raise RefusedError("CORRELATION", "The rule correlates other rules; a rule here looks at one row at a time.")


def _expression(rule: dict[str, Any], fields: FieldMapping) -> str:
    if "filter" in rule:
        raise RefusedError("CORRELATION", "The rule filters other rules; a rule here does not depend on others.")
    detection = rule.get("detection")
    if not isinstance(detection, dict) or not detection.get("condition"):
        raise RefusedError("CONDITION", "The rule has no detection with a condition.")
    if "timeframe" in detection:
        raise RefusedError("AGGREGATION", "The rule has a timeframe; a rule looks at one row at a time.")
    conditions = detection["condition"]
    conditions = conditions if isinstance(conditions, list) else [conditions]
    searches = {str(name): search(str(name), each, fields) for name, each in detection.items() if name != "condition"}
    return expression(any_of([condition_of(str(each), searches) for each in conditions]))
