"""Reads Sigma rules (YAML, as SigmaHQ writes them) as rules over a scope's columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.authoring.conditions import any_of, expression
from pipelines.authoring.foreign import FieldMapping, ForeignRules, RefusedError, files_in, shortened
from pipelines.authoring.rule_files import RuleFileError, read_text, read_yaml_documents
from pipelines.authoring.sigma_condition import condition_of
from pipelines.authoring.sigma_values import search

SUFFIXES = (".yml", ".yaml")
_PRIORITY = {"critical": 1, "high": 2, "medium": 3, "low": 4, "informational": 5}
_LOGSOURCE = ("category", "product", "service")


def read_sigma(path: Path, scope: str, schema: pa.Schema, mapping: Path | None) -> ForeignRules:
    """The Sigma rules of a file, or of all below a folder, over the columns `schema` of a scope.

    A rule's id is Sigma's own, or its title; its level becomes the priority (1 for critical to 5) and a label. Rules
    with another logsource than the mapping file's are left out. RuleFileError if a file cannot be read.
    """
    fields = FieldMapping(schema, mapping)
    found = ForeignRules()
    for file in files_in(path, SUFFIXES):
        for document in read_yaml_documents(file, read_text(file)):
            if not isinstance(document, dict):
                raise RuleFileError(f"{file}: a Sigma rule is a mapping with `title` and `detection`.")
            _add(found, file, document, scope, fields)
    return found


def _add(found: ForeignRules, file: Path, rule: dict[str, Any], scope: str, fields: FieldMapping) -> None:
    rule_id = str(rule.get("id") or rule.get("title") or file.stem)
    logsource = rule.get("logsource") or {}
    if fields.logsource and not _is_about(logsource, fields.logsource):
        found.left_out += 1
        return
    try:
        text = _expression(rule, fields)
    except RefusedError as error:
        found.refuse(rule_id, error)
        return
    level, title = rule.get("level"), str(rule.get("title") or "")
    tags = rule.get("tags")
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
        }
    )


def _is_about(logsource: Any, wanted: dict[str, str]) -> bool:
    return isinstance(logsource, dict) and all(str(logsource.get(name)) == value for name, value in wanted.items())


def _expression(rule: dict[str, Any], fields: FieldMapping) -> str:
    if "correlation" in rule or "filter" in rule:
        raise RefusedError("CORRELATION", "The rule relates or filters other rules; a rule looks at one row at a time.")
    if "action" in rule:
        raise RefusedError("COLLECTION", "A file of one rule in several documents (`action`) is not supported.")
    detection = rule.get("detection")
    if not isinstance(detection, dict) or not detection.get("condition"):
        raise RefusedError("CONDITION", "The rule has no detection with a condition.")
    if "timeframe" in detection:
        raise RefusedError("AGGREGATION", "The rule has a timeframe; a rule looks at one row at a time.")
    conditions = detection["condition"]
    conditions = conditions if isinstance(conditions, list) else [conditions]
    searches = {str(name): search(str(name), each, fields) for name, each in detection.items() if name != "condition"}
    return expression(any_of([condition_of(str(each), searches) for each in conditions]))
