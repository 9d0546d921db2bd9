"""Matches rows against many rules at once: the rule language, the index over it, and its file format.

Each name is imported on first use: a program that only loads an index never imports the compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rules_index.compiling.compile import compile_rules
    from rules_index.domains.value_lists import ValueList, value_list
    from rules_index.errors import ArtifactError, RuleError, RulesIndexError, SchemaError, UnknownRuleError
    from rules_index.implication.implies import implies
    from rules_index.implication.lint import lint
    from rules_index.implication.mistakes.known_values import KnownValues, known_values
    from rules_index.implication.union import implied_by_union
    from rules_index.implication.widening import ColumnRange, WideConjunction, Widened, widen
    from rules_index.index.compiled import CompiledRules
    from rules_index.index.loading import load, loads

_PLACES = {
    "ArtifactError": "errors",
    "ColumnRange": "implication.widening",
    "CompiledRules": "index.compiled",
    "KnownValues": "implication.mistakes.known_values",
    "RuleError": "errors",
    "RulesIndexError": "errors",
    "SchemaError": "errors",
    "UnknownRuleError": "errors",
    "ValueList": "domains.value_lists",
    "WideConjunction": "implication.widening",
    "Widened": "implication.widening",
    "compile_rules": "compiling.compile",
    "implied_by_union": "implication.union",
    "implies": "implication.implies",
    "known_values": "implication.mistakes.known_values",
    "lint": "implication.lint",
    "load": "index.loading",
    "loads": "index.loading",
    "value_list": "domains.value_lists",
    "widen": "implication.widening",
}
"""The module of each public name."""

__all__ = [
    "ArtifactError",
    "ColumnRange",
    "CompiledRules",
    "KnownValues",
    "RuleError",
    "RulesIndexError",
    "SchemaError",
    "UnknownRuleError",
    "ValueList",
    "WideConjunction",
    "Widened",
    "compile_rules",
    "implied_by_union",
    "implies",
    "known_values",
    "lint",
    "load",
    "loads",
    "value_list",
    "widen",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
