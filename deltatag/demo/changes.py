"""Compares two versions of the table `rules`, rule by rule, to show the effect of edits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One rule that differs between two versions; `expression` is the newer one, None if the rule was deleted."""

    rule_id: str
    what: str
    expression: str | None


def rule_changes(lake: Lake, before: int, after: int) -> list[RuleChange]:
    """The rules that differ, by id; `what` also says whether the rule is rejected."""
    old, new = _rules(lake, before), _rules(lake, after)
    rejected = {row["rule_id"] for row in lake.arrow("rule_rejects", ["rule_id"]).to_pylist()}
    changes = []
    for rule_id in sorted({*old, *new}):
        what = _what(old.get(rule_id), new.get(rule_id))
        if what is not None:
            note = ", rejected" if rule_id in rejected else ""
            changes.append(RuleChange(rule_id, what + note, new.get(rule_id, {}).get("expression")))
    return changes


def _rules(lake: Lake, version: int) -> dict[str, dict[str, Any]]:
    table = lake.arrow("rules", ["rule_id", "expression", "enabled", "valid_from", "valid_to"], version=version)
    return {row["rule_id"]: row for row in table.to_pylist()}


def _what(old: dict[str, Any] | None, new: dict[str, Any] | None) -> str | None:
    if old is None or new is None:
        return "added" if old is None else "deleted"
    was, now = old["enabled"] is not False, new["enabled"] is not False
    if was != now:
        return "switched on" if now else "switched off"
    return "changed" if {**old, "enabled": None} != {**new, "enabled": None} else None
