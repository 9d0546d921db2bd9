"""Match rows against many rules at once: the rule language, the index over it, and its file format."""

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
